"""Fences: every `FENCE_STEP`th key of a run, which stays in memory and tells where a key must be."""

FENCE_STEP = 512  # keys from one fence to the next: 4 KiB as they are, a page of memory
