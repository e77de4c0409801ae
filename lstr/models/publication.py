"""A kind of model in the literature: its paper, its published code and numbers, and how exact ours is."""

from __future__ import annotations

from dataclasses import dataclass, field

DESCRIPTION = "built from the description"
SAME = "same weights, same numbers"

LSTR_TABLES = "LSTR paper, tables"
LISTING = "a third party's list of results"
OLD_ANET = "ResNet-200 and BN-Inception of ActivityNet"
KINETICS = "TSN pair of Kinetics"
ANET = "TSN pair of ActivityNet"
AHEAD = "mean of 0.25 to 2 s ahead"


@dataclass(frozen=True)
class Result:
    """A number that was published, in percent."""

    of: str
    """Data set and metric."""
    value: float
    features: str
    seen: str
    """Where it was read."""
    presets: tuple[str, ...] = ()
    """The presets whose settings it belongs to, as far as they are known: the published code's first."""


@dataclass(frozen=True)
class Publication:
    """A kind of model in the literature."""

    name: str
    """What its paper calls it."""
    paper: str
    """Title, authors and venue."""
    address: str
    """Where the paper is; empty where no address was looked up."""
    code: str
    """The published code that was looked at, with its revision; empty where none was found."""
    licence: str
    """The licence of the published code, which has no part in ours."""
    note: str
    """What else a reader must know of how exact ours is."""
    golden: tuple[str, ...] = ()
    """Data that the published code made, which ours is held against."""
    results: tuple[Result, ...] = ()
    differs: tuple[str, ...] = ()
    """What training by its presets does otherwise than the published training, a clause each."""
    year: int | None = field(init=False)
    """The year that `paper` ends with."""
    exact: str = field(init=False)
    """`SAME` where there is `golden` data, else `DESCRIPTION`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "year", int(self.paper[-4:]) if self.paper[-4:].isdigit() else None)
        object.__setattr__(self, "exact", SAME if self.golden else DESCRIPTION)


def detection(
    thumos: float,
    tvseries: float,
    features: str,
    seen: str,
    presets: tuple[str, ...] = (),
    of_tvseries: tuple[str, ...] = (),
) -> tuple[Result, ...]:
    """Both data sets' numbers of detection, with the presets of either."""
    return (
        Result("THUMOS'14 mAP", thumos, features, seen, presets),
        Result("TVSeries mcAP", tvseries, features, seen, of_tvseries),
    )


def anticipation(thumos: float, tvseries: float, features: str, presets: tuple[str, ...] = ()) -> tuple[Result, ...]:
    """Both data sets' numbers of anticipation in the tables of the LSTR paper; presets are of the first."""
    return (
        Result(f"THUMOS'14 mAP, {AHEAD}", thumos, features, LSTR_TABLES, presets),
        Result(f"TVSeries mcAP, {AHEAD}", tvseries, features, LSTR_TABLES),
    )
