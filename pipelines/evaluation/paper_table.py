"""Several checkpoints as one table for a paper; runs that differ in their seed alone are one row."""

import json
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.instances import IOUS
from lstr.metrics.segmentation import OVERLAPS
from lstr.metrics.starts import OFFSETS
from lstr.pipelines.evaluation.analysis import figure_of
from lstr.pipelines.evaluation.findings import Judged
from lstr.pipelines.pages.table import WRITERS, Cell, Column, Table

FIGURES = ("mAP", "mcAP", "event F1")
INSTANCES = {f"mAP@{least:g}": ("instances", "mAP", place) for place, least in enumerate(IOUS)}
STARTS = {f"start mAP@{offset} s": ("starts", "mAP", place) for place, offset in enumerate(OFFSETS)}
SEGMENTS = {f"F1@{100 * least:g}": ("segments", "F1", place) for place, least in enumerate(OVERLAPS)}
# Where a document has the figures of `TABLES` that `figure_of` does not know
PATHS: Mapping[str, tuple[str, str, int | None]] = {
    **INSTANCES,
    **STARTS,
    "start mAP": ("starts", "mean", None),
    **SEGMENTS,
    "edit score": ("segments", "edit", None),
}
# The figures of each table, by its name
TABLES: Mapping[str, Sequence[str]] = {
    "frames": FIGURES,
    "instances": (*INSTANCES, "instance mAP"),
    "starts": (*STARTS, "start mAP"),
    "segments": (*SEGMENTS, "edit score"),
}
# Settings of a training in which the runs of one row may differ.
OF_A_RUN = ("seed", "save_seconds")
# What the common beginning of the names of several runs ends in, and is no name.
OF_A_NAME = re.compile(r"[\W_]+(?:seed|run|s|r)?[\W_]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """Runs of one training: their name, their seeds, and each figure of each run, None where it has none."""

    name: str
    seeds: Sequence[int | None]
    values: Mapping[str, Sequence[float | None]]

    def mean(self, figure: str) -> float | None:
        """The mean of the runs; None where one of them has no such figure."""
        known = [value for value in self.values[figure] if value is not None]
        return statistics.fmean(known) if len(known) == len(self.seeds) else None

    def deviation(self, figure: str) -> float | None:
        """The sample standard deviation; None of a single run."""
        known = [value for value in self.values[figure] if value is not None]
        return statistics.stdev(known) if len(known) == len(self.seeds) > 1 else None


def repeated(judged: Sequence[Judged]) -> dict[int, int]:
    """Which checkpoint, by its place, is an earlier one again: of the same seed, features and scores."""
    found: dict[int, int] = {}
    for at, entry in enumerate(judged):
        same = (i for i, other in enumerate(judged[:at]) if i not in found and _is_same(entry, other))
        if (first := next(same, None)) is not None:
            found[at] = first
    return found


def _is_same(one: Judged, other: Judged) -> bool:
    ours, theirs = one.evaluation, other.evaluation
    if _features_of(one) != _features_of(other) or _seed(ours.loaded) != _seed(theirs.loaded):
        return False
    return all(map(np.array_equal, ours.scores, theirs.scores))


def rows_of(judged: Sequence[Judged], table: str = "frames") -> list[Row]:
    """A row for each training, in the order of the checkpoints; a file that states no training is one of its own. With
    the figures of a table of TABLES.

    Runs of one row were trained alike on the same labels, are scored on the same features and have other seeds: a
    second checkpoint of a seed, as best.pt beside checkpoint.pt, is in a row of its own. Leave out what is `repeated`,
    which would be such a row.
    """
    together: dict[tuple[str, str, int], list[Judged]] = {}
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for at, entry in enumerate(judged):
        seed = _seed(entry.evaluation.loaded)
        training, features = _training_of(entry.evaluation.loaded) or f"#{at}", _features_of(entry)
        together.setdefault((training, features, seen[training, features, seed]), []).append(entry)
        seen[training, features, seed] += 1
    return [
        Row(
            _common_name([entry.name for entry in runs]),
            [_seed(entry.evaluation.loaded) for entry in runs],
            {figure: [_value(entry.document, figure) for entry in runs] for figure in TABLES[table]},
        )
        for runs in together.values()
    ]


def _value(document: Mapping[str, Any], figure: str) -> float | None:
    """A figure of an evaluation; None where there is none."""
    if figure not in PATHS:
        return figure_of(document, figure)
    part, key, place = PATHS[figure]
    value = document[part][key]
    value = value if place is None else value[place]
    return None if math.isnan(value) else float(value)


def _trained(loaded: Checkpoint) -> Mapping[str, Any]:
    train = loaded.extra.get("train")
    return train if isinstance(train, Mapping) else {}


def _seed(loaded: Checkpoint) -> int | None:
    return _trained(loaded).get("seed")


def _features_of(entry: Judged) -> str:
    """Where the features are that a checkpoint was scored on."""
    return str(entry.evaluation.split.folder.path)


def _training_of(loaded: Checkpoint) -> str:
    """The identity of a training but for its seed; empty where the file does not state it, or no seed.

    Features are told apart by their recipe; those without one by their folder.
    """
    train, data = _trained(loaded), loaded.extra.get("data")
    if train.get("seed") is None or not isinstance(data, Mapping):
        return ""
    facts = ("recipe", "classes", "videos_sha256", "labels_sha256")
    about = {
        "model": loaded.config.to_dict(),
        "train": {name: value for name, value in train.items() if name not in OF_A_RUN},
        "data": {name: data.get(name) for name in (facts if data.get("recipe") else (*facts, "features"))},
    }
    return json.dumps(about, sort_keys=True, default=str)


def _common_name(names: Sequence[str]) -> str:
    """What the names of the runs begin with; the first name where that is nothing."""
    if len(names) == 1:
        return names[0]
    return OF_A_NAME.sub("", os.path.commonprefix(list(names))) or names[0]


def raw_table(rows: Sequence[Row]) -> Table:
    """For a spreadsheet: shares with all their digits; seeds with spaces between."""
    columns = [Column("checkpoint", is_text=True), Column("runs"), Column("seeds", is_text=True)]
    figures = _figures_of(rows)
    columns += [Column(f"{figure}{end}") for figure in figures for end in ("", " deviation")]
    lines: list[list[Cell]] = []
    for row in rows:
        seeds = " ".join(str(seed) for seed in row.seeds if seed is not None)
        pairs = [(row.mean(figure), row.deviation(figure)) for figure in figures]
        lines.append([row.name, len(row.seeds), seeds, *(value for pair in pairs for value in pair)])
    return Table("", columns, lines)


def table_of(rows: Sequence[Row]) -> Table:
    """For people: percent with one digit, and the deviation of several runs."""

    def cell(row: Row, figure: str) -> str | None:
        mean, deviation = row.mean(figure), row.deviation(figure)
        if mean is None or math.isnan(mean):
            return None
        return f"{100 * mean:.1f}" + ("" if deviation is None else f" ± {100 * deviation:.1f}")

    figures = _figures_of(rows)
    columns = [Column("checkpoint", is_text=True), Column("runs"), *map(Column, figures)]
    return Table("", columns, [[row.name, len(row.seeds), *(cell(row, f) for f in figures)] for row in rows])


def _figures_of(rows: Sequence[Row]) -> Sequence[str]:
    return list(rows[0].values) if rows else FIGURES


def write_rows(rows: Sequence[Row], form: str) -> str:
    """The table in a form of `lstr.pipelines.pages.table.WRITERS`, as `lstr evaluate --to` prints it."""
    return WRITERS[form](raw_table(rows) if form == "csv" else table_of(rows))
