"""Describes why a browser showed a page, for status, `why` and the dashboard."""

# A reason (from `render/deciding.py`, the setting, or the request of a page) -> the reason in words.
REASONS = {
    "mark": "looked unfinished",
    "learned": "pages of its kind gain by it",
    "chance": "drawn by chance",
    "always": "all are shown",
    "request": "its request says so",
}
