"""For all tests: hypothesis sets no time limit an example, since on a busy machine it would fail at random."""

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
