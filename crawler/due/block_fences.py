"""Fences: every `FENCE_STEP`th key of a run. They stay in memory and show which block may hold a key."""

FENCE_STEP = 512  # keys between two fences: 4 KiB uncoded, one page of memory
