"""From a directory to the parts of a process."""
