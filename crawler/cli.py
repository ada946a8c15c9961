"""The `crawler` command."""


def main() -> int:
    """Run the command line and return its exit code."""
    return 0
