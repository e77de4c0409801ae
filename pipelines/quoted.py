"""What others report on the benchmarks, quoted: the paper's table as far as its figures are at hand."""

from lstr.checkpoint import THUMOS_CLASSES, Checkpoint

PAPER = "Xu et al., NeurIPS 2021"
TRN = "Xu et al., ICCV 2019, or its repository"
NOT_AT_HAND = ("CDC", "RED", "FATS", "IDN", "LAP", "TFN", "LFB", "PKD", "WOAD")
"""Rows of the paper's table whose figures could not be checked, and are left out rather than remembered."""

THUMOS = {
    "name": "THUMOS'14",
    "metric": "mAP",
    "rows": [
        {"method": "TRN", "features": "ActivityNet", "value": 47.2, "source": PAPER},
        {"method": "TRN", "features": "Kinetics", "value": 62.1, "source": TRN},
        {"method": "LSTR", "features": "ActivityNet", "value": 65.3, "source": PAPER},
        {"method": "LSTR", "features": "Kinetics", "value": 69.5, "source": PAPER},
    ],
}
TVSERIES = {
    "name": "TVSeries",
    "metric": "mcAP",
    "rows": [
        {"method": "TRN", "features": "ActivityNet", "value": 83.7, "source": TRN},
        {"method": "TRN", "features": "Kinetics", "value": 86.2, "source": TRN},
        {"method": "LSTR", "features": "ActivityNet", "value": 88.1, "source": PAPER},
        {"method": "LSTR", "features": "Kinetics", "value": 89.1, "source": PAPER},
    ],
}
BENCHMARKS = {"thumos14": THUMOS, "tvseries": TVSERIES}


def quoted_for(loaded: Checkpoint, benchmark: str | None = None) -> dict | None:
    """The quoted table of the benchmark that a checkpoint was trained for, None when it is another data set.

    The benchmark is the one named, that of the training preset where the checkpoint records it, or THUMOS'14 where the
    classes are its 20 actions.
    """
    preset = benchmark or str(loaded.extra.get("preset", "")).removesuffix("-published")
    table = BENCHMARKS.get(preset)
    if table is None and {*THUMOS_CLASSES[1:-1]} == {*loaded.classes} - {THUMOS_CLASSES[0], THUMOS_CLASSES[-1]}:
        table = THUMOS
    return None if table is None else {**table, "quoted": True, "left_out": list(NOT_AT_HAND)}
