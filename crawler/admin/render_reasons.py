"""Describes why the crawler rendered a page in a browser, for status, `why` and the dashboard."""

# A reason (from `render/deciding.py`, the setting, or the request of a page) -> the reason in words.
REASONS = {
    "mark": "looked unfinished",
    "learned": "similar pages gained by rendering",
    "again": "gained by rendering before",
    "chance": "drawn by chance",
    "always": "all are shown",
    "request": "requested with render=True",
}
