"""What `lstr info` found, in words and units for a person."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from lstr_cli.console import clock

# What entries are called whose name alone does not tell.
WORDS = {
    "arrays_checked_by_hash": "arrays whole by their hash",
    "bits": "bits per sample",
    "changed": "changed from the preset",
    "config": "model settings",
    "damaged": "damaged videos",
    "failed": "failed videos",
    "frames_24fps": "frames at 24 per second",
    "header_frames": "frames by the header",
    "hours": "length in all",
    "longest": "longest video, in chunks",
    "shortest": "shortest video, in chunks",
    "sha256": "SHA-256",
}
# Entries that are shown only where they have another value.
UNREMARKABLE = {"rotation": 0, "sample_aspect": "1", "leftovers_of_killed_runs": 0}
NOT_ROWS = ("kind", "faults")
NOT_SHOWN = ("kinds",)  # how detections differ from labels, which --json has
SETTINGS = ("config", "changed")  # whose entries are called as `--set` takes them
COUNTS = ("parameters", "chunks", "videos", "frames", "frames_24fps", "header_frames")  # with a comma at thousands
SHOWN = 12  # of a list


def tables(described: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Tables of (entry, value): what it is, without a title, and then one for each entry with entries of its own."""
    shown = {key: value for key, value in described.items() if key not in NOT_ROWS}
    shown = {key: value for key, value in shown.items() if UNREMARKABLE.get(key) != value or key not in UNREMARKABLE}
    yield "", [(named(key), text(key, value)) for key, value in shown.items() if not _has_entries(value)]
    for key, value in shown.items():
        if _has_entries(value):
            yield named(key), list(_flat(value, str if key in SETTINGS else named))


def _has_entries(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _flat(entries: Mapping[str, Any], name: Callable[[str], str], before: str = "") -> Iterator[tuple[str, str]]:
    """Entries within entries as "rgb network", without those that are None."""
    for key, value in entries.items():
        if key in NOT_SHOWN:
            continue
        if key == "interval" and _has_entries(value):
            yield from ((f"{before}{name(one)}, 95 %", _interval(edges)) for one, edges in value.items() if edges)
        elif _has_entries(value):
            yield from _flat(value, name, f"{before}{name(key)} ")
        elif value is not None:
            yield before + name(key), text(key, value)


def named(key: str) -> str:
    """An entry's name for people."""
    return WORDS.get(key, key.replace("_", " "))


def text(key: str, value: Any) -> str:
    """A value with its unit."""
    if value is None or (isinstance(value, Sequence | Mapping) and not value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "size":  # of a video as "320x240", of what a network sees its height and width
        across, down = value.split("x") if isinstance(value, str) else reversed(value)
        return f"{across} × {down} pixels"
    if key == "duration":
        return f"{value:.2f} s"
    if key == "hours":
        return clock(3600 * value)
    if key == "members":
        return _list([" as ".join(filter(None, (one["kind"], one["preset"]))) for one in value])
    if isinstance(value, list | tuple):
        return _list(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if key in COUNTS else str(value)


def _interval(edges: Any) -> str:
    """Two numbers as an interval; whatever else a file has in their place as it is."""
    is_one = isinstance(edges, list) and len(edges) == 2 and all(isinstance(edge, int | float) for edge in edges)
    return f"{edges[0]:.4g} to {edges[1]:.4g}" if is_one else str(edges)


def _list(values: Sequence[Any]) -> str:
    """The first of them; equal numbers, as ten means of 128, once."""
    if isinstance(values[0], int | float):
        runs = [(value, len(list(same))) for value, same in groupby(values)]
        words = [f"{value:g}" + (f" ({n} times)" if n > 1 else "") for value, n in runs]
    else:
        words = list(map(str, values))
    return ", ".join(words[:SHOWN]) + (f" … ({len(words)})" if len(words) > SHOWN else "")
