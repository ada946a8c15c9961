"""No time limits for single examples: the machine may be busy."""

from hypothesis import settings

settings.register_profile("frontier", deadline=None)
settings.load_profile("frontier")
