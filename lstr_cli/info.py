"""`lstr info`: what a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file holds."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import click
from msgspec import Struct

from lstr_cli import console
from lstr_cli.options import OF_MODEL, Command, Json, options, set_option, take

DAMAGED = 3
FAULTS_SHOWN = 20  # in a table; --json has them all
# Names of entries whose key is not clear.
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
# Entries that are shown only if they have another value.
UNREMARKABLE = {"rotation": 0, "sample_aspect": "1", "leftovers_of_killed_runs": 0}
NOT_ROWS = ("kind", "faults")
NOT_SHOWN = ("kinds",)  # types of errors against labels; --json has them
SETTINGS = ("config", "changed")  # entries with the names of `--set`
COUNTS = (
    "parameters",
    "chunks",
    "videos",
    "frames",
    "frames_24fps",
    "header_frames",
)  # with thousands separators
LIST_SHOWN = 12


class Info(Struct):
    as_json: Json = False
    settings: Annotated[dict[str, str], set_option(model=OF_MODEL)] = {}


@click.command("info", cls=Command)
@click.argument("path", metavar="PATH")
@options(Info)
def command(path, settings, as_json):
    """Describe a video, feature folder, model file, checkpoint, weights, recipe, timeline or label file.

    A feature folder is read whole: lengths, recipe, numbers that are not finite, rows of zeros, and the hashes that
    were recorded when the arrays were written. Leaves with 3 when something is wrong with it.

    \b
    Examples:
      lstr info game.mp4
      lstr info features
      lstr info fall.lstr
      lstr info run/checkpoint.pt --json
      lstr info my_weights
      lstr info labels.json
      lstr info fast
    """
    from lstr.pipelines.info import describe

    with console.Bar("videos") as bar:
        described = describe(path, take(settings, "model"), lambda _, done, total: bar.update("checked", done, total))
    faults = described.get("faults", [])
    if as_json:
        console.show_json(described)
    else:
        for title, rows in tables(described):
            console.show_table(title or f"{path}: {described['kind']}", ("entry", "value"), rows)
        if faults:
            found = [(fault["id"], fault["stream"], fault["what"]) for fault in faults[:FAULTS_SHOWN]]
            console.show_table(f"{len(faults)} faults", ("video", "stream", "what"), found)
    if faults:
        redo = f"remove their files in {path}/records and run the same `lstr extract` again: it redoes them."
        hint = redo if "recipe" in described else "make the features of these videos again, or take their files away."
        number = len(described["damaged"])
        what = f"1 video of {path} is" if number == 1 else f"{number} videos of {path} are"
        console.say(f"failed: {what} not whole.\nhint: {hint}")
        sys.exit(DAMAGED)


def tables(described: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield tables of (entry, value): one without a title, and then one for each entry that has entries."""
    shown = {key: value for key, value in described.items() if key not in NOT_ROWS}
    shown = {key: value for key, value in shown.items() if UNREMARKABLE.get(key) != value or key not in UNREMARKABLE}
    yield "", [(named(key), text(key, value)) for key, value in shown.items() if not _has_entries(value)]
    for key, value in shown.items():
        if _has_entries(value):
            yield named(key), list(_flat(value, str if key in SETTINGS else named))


def _has_entries(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _flat(entries: Mapping[str, Any], name: Callable[[str], str], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested entries as "rgb network", without those that are None."""
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
    """Return the name of an entry for people."""
    return WORDS.get(key, key.replace("_", " "))


def text(key: str, value: Any) -> str:
    """Return a value with its unit."""
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
        return console.clock(3600 * value)
    if key == "members":
        return _list([" as ".join(filter(None, (one["kind"], one["preset"]))) for one in value])
    if isinstance(value, list | tuple):
        return _list(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if key in COUNTS else str(value)


def _interval(edges: Any) -> str:
    """Return two numbers as an interval; anything else that a file has there unchanged."""
    is_one = isinstance(edges, list) and len(edges) == 2 and all(isinstance(edge, int | float) for edge in edges)
    return f"{edges[0]:.4g} to {edges[1]:.4g}" if is_one else str(edges)


def _list(values: Sequence[Any]) -> str:
    """Return the first of them; equal numbers, such as ten means of 128, once."""
    if isinstance(values[0], int | float):
        runs = [(value, len(list(same))) for value, same in groupby(values)]
        words = [f"{value:g}" + (f" ({n} times)" if n > 1 else "") for value, n in runs]
    else:
        words = list(map(str, values))
    return ", ".join(words[:LIST_SHOWN]) + (f" … ({len(words)})" if len(words) > LIST_SHOWN else "")
