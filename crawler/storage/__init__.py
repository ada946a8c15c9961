"""Durable state: one ordered key-value store per process, files beside it, and one commit point."""
