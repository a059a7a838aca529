"""The buffers of parts/buffers.py and parts/hindsight.py, with batches of tensors on a device."""

from spinup.parts import buffers, hindsight
from spinup.parts.buffers import NStepTransitions, Rollout, Segments, Transitions
from spinup.parts.pytorch.tensors import as_tensors

__all__ = [
    "GAEBuffer",
    "HindsightBuffer",
    "NStepReplayBuffer",
    "NStepTransitions",
    "ReplayBuffer",
    "Rollout",
    "SegmentBuffer",
    "Segments",
    "Transitions",
]


def gives_tensors(kind: type) -> type:
    """A buffer of this kind whose batches are tensors on `device`."""

    class TensorBuffer(kind):
        __doc__ = kind.__doc__

        def __init__(self, *args, device="cpu", **kwargs):
            super().__init__(*args, convert=as_tensors(device), **kwargs)

    TensorBuffer.__name__ = TensorBuffer.__qualname__ = kind.__name__
    return TensorBuffer


ReplayBuffer = gives_tensors(buffers.ReplayBuffer)
NStepReplayBuffer = gives_tensors(buffers.NStepReplayBuffer)
SegmentBuffer = gives_tensors(buffers.SegmentBuffer)
HindsightBuffer = gives_tensors(hindsight.HindsightBuffer)
GAEBuffer = gives_tensors(buffers.GAEBuffer)
