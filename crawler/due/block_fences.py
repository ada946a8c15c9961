"""The fences of a run: every `FENCE_STEP`th of its keys. They stay in memory and show which block may hold a key."""

FENCE_STEP = 512  # number of keys per fence; this many uncoded keys take 4 KiB, one page of memory
