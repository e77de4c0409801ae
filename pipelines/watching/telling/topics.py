"""The topics of MQTT under which a channel tells and listens, with names that are safe in them."""

import hashlib
import re
from dataclasses import dataclass

UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
"""What separates levels, stands for any of them, or may not be in a topic."""
LONGEST = 100
"""Characters of a name in a topic."""


def safe(name: str) -> str:
    """A name as one level of a topic; of two different names the levels differ."""
    level = UNSAFE.sub("_", name)[:LONGEST]
    return level if level == name and name else f"{level}-{_digest(name)}"


def identifier(*names: str) -> str:
    """Names as an identifier of Home Assistant: letters, digits, `_` and `-`, different for different names."""
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(names)).strip("_")[:LONGEST]
    return f"{words}_{_digest(*names)}"


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]


@dataclass(frozen=True)
class Topics:
    """All topics below a prefix, which may have several levels."""

    prefix: str

    def __post_init__(self) -> None:
        levels = [UNSAFE.sub("_", level) for level in self.prefix.strip("/").split("/")]
        object.__setattr__(self, "prefix", "/".join(levels).lstrip("$") or "lstr")

    @property
    def available(self) -> str:
        """`online` or `offline`, retained."""
        return f"{self.prefix}/available"

    @property
    def snooze(self) -> str:
        """Where it is asked to tell nobody for a while."""
        return f"{self.prefix}/snooze"

    def state(self, source: str, action: str) -> str:
        """Whether an action is on: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/{safe(action)}/state"

    def event(self, source: str) -> str:
        """Notices of a source, as JSON."""
        return f"{self.prefix}/{safe(source)}/event"

    def last(self, source: str) -> str:
        """The last action of a source, retained."""
        return f"{self.prefix}/{safe(source)}/last"

    def set(self, source: str) -> str:
        """Where a source is switched `ON` or `OFF`."""
        return f"{self.prefix}/{safe(source)}/set"

    def switch(self, source: str) -> str:
        """Whether a source is watched: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/state"

    def health(self, source: str) -> str:
        """Whether frames of a source come: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/health"
