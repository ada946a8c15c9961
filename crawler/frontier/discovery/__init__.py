"""Discovery keeps the queues of new URLs on disk, and parks and retires their entries."""
