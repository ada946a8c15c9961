"""Discovery: the queues of new URLs on disk, with parking and retirement of entries."""
