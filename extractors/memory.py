"""What the networks of a recipe remember of a stream of video between its chunks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = tuple[Any, ...]


@dataclass
class StreamMemory:
    """The memory of one video or camera: before its first chunk, and for networks that see one chunk alone, nothing.

    A chunk that went through the networks is in it. It belongs to the networks that made it.
    """

    states: dict[str, State] = field(default_factory=dict)
    """Tensors by stream of the recipe, each (crops, ...): what `CausalNetwork.step` gave last."""

    def forget(self) -> None:
        """Remember nothing, as before the first chunk."""
        self.states.clear()


def features_in_turn(
    stream: str,
    memories: Sequence[StreamMemory],
    compute: Callable[[list[int], list[State | None]], tuple[NDArray[np.float32], list[State]]],
) -> tuple[NDArray[np.float32], list[dict[str, State]]]:
    """Features (B, D) of B chunks by a network that remembers, and what it does then of the stream of each.

    Of several chunks with one memory each sees those before it; those of several memories go together. `compute` makes
    features and states of chunks by their numbers and what was remembered of each. The memories stay as they are.
    """
    turns = [sum(memories[m] is memory for m in range(n)) for n, memory in enumerate(memories)]
    states = {id(memory): memory.states.get(stream) for memory in memories}
    rows: dict[int, NDArray[np.float32]] = {}
    later: list[dict[str, State]] = [{} for _ in memories]
    for turn in range(max(turns) + 1):
        at = [n for n, one in enumerate(turns) if one == turn]
        made, found = compute(at, [states[id(memories[n])] for n in at])
        for n, row, state in zip(at, made, found, strict=True):
            rows[n] = row
            states[id(memories[n])] = later[n][stream] = state
    return np.stack([rows[n] for n in range(len(memories))]), later
