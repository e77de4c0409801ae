"""The published row that a training stands beside, and what may be said of the two."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstr.models.publication import SAME, Publication, Result
from lstr.pipelines.datasets.published_sets import PublishedSet

HORIZONS = 8
"""Chunks, 0.25 to 2 s, that the mean of a published anticipation is over."""
NOT_AT_HAND = "not at hand"
SUFFIX = {"now": "", "next": ", 0.25 s ahead", "ahead": ", mean of 0.25 to 2 s ahead"}
"""What each measure adds to the name of the metric."""
OF_AHEAD = "model.anticipation"
"""A setting without which there is no number ahead."""


@dataclass(frozen=True)
class Row:
    """A published number in percent, None where it is not at hand, and why ours does not compare with it, if so."""

    name: str
    """Metric and what it is of"""
    metric: str
    measure: str
    published: float | None
    features: str
    source: str
    reasons: tuple[str, ...] = ()
    exact: str = SAME
    """How ours is built, as `Publication.exact`"""

    def value(self, document: Mapping[str, Any]) -> float | None:
        """The number in percent of what `score_split` says; None where it has none."""
        if self.measure == "now":
            found = [document["lstr"][self.metric]]
        else:
            ahead = [entry[self.metric] for entry in document.get("anticipation", ())]
            found = ahead[:1] if self.measure == "next" else ahead
        known = [value for value in found if value is not None and value == value]
        return 100 * statistics.fmean(known) if known and len(known) == len(found) else None

    def verdict(self, values: Sequence[float | None]) -> str:
        """One sentence on how the numbers of all seeds stand to the published one."""
        known = [value for value in values if value is not None]
        if self.published is None:
            return f"{self.name}: no published number is at hand."
        published = f"the published {self.published:.1f}"
        if self.reasons:
            return f"{self.name}: not comparable with {published}: {'; '.join(self.reasons)}."
        if not known:
            return f"{self.name}: nothing to compare with {published} yet."
        low, high = min(known), max(known)
        if len(known) == 1:
            return f"{self.name}: {known[0]:.1f} of one seed, which has no spread, beside {published}."
        spread = f"the spread of {len(known)} seeds, {low:.1f} to {high:.1f}"
        built = "" if self.exact == SAME else f", of a design {self.exact}"
        if low <= self.published <= high:
            return f"{self.name}: {published} is within {spread}{built}."
        away = f"{low - self.published:.1f} below" if self.published < low else f"{self.published - high:.1f} above"
        return f"{self.name}: {published} is {away} {spread}{built}."


def rows_of(
    publication: Publication,
    published: PublishedSet,
    preset: str,
    width: int,
    arrays: Sequence[str],
    n_ahead: int,
    changed: Sequence[str],
    reasons: Sequence[str],
) -> Iterator[Row]:
    """The row of the present, or of the next chunk where that was published in its place, and the row ahead.

    width: of the features at hand. arrays: the names of their folders. changed: settings that are not the preset's.
    reasons: why no number compares.
    """
    prefix = f"{published.name} {published.metric}"
    of_set = [result for result in publication.results if result.of.startswith(prefix)]
    for measures in (("now", "next"), ("ahead",)):
        some = [result for result in of_set if result.measure in measures]
        chosen = max(
            some,
            key=lambda one: (preset in one.presets, -len([*_misfits(one, preset, width, arrays)])),
            default=None,
        )
        needed = {"now": 0, "next": 1, "ahead": HORIZONS}[chosen.measure if chosen else measures[0]]
        if (chosen is None and measures[0] == "ahead") or (needed == HORIZONS != n_ahead) or n_ahead < needed:
            continue
        measure = chosen.measure if chosen else "now"
        name = f"{published.metric}{SUFFIX[measure]}"
        if chosen is None:
            yield Row(name, published.metric, measure, None, NOT_AT_HAND, NOT_AT_HAND)
            continue
        own = [one for one in changed if measure == "now" or not one.startswith(OF_AHEAD)]
        settings = [f"settings: {', '.join(own)}"] if own else []
        why = (*reasons, *settings, *_misfits(chosen, preset, width, arrays))
        yield Row(name, published.metric, measure, chosen.value, chosen.features, chosen.seen, why, publication.exact)


def _misfits(result: Result, preset: str, width: int, arrays: Sequence[str]) -> Iterator[str]:
    """Why a training by a preset on features does not compare with a number."""
    if preset not in result.presets:
        yield f"the settings of this number are not at hand, those of {preset} stand in"
    if result.width not in (None, width):
        yield f"features: {width} wide, published {result.width}"
    for made, other in (("Kinetics", "anet"), ("ActivityNet", "kinetics")):
        if made in result.features and any(other in array for array in arrays):
            yield f"features: {', '.join(arrays)}, published {result.features}"
            break
