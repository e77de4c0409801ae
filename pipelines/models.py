"""Every kind of model with its paper, its cost and its published numbers."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lstr.cost import cost_of
from lstr.errors import ConfigError
from lstr.kinds import KINDS, usable
from lstr.labels.label_set import THUMOS_CLASSES


def describe_models(kind: str | None = None) -> Iterator[dict[str, Any]]:
    """Each kind, or one: paper, code, licence, exactness, presets, cost of the published size, numbers.

    Raises ConfigError for a kind that does not exist.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"There is no kind {kind!r}.", f"Choose one of: {', '.join(KINDS)}.")
    for name, described in (usable() if kind is None else {kind: KINDS[kind]}).items():
        yield {
            "kind": name,
            **asdict(described.publication),
            "presets": list(described.presets),
            **asdict(cost_of(described.published_size, len(THUMOS_CLASSES))),
        }
