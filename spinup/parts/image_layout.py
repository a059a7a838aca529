"""Which observations are images, and how their numbers lie."""

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

SMALLEST_IMAGE = 10  # pixels in height and in width


def is_image(space: gym.Space) -> bool:
    """Whether observations are images: bytes up to 255 in two dimensions or three.

    A fourth dimension, frames one after the other, is an image too.
    """
    if not isinstance(space, Box) or space.dtype != np.uint8 or not 2 <= len(space.shape) <= 4:
        return False
    _, height, width, _ = image_layout(space.shape)
    return min(height, width) >= SMALLEST_IMAGE and bool((space.high == 255).all())


def image_layout(shape: Sequence[int]) -> tuple[int, int, int, bool]:
    """Channels (of all frames), height, width, and whether the channels of a frame come last.

    The shape tells: of (4, 84, 84) and (84, 84, 3), the smaller end counts the channels.
    """
    frames, image = (shape[:-3], shape[-3:]) if len(shape) > 2 else ((), (1, *shape))
    last = image[-1] < image[0]
    height, width = image[:2] if last else image[1:]
    channels = int(np.prod(frames)) * (image[-1] if last else image[0])
    return channels, height, width, last
