"""The result of `lstr info` in words and units for a person."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from lstr_cli.console import clock

# Names of entries that their key alone does not explain.
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
USUAL = {"rotation": 0, "sample_aspect": "1", "leftovers_of_killed_runs": 0}  # shown only with another value
NOT_SHOWN = ("kind", "faults", "kinds")  # kinds: how detections differ from labels, which --json has
SETTINGS = ("config", "changed")  # their entries keep the names that `--set` takes
COUNTS = ("parameters", "chunks", "videos", "frames", "frames_24fps", "header_frames")  # with a comma at thousands
SHOWN = 12  # of a list


def tables(described: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield tables of (entry, value): one without a title, then one for each entry that has entries itself."""
    shown = {k: v for k, v in described.items() if k not in NOT_SHOWN and (k not in USUAL or USUAL[k] != v)}
    nested = {key: value for key, value in shown.items() if isinstance(value, Mapping) and value}
    yield "", [(_named(key), _text(key, value)) for key, value in shown.items() if key not in nested]
    for key, value in nested.items():
        yield _named(key), list(_flat(value, key in SETTINGS))


def _flat(entries: Mapping[str, Any], is_setting: bool, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield entries within entries as "rgb network", without those that are None."""
    for key, value in entries.items():
        name = before + (key if is_setting else _named(key))
        if key in NOT_SHOWN or value is None:
            continue
        if key == "interval" and isinstance(value, Mapping):
            for one, edges in value.items():
                is_pair = isinstance(edges, list) and [isinstance(e, int | float) for e in edges] == [True, True]
                if edges:
                    text = f"{edges[0]:.4g} to {edges[1]:.4g}" if is_pair else str(edges)
                    yield f"{before}{_named(one)}, 95 %", text
        elif isinstance(value, Mapping) and value:
            yield from _flat(value, is_setting, f"{name} ")
        else:
            yield name, _text(key, value)


def _named(key: str) -> str:
    return WORDS.get(key, key.replace("_", " "))


def _text(key: str, value: Any) -> str:
    """Return a value with its unit."""
    if value is None or (isinstance(value, str | list | tuple | Mapping) and not value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "size":  # of a video "320x240"; of what a network sees, its height and width
        across, down = value.split("x") if isinstance(value, str) else reversed(value)
        return f"{across} × {down} pixels"
    if key == "duration":
        return f"{value:.2f} s"
    if key == "hours":
        return clock(3600 * value)
    if isinstance(value, list | tuple):
        if key == "members":
            words = [" as ".join(filter(None, (one["kind"], one["preset"]))) for one in value]
        elif isinstance(value[0], int | float):  # equal numbers, such as ten means of 128, once
            runs = [(number, len(list(same))) for number, same in groupby(value)]
            words = [f"{number:g}" + (f" ({n} times)" if n > 1 else "") for number, n in runs]
        else:
            words = list(map(str, value))
        return ", ".join(words[:SHOWN]) + (f" … ({len(words)})" if len(words) > SHOWN else "")
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if key in COUNTS else str(value)
