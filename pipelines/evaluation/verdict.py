"""Which of two systems is better, in one sentence, and whether the difference is more than chance."""

from collections.abc import Mapping
from typing import Any

FEWEST = 6
"""Videos: with fewer, all of them for the same system is still chance (2 / 2 ** 5 is above .05)"""
JUDGED = ("mAP", "event F1")


def verdict(new: str, old: str, row: Mapping[str, Any], n_videos: int) -> dict[str, Any]:
    """`better`: the name of the system that is, by more than chance, or None; `sentence`: that for people.

    row: for each of JUDGED the values of `new` and `old`, their `difference` (new less old) and its `interval`, by the
    same resamples of the videos for both. A difference is more than chance where its interval leaves out 0 in at least
    FEWEST videos; without an interval nobody can tell. One of a figure that has no value is none.
    """
    signs = {name: _sign(row[name], n_videos) for name in JUDGED}
    figures = " and ".join(f"{name} {_figures(row[name])}" for name in JUDGED if row[name]["difference"] is not None)
    ahead, behind = ([name for name, sign in signs.items() if sign == side] for side in (1, -1))
    better = None if bool(ahead) == bool(behind) else new if ahead else old
    if ahead and behind:
        said = f"{new} is better than {old} in {ahead[0]} and worse in {behind[0]}, both by more than chance"
    elif better:
        where = "" if len(ahead or behind) == len(JUDGED) else f" in {(ahead or behind)[0]}"
        said = f"{better} is better than {old if better == new else new}{where}, by more than chance"
    elif n_videos < FEWEST:
        said = f"Which of {old} and {new} is better cannot be told from fewer than {FEWEST} videos"
    elif any(row[name]["interval"] is None for name in JUDGED if row[name]["difference"] is not None):
        said = f"Which of {old} and {new} is better cannot be told without resamples of the videos"
    else:
        said = f"Neither of {old} and {new} is better by more than chance"
    on = f"on {n_videos} video{'' if n_videos == 1 else 's'}"
    return {"better": better, "sentence": f"{said}: {new} has {figures or 'no figures'}, {on}."}


def _sign(row: Mapping[str, Any], n_videos: int) -> int:
    """1 where the new system is ahead by more than chance, -1 where the old one is, else 0."""
    if n_videos < FEWEST or row["difference"] is None or row["interval"] is None:
        return 0
    low, high = row["interval"]
    return int(low > 0) - int(high < 0)


def _figures(row: Mapping[str, Any]) -> str:
    edges = f" [{row['interval'][0]:+.2f}, {row['interval'][1]:+.2f}]" if row["interval"] else ""
    return f"{row['new']:.2f} against {row['old']:.2f} ({row['difference']:+.2f}{edges})"
