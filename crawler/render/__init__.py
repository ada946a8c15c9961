"""Rendering: pages that need JavaScript, shown by a Chromium that has no network."""
