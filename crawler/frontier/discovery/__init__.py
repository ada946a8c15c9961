"""Discovery: it keeps the queues of new URLs on disk, and parks and retires the entries of these queues."""
