"""The version that the stand-in claims; ``make_fake_python`` writes another one on request."""

__version__ = version = "0.32.0"
__version_tuple__ = version_tuple = (0, 32, 0)
