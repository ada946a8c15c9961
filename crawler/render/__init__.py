"""Rendering: pages that need JavaScript are shown in a Chromium that has no network."""
