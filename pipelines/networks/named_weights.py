"""The weights that a caller in Python names."""

from collections.abc import Collection, Mapping
from pathlib import Path

from lstr.errors import ConfigError, brief
from lstr.extractors.streams import STREAMS
from lstr.pipelines.weights.published import find_weights, weights_by_stream


def named_weights(
    weights: Mapping[str, str | Path | None] | str | Path | None, streams: Collection[str]
) -> dict[str, str | None]:
    """Paths of weights by stream: one name is of those of `streams` that it has, as for `weights_by_stream`.

    Names are as for `find_weights`. Raises ConfigError for what is neither a name nor names by stream, and as both of
    these.
    """
    if weights is None:
        return {}
    if isinstance(weights, str | Path):
        return weights_by_stream([str(weights)], streams)
    if not isinstance(weights, Mapping) or not set(weights) <= set(STREAMS):
        raise ConfigError(
            f"The weights are {brief(weights)}.", f"give a name, or names by stream: {', '.join(STREAMS)}."
        )
    return {stream: find_weights(str(name), stream) if name else None for stream, name in weights.items()}
