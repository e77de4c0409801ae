"""Networks that see a video frame by frame and remember the frames before, in a state that whoever runs them keeps."""

from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What such a network remembers of B streams: tensors of a fixed size, each (B, ...)."""


class CausalNetwork(nn.Module):
    """A network of frames in their order; it keeps no state of its own, so one serves any number of streams."""

    def begin(self, n: int, height: int, width: int) -> State:
        """The state of n streams of frames of so many pixels, before their first frame."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The next frame (B, C, H, W) of each of B streams → maps (B, D, h, w), and the state with this frame in it.

        The state that is given stays as it is.
        """
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """First frames of B streams (B, C, H, W) → maps (B, D, h, w)."""
        return self.step(x, self.begin(len(x), x.shape[2], x.shape[3]))[0]
