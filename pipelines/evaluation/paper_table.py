"""Several checkpoints as one table for a paper; runs that differ only in their seed are one row."""

import json
import os
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.ranked import IOUS, OFFSETS
from lstr.metrics.segmentation import OVERLAPS
from lstr.pipelines.evaluation.findings import FIGURE_PATHS, Judged, figure_at
from lstr.pipelines.pages.table import WRITERS, Cell, Column, Table

FIGURES = ("mAP", "mcAP", "event F1")
# The figures of each table, and where the document of an evaluation has them
TABLES: Mapping[str, Mapping[str, Sequence[str | int]]] = {
    "frames": {name: FIGURE_PATHS[name] for name in FIGURES},
    "instances": {
        **{f"mAP@{least:g}": ("instances", "mAP", place) for place, least in enumerate(IOUS)},
        "instance mAP": FIGURE_PATHS["instance mAP"],
    },
    "starts": {
        **{f"start mAP@{offset} s": ("starts", "mAP", place) for place, offset in enumerate(OFFSETS)},
        "start mAP": ("starts", "mean"),
    },
    "segments": {
        **{f"F1@{100 * least:g}": ("segments", "F1", place) for place, least in enumerate(OVERLAPS)},
        "edit score": ("segments", "edit"),
    },
}
# Settings of a training in which the runs of one row may differ.
OF_A_RUN = ("seed", "save_seconds")
# How the common beginning of the names of several runs ends, which is not part of a name.
OF_A_NAME = re.compile(r"[\W_]+(?:seed|run|s|r)?[\W_]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """Runs of one training: their name, their seeds, and each figure of each run, None if it has none."""

    name: str
    seeds: Sequence[int | None]
    values: Mapping[str, Sequence[float | None]]

    def mean_and_deviation(self, figure: str) -> tuple[float | None, float | None]:
        """Return the mean, None if a run has no such figure, and the sample deviation, None for a single run."""
        known = [value for value in self.values[figure] if value is not None]
        if len(known) < len(self.seeds):
            return None, None
        return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def repeated(judged: Sequence[Judged]) -> dict[int, int]:
    """Return which checkpoint, by its place, repeats an earlier one: the same seed, features and scores."""
    found: dict[int, int] = {}
    for at, entry in enumerate(judged):
        for i, other in enumerate(judged[:at]):
            is_same = (_features_of(entry), _seed(entry)) == (_features_of(other), _seed(other))
            if (
                i not in found
                and is_same
                and all(map(np.array_equal, entry.evaluation.scores, other.evaluation.scores))
            ):
                found[at] = i
                break
    return found


def rows_of(judged: Sequence[Judged], table: str = "frames") -> list[Row]:
    """Return a row per training, in the order of the checkpoints, with the figures of a table of TABLES.

    Runs of one row were trained alike on the same labels, are scored on the same features and have different seeds: a
    second checkpoint of a seed, such as best.pt next to checkpoint.pt, has its own row, and so has a file that states
    no training. Leave out what is `repeated`, which would be such a row.
    """
    together: dict[tuple[str, str, int], list[Judged]] = {}
    seen: Counter[tuple[str, str, int | None]] = Counter()
    for at, entry in enumerate(judged):
        run = (_training_of(entry.evaluation.loaded) or f"#{at}", _features_of(entry), _seed(entry))
        together.setdefault((*run[:2], seen[run]), []).append(entry)
        seen[run] += 1
    rows = []
    for runs in together.values():
        name = runs[0].name
        if len(runs) > 1:
            name = OF_A_NAME.sub("", os.path.commonprefix([entry.name for entry in runs])) or name
        values = {figure: [figure_at(run.document, path) for run in runs] for figure, path in TABLES[table].items()}
        rows.append(Row(name, list(map(_seed, runs)), values))
    return rows


def _seed(entry: Judged) -> int | None:
    train = entry.evaluation.loaded.extra.get("train")
    return train.get("seed") if isinstance(train, Mapping) else None


def _features_of(entry: Judged) -> str:
    """Return where the features are that a checkpoint was scored on."""
    return str(entry.evaluation.split.folder.path)


def _training_of(loaded: Checkpoint) -> str:
    """Return what identifies a training apart from its seed; empty if the file does not state it, or no seed.

    Features are identified by their recipe; those without one by their folder.
    """
    train, data = loaded.extra.get("train"), loaded.extra.get("data")
    if not isinstance(train, Mapping) or train.get("seed") is None or not isinstance(data, Mapping):
        return ""
    facts = ("recipe", "classes", "videos_sha256", "labels_sha256")
    about: dict[str, Any] = {
        "model": loaded.config.to_dict(),
        "train": {name: value for name, value in train.items() if name not in OF_A_RUN},
        "data": {name: data.get(name) for name in (facts if data.get("recipe") else (*facts, "features"))},
    }
    return json.dumps(about, sort_keys=True, default=str)


def write_rows(rows: Sequence[Row], form: str) -> str:
    """Return the table in a form of `lstr.pipelines.pages.table.WRITERS`, as `lstr evaluate --to` prints it.

    CSV, for a spreadsheet, has shares with all their digits and the seeds; other forms have per cent with one digit.
    """
    figures = list(rows[0].values) if rows else list(FIGURES)
    lines: list[list[Cell]] = []
    if form == "csv":
        columns = [Column("checkpoint", is_text=True), Column("runs"), Column("seeds", is_text=True)]
        columns += [Column(f"{figure}{end}") for figure in figures for end in ("", " deviation")]
        for row in rows:
            seeds = " ".join(str(seed) for seed in row.seeds if seed is not None)
            values = [value for figure in figures for value in row.mean_and_deviation(figure)]
            lines.append([row.name, len(row.seeds), seeds, *values])
        return WRITERS[form](Table("", columns, lines))
    for row in rows:
        cells: list[Cell] = [row.name, len(row.seeds)]
        for mean, deviation in map(row.mean_and_deviation, figures):
            spread = "" if deviation is None else f" ± {100 * deviation:.1f}"
            cells.append(None if mean is None else f"{100 * mean:.1f}{spread}")
        lines.append(cells)
    return WRITERS[form](Table("", [Column("checkpoint", is_text=True), *map(Column, ("runs", *figures))], lines))
