"""The version, in a file that imports nothing."""

__version__ = "1.1.0"
