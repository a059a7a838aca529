"""JSON: the original's name for `spinup.parts.jsonio`."""

from spinup.parts.jsonio import convert_json, is_json_serializable

__all__ = ["convert_json", "is_json_serializable"]
