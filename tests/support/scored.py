"""An evaluation of videos of ten seconds with correct, missed and false detections."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from lstr.chunk import CLOCK
from lstr.kinds import configure
from lstr.labels.label_set import Labels, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.pipelines.evaluation.analysis import analyse, resample
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
    "a": [(1, 3, "kick"), (4, 4.5, "kick")],  # correct, false; the other class is missed
    # correct, ignored because it is ambiguous, and three false ones
    "b": [(2, 4, "kick"), (8, 9, HOSTILE), (5, 6, HOSTILE), (6.5, 7, HOSTILE), (0, 1, "kick")],
    "c": [],
}


def make_evaluation(videos: dict[str, Path] | None = None, name: str = "run") -> Evaluation:
    """Return the evaluation, with files of `videos` by id."""
    database = {i: VideoLabels("testing", CHUNKS / 4, tuple(segments)) for i, segments in LABELS.items()}
    scores = [np.full((CHUNKS, len(CLASSES)), 0.1, np.float32) for _ in LABELS]
    for rows, detected in zip(scores, DETECTED.values(), strict=True):
        for start, end, label in detected:
            rows[int(start * 4) : int(end * 4), CLASSES.index(label)] = 0.9
    records = {i: {"source": str(path), "bytes": path.stat().st_size} for i, path in (videos or {}).items()}
    evaluation = evaluation_of(CLASSES, database, scores, name, records)
    evaluation.document.update(analyse(evaluation, resample(evaluation, 0)))
    return evaluation


def evaluation_of(
    classes: tuple[str, ...],
    database: dict[str, VideoLabels],
    scores: list[np.ndarray],
    name: str = "run",
    records: dict | None = None,
    about: dict | None = None,
) -> Evaluation:
    """Return the evaluation of scores, with one array for each testing video."""
    testing = {i: video for i, video in database.items() if video.subset == "testing"}
    labelled = [
        LabelledVideo(i, np.zeros((len(rows), 0)), targets(video, classes, len(rows)))
        for (i, video), rows in zip(testing.items(), scores, strict=True)
    ]
    folder = SimpleNamespace(recipe=None, clock=CLOCK, path=Path("features"), read_record=(records or {}).get)
    split = Split(folder, Labels(classes, database), labelled)
    document = {
        **pooled_metrics(split, {"lstr": scores}),
        **{"convention": "corrected", "mode": "batch", "videos": len(testing), "chunks": sum(map(len, scores))},
        "checkpoint": f"{name}.pt",
    }
    entries = {"path": Path(name), "classes": classes, "extra": {}, "about": about or {}, "recipe": None}
    loaded = SimpleNamespace(model=SimpleNamespace(scoring_rule=LSTR_RULE), config=configure(), **entries)
    return Evaluation(loaded, split, scores, document, name=name)
