"""What networks can see of a chunk: the streams, in the order that their features are joined in."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Generic, Self, TypeVar

Part = TypeVar("Part")

# The central frame; three frames without colour; the differences of four such; the maps of the first and the last
# frame, compared; optical flow.
STREAMS = ("rgb", "grey", "difference", "change", "flow")
# All but flow: joined they are what a model takes as `rgb`.
PICTURES = STREAMS[:-1]
# The streams whose pictures are made of several frames.
COMPARING = ("grey", "difference", "change")
# What a model takes, and what published features come as.
MODEL_STREAMS = ("rgb", "flow")
# Channels of an image, by stream.
CHANNELS_OF = {"rgb": 3, "grey": 3, "difference": 3, "change": 6, "flow": 10}


class OfStreams(Generic[Part]):
    """A dataclass that has a field for each stream: its network, or None."""

    @property
    def parts(self) -> dict[str, Part]:
        """The networks by stream, for the streams that have one."""
        return {stream: value for stream in STREAMS if (value := getattr(self, stream)) is not None}

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it has a network for, in the order of STREAMS."""
        return tuple(self.parts)

    def having(self, parts: Mapping[str, Part | None]) -> Self:
        """It with other networks for some streams, or None instead of one."""
        return replace(self, **parts)  # type: ignore[type-var]  # it is a dataclass


def in_training_order(streams: Collection[str]) -> list[str]:
    """Streams as their networks are trained one after the other: flow first, which costs less and gives more."""
    return [stream for stream in reversed(STREAMS) if stream in streams]


def model_stream(stream: str) -> str:
    """`rgb` or `flow`: what a stream's features are for a model, and what published weights for it were trained on."""
    return "rgb" if stream in PICTURES else "flow"


def streams_of_model(model_streams: Collection[str]) -> tuple[str, ...]:
    """The streams whose features are part of what a model takes: of `rgb` all but flow."""
    return tuple(stream for stream in STREAMS if model_stream(stream) in model_streams)
