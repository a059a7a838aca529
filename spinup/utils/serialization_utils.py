"""JSON: the original's name for `spinup.parts.jsonio`."""

from spinup.parts.jsonio import convert_json

__all__ = ["convert_json"]
