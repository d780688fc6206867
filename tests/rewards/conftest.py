"""No time limit on a single example: a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
