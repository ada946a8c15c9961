"""The services of a running process. `process/live_services.py` starts and ends them."""
