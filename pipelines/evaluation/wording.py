"""Figures of an evaluation as text for people, in the terminal and on the page."""

import math
from collections.abc import Sequence
from typing import Any


def figure_text(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash for None and NaN."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def interval_text(edges: Sequence[float] | None, sign: str = "", digits: int = 3) -> str:
    """A confidence interval for people; nothing for None and NaN."""
    if edges is None or not all(map(math.isfinite, edges)):
        return ""
    return f"[{edges[0]:{sign}.{digits}f}, {edges[1]:{sign}.{digits}f}]"


def videos_text(found: dict[str, Any]) -> str:
    """How many videos a mean is of, and how many of them networks of their features have seen."""
    return f"{found['videos']}, {found['seen']} seen" if "seen" in found else str(found["videos"])


def convention_text(name: str, document: dict[str, Any]) -> str:
    """The name of a convention in a document of `analyse`; of the published one also whose code chooses the chunks."""
    return f"{name} ({document['published_rule']})" if name == "published" else name
