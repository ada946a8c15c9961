"""Describes why the crawler rendered a page in a browser, for status, `why` and the dashboard."""

# The reason for a rendering -> its description. Most reasons are given by `render/deciding.py`. "always" means
# that `render.when` is "always". "request" means that the request for the page demands a browser.
REASONS = {
    "mark": "looked unfinished",
    "learned": "similar pages gained by rendering",
    "again": "gained by rendering before",
    "chance": "drawn by chance",
    "always": "all are shown",
    "request": "requested with render=True",
}
