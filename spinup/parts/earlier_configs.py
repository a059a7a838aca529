"""Settings that earlier versions wrote to config.json, in today's units.

Version 1.0 counted the noise of ddpg, td3 and her in half-widths of the action bounds: 0.1 stood
for 0.2 where actions reach from -2 to 2. Since version 1.1 it is in the units of the action, as in
the original library.
"""

import re

NOISE = ("act_noise", "target_noise", "noise_clip")


def in_todays_units(config: dict) -> dict:
    """A config.json with the noise of version 1.0 in the units of the action."""
    versions, spaces = config.get("versions"), config.get("spaces")
    made_by = versions.get("spinup") if isinstance(versions, dict) else None
    if not str(made_by).startswith("1.0.") or not isinstance(spaces, dict):
        return config
    noise = {name: config[name] for name in NOISE if type(config.get(name)) in (int, float)}
    bounds = re.match(r"Box\((.+?), (.+), \(", str(spaces.get("action")), re.DOTALL)
    if bounds is None:
        return config
    try:
        half_width = (float(bounds[2]) - float(bounds[1])) / 2
    except ValueError:  # bounds that differ between dimensions: no one number says the same
        text = "half-widths of the action bounds, as version 1.0 counted"
        return config | {name: f"{number} {text}" for name, number in noise.items()}
    return config | {name: float(f"{number * half_width:.12g}") for name, number in noise.items()}
