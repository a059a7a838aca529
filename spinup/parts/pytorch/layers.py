"""Layers in PyTorch: fully connected ones, and what goes before them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spinup.parts.errors import UserError, did_you_mean
from spinup.parts.image_layout import image_layout, is_image
from spinup.parts.mpi import mpi_sum
from spinup.parts.pytorch import fast

KNOWN_ACTIVATIONS = (*nn.modules.activation.__all__, "Identity")


def mlp(
    sizes: Sequence[int], activation: Callable, output_activation: Callable = nn.Identity
) -> "MLP":
    """Fully connected layers of these sizes, with `activation` after each but the last."""
    layers = []
    for i, (size_in, size_out) in enumerate(zip(sizes[:-1], sizes[1:])):
        last = i == len(sizes) - 2
        layers += [nn.Linear(size_in, size_out), output_activation() if last else activation()]
    return MLP(*layers)


class MLP(nn.Sequential):
    """Linear layers and activations in turn, as `mlp` makes them."""

    IS_MLP = True  # marks exactly this class, no subclass, for fast/

    @fast.accelerated_by(fast.mlp_forward)
    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


def apply_to_arrays(net: nn.Module, obs: Tensor | np.ndarray) -> np.ndarray:
    """What `net` gives for a batch of observations, a tensor or an array, as an array."""
    found = fast.numpy_forward(net, obs)
    if found is None:
        with torch.no_grad():
            found = net(torch.as_tensor(obs)).cpu().numpy()
    return found


def count_vars(module: nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(p.numel() for p in module.parameters())


def activation_by_name(name: Any) -> Any:
    """The activation that a name like 'torch.nn.ELU', 'nn.ELU' or 'ELU' means; others are kept."""
    if not isinstance(name, str):
        if not callable(name):
            raise UserError(f"{name!r} is no activation. Try torch.nn.Tanh or torch.nn.ReLU.")
        return name
    prefix, _, short = name.rpartition(".")
    if short not in KNOWN_ACTIVATIONS or prefix not in ("", "nn", "torch.nn"):
        raise UserError(
            f"{name!r} is not an activation of torch.nn.{did_you_mean(short, KNOWN_ACTIVATIONS)} "
            "Try torch.nn.Tanh, torch.nn.ReLU or torch.nn.ELU."
        )
    return getattr(nn, short)


def as_shape(dim: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of observations of so many numbers, or of the shape that is given."""
    return (int(dim),) if isinstance(dim, (int, np.integer)) else tuple(dim)


class Flatten(nn.Module):
    """Makes one vector of each observation, whatever its shape."""

    IS_FLATTEN = True  # marks exactly this class, no subclass, for fast/

    def __init__(self, shape: Sequence[int]):
        super().__init__()
        self.dims, self.size = len(shape), int(np.prod(shape))

    def forward(self, obs: Tensor) -> Tensor:
        return obs.reshape(*obs.shape[: obs.ndim - self.dims], -1)


class RunningNormalizer(Flatten):
    """Shifts and scales each number of an observation by the running mean and standard deviation.

    It learns by `update`, not by gradient. What it has seen is saved with the weights, so a loaded
    network cannot lack it. At first it only clips.
    """

    count: Tensor
    mean: Tensor
    var: Tensor
    shift: Tensor
    scale: Tensor
    IS_NORMALIZER = True  # marks exactly this class, no subclass, for fast/
    LIMIT = 10.0  # in standard deviations; what lies further out counts as this far
    LEAST_SPREAD = 1e-7  # of the mean: less than single precision can tell from a constant

    def __init__(self, shape: int | Sequence[int]):
        super().__init__(as_shape(shape))
        nothing = dict(count=np.zeros(()), mean=np.zeros(self.size), var=np.ones(self.size))
        for name, start in nothing.items():
            self.register_buffer(name, torch.as_tensor(start))  # in double precision
        # The same as the network uses them: one subtraction and one product.
        self.register_buffer("shift", torch.zeros(self.size))
        self.register_buffer("scale", torch.ones(self.size))

    def forward(self, obs: Tensor) -> Tensor:
        x = (super().forward(obs) - self.shift) * self.scale
        return x.clamp(-self.LIMIT, self.LIMIT)

    @torch.no_grad()
    def update(self, obs: Tensor) -> None:
        """Take a batch of observations, of every process, into the statistics.

        Mean and squared deviations are those of the batch first, and merged then: sums of squares
        would lose all digits where the mean is far from zero.
        """
        x = super().forward(obs).double().cpu().numpy()
        n, *total = mpi_sum(np.append(float(len(x)), x.sum(0)))
        mean = np.array(total) / n
        squares = mpi_sum(((x - mean) ** 2).sum(0))
        before, old_mean, old_var = (b.cpu().numpy() for b in (self.count, self.mean, self.var))
        count, apart = before + n, mean - old_mean
        new_mean = old_mean + apart * (n / count)
        new_var = (old_var * before + squares + apart**2 * (before * n / count)) / count
        spread = np.sqrt(new_var)
        # A number that has never changed is only shifted.
        scale = 1 / np.where(spread > self.LEAST_SPREAD * np.abs(new_mean), spread, 1)
        new = dict(count=count, mean=new_mean, var=new_var, shift=new_mean, scale=scale)
        for name, value in new.items():
            getattr(self, name).copy_(torch.as_tensor(value))


def update_normalizers(network: nn.Module, obs: Tensor) -> None:
    """Let what normalises observations in `network`, if anything does, take these in."""
    for module in network.modules():  # one that several networks share is here once
        if isinstance(module, RunningNormalizer):
            module.update(obs)


FULL_KERNELS = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # channels, kernel, stride, padding
FULL_KERNELS_FROM = 60  # pixels, below which those would leave little of where things are
SMALL_KERNELS = ((16, 3, 2, 1), (32, 3, 2, 1), (32, 3, 1, 1))


class ImageEncoder(nn.Module):
    """Three convolutions that make a vector of an image; its bytes are scaled to 0..1 first.

    For images of 60 pixels and more they are those of Mnih and others (2015), for smaller ones
    they have fewer channels and look at 3 x 3 pixels at a time.
    """

    def __init__(self, shape: Sequence[int]):
        super().__init__()
        self.dims = len(shape)
        channels, height, width, self.channels_last = image_layout(shape)
        self.image = (channels, height, width)
        layers = []
        full = min(height, width) >= FULL_KERNELS_FROM
        for made, kernel, stride, padding in FULL_KERNELS if full else SMALL_KERNELS:
            layers += [nn.Conv2d(channels, made, kernel, stride, padding), nn.ReLU()]
            channels = made
            height, width = ((n + 2 * padding - kernel) // stride + 1 for n in (height, width))
        self.net = nn.Sequential(*layers)
        self.size = channels * height * width

    def forward(self, obs: Tensor) -> Tensor:
        lead = obs.shape[: obs.ndim - self.dims]
        x = obs.movedim(-1, -3) if self.channels_last else obs
        x = x.reshape(-1, *self.image).float() / 255
        return self.net(x).reshape(*lead, self.size)


def image_encoder(space: Any) -> "ImageEncoder | None":
    """A new encoder where observations are images; None where an mlp takes them as they are."""
    return ImageEncoder(space.shape) if is_image(space) else None


def observation_mlp(
    obs_dim: int | Sequence[int],
    sizes: Sequence[int],
    activation: Callable,
    features: Any = None,
) -> nn.Module:
    """An mlp on observations of `obs_dim`: a number of features, or a shape to be flattened.

    features: a module that makes `features.size` numbers of each observation for the mlp
    """
    shape = as_shape(obs_dim)
    if features is None and len(shape) != 1:
        features = Flatten(shape)
    layers = mlp([features.size if features else shape[0], *sizes], activation)
    return nn.Sequential(features, layers) if features else layers
