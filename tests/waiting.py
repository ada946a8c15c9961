"""The limit of the waits in tests."""

# Number of seconds after which a wait for a server, a process or a browser has failed. It matters only if the
# test fails, so it is long enough for two cores at a load of 30.
WAIT_MAX = 240.0
