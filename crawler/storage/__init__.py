"""Durable state: each process has an ordered key-value store, files beside the store, and one commit point."""
