"""What others report on the benchmarks, quoted: the paper's table as far as its figures are at hand."""

from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.labels.label_set import THUMOS_CLASSES

PAPER = "Xu et al., NeurIPS 2021"
TRN = "Xu et al., ICCV 2019, or its repository"
FATS = "Kim et al., 2021, its repository"  # github.com/YHKimGithub/FATSnet, README
IDU = "Eun et al., 2020, their repository"  # github.com/hjeun/idu, README, which runs TFN
LEADERBOARD = "Papers with Code"  # its pages of arXiv 1912.04461 (IDN) and 2011.09158 (PKD)
UNSAID = "not stated"
ROWS = ("CDC", "RED", "TRN", "FATS", "IDN", "LAP", "TFN", "LFB", "PKD", "WOAD", "LSTR")
"""Methods of the paper's table. One whose figures could not be checked is left out rather than remembered."""

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
BENCHMARKS = {"thumos14": THUMOS, "tvseries": TVSERIES}


def quoted_for(loaded: Checkpoint, benchmark: str | None = None) -> dict[str, Any] | None:
    """The quoted table of the benchmark that a checkpoint was trained for, None when it is another data set.

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
