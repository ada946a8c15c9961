"""The fences of a run: every `FENCE_STEP`th of its keys.

The fences stay in memory and show which block may hold a key.
"""

# number of keys per fence; without coding, this many keys take 4 KiB, which is one page of memory
FENCE_STEP = 512
