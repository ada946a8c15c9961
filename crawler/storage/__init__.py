"""Durable state: one ordered key-value store a process, files beside it, one commit point."""
