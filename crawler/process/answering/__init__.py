"""What a process answers."""
