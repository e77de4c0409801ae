"""What an evaluation found of one checkpoint or of several, as one JSON document, beside what others report.

Theirs is quoted: the table of LSTR's paper, as far as its figures are at hand.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.labels.label_set import THUMOS_CLASSES
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.actions import FOUND_IOU
from lstr.pipelines.evaluation.scoring import Evaluation

ENDINGS = (".pt", ".pth", ".lstr")

PAPER = "Xu et al., NeurIPS 2021"
TRN = "Xu et al., ICCV 2019, or its repository"
FATS = "Kim et al., 2021, its repository"  # github.com/YHKimGithub/FATSnet, README
IDU = "Eun et al., 2020, their repository"  # github.com/hjeun/idu, README, which runs TFN
LEADERBOARD = "Papers with Code"  # its pages of arXiv 1912.04461 (IDN) and 2011.09158 (PKD)
UNSAID = "not stated"
# Methods of the paper's table. One whose figures could not be checked is left out rather than remembered.
ROWS = ("CDC", "RED", "TRN", "FATS", "IDN", "LAP", "TFN", "LFB", "PKD", "WOAD", "LSTR")

THUMOS: dict[str, Any] = {
    "name": "THUMOS'14",
    "metric": "mAP",
    "rows": [
        {"method": "TRN", "features": "ActivityNet", "value": 47.2, "source": PAPER},
        {"method": "TRN", "features": "Kinetics", "value": 62.1, "source": TRN},
        {"method": "FATS", "features": "ActivityNet", "value": 51.6, "source": FATS},
        {"method": "FATS", "features": "Kinetics", "value": 59.0, "source": FATS},
        {"method": "TFN", "features": UNSAID, "value": 55.7, "source": IDU},
        {"method": "LSTR", "features": "ActivityNet", "value": 65.3, "source": PAPER},
        {"method": "LSTR", "features": "Kinetics", "value": 69.5, "source": PAPER},
    ],
}
TVSERIES: dict[str, Any] = {
    "name": "TVSeries",
    "metric": "mcAP",
    "rows": [
        {"method": "TRN", "features": "ActivityNet", "value": 83.7, "source": TRN},
        {"method": "TRN", "features": "Kinetics", "value": 86.2, "source": TRN},
        {"method": "IDN", "features": UNSAID, "value": 86.1, "source": LEADERBOARD},
        {"method": "TFN", "features": UNSAID, "value": 85.0, "source": IDU},
        {"method": "PKD", "features": UNSAID, "value": 86.4, "source": LEADERBOARD},
        {"method": "LSTR", "features": "ActivityNet", "value": 88.1, "source": PAPER},
        {"method": "LSTR", "features": "Kinetics", "value": 89.1, "source": PAPER},
    ],
}
# Where the document of an evaluation has the figures by which checkpoints are compared
FIGURE_PATHS: Mapping[str, Sequence[str | int]] = {
    "mAP": ("lstr", "mAP"),
    "mcAP": ("lstr", "mcAP"),
    "event F1": ("events", "together", "iou", str(FOUND_IOU), "f1"),
    "instance mAP": ("instances", "mean"),
}
BENCHMARKS = {"thumos14": THUMOS, "tvseries": TVSERIES}


@dataclass(frozen=True)
class Judged:
    """A checkpoint among others: its name, its scores, and everything measured on them (`analysis.analyse`)."""

    name: str
    evaluation: Evaluation
    document: dict[str, Any]


@dataclass(frozen=True)
class Findings:
    """Checkpoints, how far the later ones are ahead of the first, and what others report on the same benchmark."""

    judged: Sequence[Judged]
    comparison: Sequence[dict[str, Any]] = ()
    quoted: dict[str, Any] | None = None
    warnings: Sequence[str] = ()

    @property
    def several(self) -> bool:
        """Whether checkpoints are compared."""
        return len(self.judged) > 1

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` prints: the document of one checkpoint, or all of several; NaN becomes None."""
        result = {**self.judged[0].document}
        if self.several:
            result = {
                "checkpoints": [{"name": one.name, **one.document} for one in self.judged],
                "comparison": list(self.comparison),
            }
        return without_nan({**result, "quoted": self.quoted} if self.quoted else result)


def figure_at(document: Mapping[str, Any], path: Sequence[str | int]) -> float | None:
    """Return a figure of an evaluation; None if it has none."""
    value: Any = document
    for key in path:
        value = value[key]
    return None if value is None or math.isnan(value) else float(value)


def names_of(paths: Sequence[Path]) -> list[str]:
    """A short name for each checkpoint, no two alike: the file's, or its folder's where all files are called the same,
    with as many folders as it takes; else a number."""
    paths = [path.with_suffix("") if path.suffix in ENDINGS else path for path in paths]
    if len({path.name for path in paths}) == 1 < len({path.parent for path in paths}):
        paths = [path.parent for path in paths]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}. {path.name}" for i, path in enumerate(paths, start=1)]


def without_nan(value: Any) -> Any:
    """Return the same with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def quoted_for(loaded: Checkpoint, benchmark: str | None = None) -> dict[str, Any] | None:
    """Return the quoted table of the benchmark that a checkpoint was trained for, None when it is another data set.

    The benchmark is the one named, that of the training preset where the checkpoint records it, or THUMOS'14 where the
    classes are its 20 actions.
    """
    preset = benchmark or str(loaded.extra.get("preset", "")).removesuffix("-published")
    table = BENCHMARKS.get(preset)
    if table is None and {*THUMOS_CLASSES[1:-1]} == {*loaded.classes} - {THUMOS_CLASSES[0], THUMOS_CLASSES[-1]}:
        table = THUMOS
    if table is None:
        return None
    at_hand = {row["method"] for row in table["rows"]}
    return {**table, "quoted": True, "left_out": [method for method in ROWS if method not in at_hand]}
