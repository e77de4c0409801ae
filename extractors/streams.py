"""Streams: the inputs that networks can take from a chunk, in the order in which their features are joined."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Generic, Self, TypeVar

Part = TypeVar("Part")

# The central frame; three grey frames; differences of four grey frames; the difference of the feature maps of the first
# and the last frame; the poses of people in two frames; optical flow.
STREAMS = ("rgb", "grey", "difference", "change", "pose", "flow")
PICTURES = STREAMS[:-1]  # all streams except flow: joined, they are a model's `rgb` input
COMPARING = ("grey", "difference", "change", "pose")  # streams that use several frames
MODEL_STREAMS = ("rgb", "flow")  # the inputs of a model, and of published features
# Channels of an image, by stream.
CHANNELS_OF = {"rgb": 3, "grey": 3, "difference": 3, "change": 6, "pose": 6, "flow": 10}


class OfStreams(Generic[Part]):
    """Base of a dataclass with a field for each stream: its network, or None."""

    @property
    def parts(self) -> dict[str, Part]:
        """The networks by stream, without the streams that are None."""
        return {stream: value for stream in STREAMS if (value := getattr(self, stream)) is not None}

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that have a network, in the order of STREAMS."""
        return tuple(self.parts)

    def having(self, parts: Mapping[str, Part | None]) -> Self:
        """Return a copy with other networks for some streams; None removes a network."""
        return replace(self, **parts)  # type: ignore[type-var]  # it is a dataclass


def in_training_order(streams: Collection[str]) -> list[str]:
    """Return streams in the order in which their networks are trained: flow first, which is cheaper and more useful."""
    return [stream for stream in reversed(STREAMS) if stream in streams]


def model_stream(stream: str) -> str:
    """Return `rgb` or `flow`: the model input of a stream, and the kind of published weights that fit it."""
    return "rgb" if stream in PICTURES else "flow"


def streams_of_model(model_streams: Collection[str]) -> tuple[str, ...]:
    """Return the streams that make up these model inputs: all except flow for `rgb`."""
    return tuple(stream for stream in STREAMS if model_stream(stream) in model_streams)
