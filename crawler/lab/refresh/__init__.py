"""Refresh policies on synthetic pages."""
