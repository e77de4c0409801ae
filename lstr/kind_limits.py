"""What some kinds of model cannot be configured with."""

from __future__ import annotations

from typing import Any

from lstr.errors import ConfigError


def check_foresight(config: Any) -> None:
    """Raise ConfigError for what kinds cmert and mat cannot have, and for what they alone have."""
    own = {"context": (0, "cmert"), "groups": (0, "mat"), "grouping": ("window", "mat"), "refinements": (2, "mat")}
    for name, (plain, kind) in own.items():
        if getattr(config, name) != plain and config.kind != kind:
            raise ConfigError(
                f"{name} is {getattr(config, name)} and kind is {config.kind}.", f"Only kind {kind} has {name}."
            )
    if config.kind not in ("cmert", "mat"):
        return
    if not config.long_length:
        raise ConfigError(
            f"long_length is 0 and kind is {config.kind}.",
            "Give it a long memory, for example [[model.long_length=64]]: it generates the future from that.",
        )
    if config.anticipation > config.future:
        raise ConfigError(
            f"anticipation is {config.anticipation} and future {config.future}.",
            f"Give a future of at least {config.anticipation}.",
        )
    if config.groups and (config.n_long % config.groups or config.groups > config.n_long // config.groups):
        raise ConfigError(
            f"groups is {config.groups}, and the long memory has {config.n_long} slots.",
            "Give a divisor of the slots that is no more than the slots of a group; or 0 for no groups.",
        )
