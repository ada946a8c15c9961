"""The services of a running process, joined by `process/live_services.py`."""
