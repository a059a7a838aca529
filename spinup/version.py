"""The version, in a file that imports nothing."""

__version__ = "1.1.0"
version_info = tuple(int(number) for number in __version__.split("."))


def get_version() -> str:
    """The version as a string, such as 1.1.0."""
    return __version__
