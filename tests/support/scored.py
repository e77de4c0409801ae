"""An evaluation of plain videos of ten seconds, with actions that were found, missed and detected falsely."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from lstr.chunk import CLOCK
from lstr.kinds import configure
from lstr.labels.label_set import Labels, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.pipelines.evaluation.analysis import Findings, analyse, resample
from lstr.pipelines.evaluation.report import write_evaluation
from lstr.pipelines.evaluation.scoring import Evaluation, pooled_metrics
from lstr.pipelines.features.dataset import LabelledVideo, Split
from tests.support.browser import HOSTILE

CLASSES = ("Background", "kick", HOSTILE, "Ambiguous")
CHUNKS = 40
LABELS = {
    "a": [Segment(1, 3, "kick"), Segment(5, 6, HOSTILE)],
    "b": [Segment(2, 4, "kick"), Segment(8, 9, "Ambiguous")],
    "c": [],
}
DETECTED = {
    "a": [(1, 3, "kick"), (4, 4.5, "kick")],  # one found, one false; the other class is missed
    "b": [
        (2, 4, "kick"),
        (8, 9, HOSTILE),
        (5, 6, HOSTILE),
        (6.5, 7, HOSTILE),
        (0, 1, "kick"),
    ],  # one left out, three false
    "c": [],
}
ERRORS = [
    ("b", "false alarm", "kick", 0.0),
    ("b", "false alarm", HOSTILE, 5.0),
    ("b", "false alarm", HOSTILE, 6.5),
    ("a", "false alarm", "kick", 4.0),
    ("a", "missed", HOSTILE, 5.0),
]
"""In the order of the page: the video with most errors first"""


def make_evaluation(videos: dict[str, Path] | None = None, copies: int = 1, name: str = "run") -> Evaluation:
    """The evaluation; `videos` are the files of ids, and `copies` how many times there is each id."""
    ids = {f"{i}{k or ''}": i for k in range(copies) for i in LABELS}
    database = {i: VideoLabels("testing", CHUNKS / 4, tuple(LABELS[of])) for i, of in ids.items()}
    scores = [np.full((CHUNKS, len(CLASSES)), 0.1, np.float32) for _ in ids]
    for rows, of in zip(scores, ids.values(), strict=True):
        for start, end, label in DETECTED[of]:
            rows[int(start * 4) : int(end * 4), CLASSES.index(label)] = 0.9
    records = {i: {"source": str(path), "bytes": path.stat().st_size} for i, path in (videos or {}).items()}
    made = evaluation_of(CLASSES, database, scores, name, records)
    made.document.update(analyse(made, resample(made, 0)))
    return made


def evaluation_of(
    classes: tuple[str, ...],
    database: dict[str, VideoLabels],
    scores: list[np.ndarray],
    name: str = "run",
    records: dict | None = None,
    about: dict | None = None,
) -> Evaluation:
    """The evaluation of scores, one array a video that is for testing."""
    tested = {i: video for i, video in database.items() if video.subset == "testing"}
    shown = [
        LabelledVideo(i, np.zeros((len(rows), 0)), targets(video, classes, len(rows)))
        for (i, video), rows in zip(tested.items(), scores, strict=True)
    ]
    folder = SimpleNamespace(recipe=None, clock=CLOCK, path=Path("features"), read_record=(records or {}).get)
    split = Split(folder, Labels(classes, database), shown)
    document = {
        **pooled_metrics(split, {"lstr": scores}),
        **{"convention": "corrected", "mode": "batch", "videos": len(tested), "chunks": sum(map(len, scores))},
        "checkpoint": f"{name}.pt",
    }
    loaded = SimpleNamespace(
        model=SimpleNamespace(scoring_rule=LSTR_RULE),
        config=configure(),
        path=Path(name),
        classes=classes,
        extra={},
        about=about or {},
        recipe=None,
    )
    return Evaluation(loaded, split, scores, document, name=name)


def page_of(folder: Path, *entries: Evaluation) -> Path:
    """The page of an evaluation in a folder."""
    return write_evaluation(
        folder, Findings(entries, [{m: {"difference": 0.0} for m in ("mAP", "mcAP")}] * (len(entries) - 1))
    )
