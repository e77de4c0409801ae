"""A checkpoint's thresholds, chosen on the videos of a split, and what they give there."""

from collections.abc import Iterator
from typing import Any

from lstr.batch import predict
from lstr.checkpoints.loaded import Checkpoint
from lstr.metrics.actions import measure_events
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.evaluation.analysis import detect_events, labelled_segments
from lstr.pipelines.evaluation.operating_curves import at_level, choose_levels, sweep
from lstr.pipelines.progress import Finished, Progress
from lstr.pipelines.thresholds.by_chunks import choose_thresholds, scores_by_class
from lstr.pipelines.thresholds.stored import write_thresholds
from lstr.timeline import DEFAULT


def choose_for_checkpoint(
    loaded: Checkpoint, split: Split, false_alarms: float | None = None
) -> Iterator[Progress | Finished[dict[str, Any]]]:
    """Choose a checkpoint's thresholds on the videos of a split and write them into it; what they give, as JSON.

    `checkpoint`: the file that holds them now. `thresholds`: `on` and `off` of each class, its F1 over chunks and that
    of the default thresholds (`before`). `events`: what `lstr.metrics.actions.measure_events` says of them, and
    `default_events` of the default ones. Raises CheckpointError.

    With `false_alarms` those with which most actions are found for at most so many false alarms an hour of all classes
    together (see `operating_curves.choose_levels`); else those of the highest F1 of each class.
    """
    split = split.narrowed(loaded.config)
    scores = []
    for done, video in enumerate(split.videos):
        yield Progress("choose thresholds", done, len(split.videos))
        scores.append(predict(loaded.model, video.features[:]).numpy())
    yield Progress("choose thresholds", len(scores), len(split.videos))
    targets, truth = [v.targets for v in split.videos], [labelled_segments(split, v) for v in split.videos]
    if false_alarms is None:
        found = choose_thresholds(scores, targets, loaded.classes)
    else:
        levels = choose_levels(sweep(scores, truth, loaded.classes), false_alarms)
        found = {label: at_level(on) for label, on in levels.items()}
    events, default_events = (
        measure_events(
            [detect_events(rows, loaded.classes, rules, actions) for rows, actions in zip(scores, truth, strict=True)],
            loaded.classes,
        )
        for rules in (found, DEFAULT)
    )
    by_class = scores_by_class(found, scores, targets, loaded.classes)
    document = {"checkpoint": str(write_thresholds(loaded, found)), "thresholds": by_class, "events": events}
    yield Finished({**document, "default_events": default_events})
