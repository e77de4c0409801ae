"""A learnt 'tell it or not' against the hysteresis rule, both chosen out of fold: tell.json.

python benchmarks/tell.py SHARED/data --work WORK [--sets urfall thumos] [--seeds 3]

Scores are of models that lacked each video: `small` on features of networks as ImageNet has taught them, three folds of
UT-Interaction, UR Fall and the demo's drawings; and an RNN on synthetic features over THUMOS'14's labels, trained on
its validation set (thumos_synthetic.py), with every fourth test video, in five groups, and a smaller grid of thresholds
for both. Rule, teller and the teller's thresholds that decide on a group of videos are chosen on the others
(`evaluation.telling`), as `lstr learn` does.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from edges import scores_of
from held_out import HeldOut, Scores
from suggestions import features_of

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, THUMOS_CLASSES, read_labels, runs
from lstr.labels.segment import Segment
from lstr.pipelines.demo.demo import SCENES
from lstr.pipelines.demo.scenes import rendering
from lstr.pipelines.evaluation.telling import TOLD_GRID, choose_told
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.learning.deciding import GROUPS
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.thresholds.by_actions import GRID, LEVELS, Grid, Scored, choose_without_each

RECORD = Path(__file__).resolve().parent / "tell.json"
OF_VIDEOS = ("ut_interaction", "urfall", "demo")
THUMOS, THUMOS_GROUPS, THUMOS_EVERY = "thumos", 5, 4
THUMOS_GRID = Grid((LEVELS[::2], (0.7,), (0.0, 0.5, 1.0), (0.0, 0.5)))


def scored_videos(name: str, data: Path, work: Path, seed: int) -> tuple[dict[str, Scored], tuple[str, ...]]:
    """The videos of a set by id, scored by models that lacked them, and the classes; scores are kept in the work."""
    if name == THUMOS:
        return scored_thumos(data, work, seed)
    if name == "demo":
        data = work / "demo-data"
        for _ in rendering(data / name, SCENES):
            pass
    features, labels = features_of(name, data, work)
    held = HeldOut(open_features(features), read_labels(labels), "small", work / f"{name}-kept")
    scores = kept(work / f"{name}-{seed}-scores.npz", lambda: scores_of(held, 0, seed))
    return {i: Scored(rows, held.labels.videos[i].segments) for i, rows in scores.items()}, held.labels.classes


def scored_thumos(data: Path, work: Path, seed: int) -> tuple[dict[str, Scored], tuple[str, ...]]:
    """The test videos of THUMOS'14 with synthetic features."""
    from thumos_synthetic import SMALL, Generator, make_videos, settings, train_row
    from thumos_synthetic import scores_of as scores_by

    videos = make_videos(data / "thumos14", Generator(rgb=SMALL.rgb, flow=SMALL.flow))

    def scores() -> Scores:
        model, _ = train_row(*settings("rnn", seed, SMALL), SMALL.patience, videos, "cpu", 1)
        return {v.id: rows for v, rows in zip(videos.testing, scores_by(model, videos.testing), strict=True)}

    truth = {video.id: tuple(segments_of(video.targets)) for video in videos.testing}
    found = kept(work / f"{THUMOS}-{seed}-scores.npz", scores)
    taken = sorted(found)[::THUMOS_EVERY]
    return {i: Scored(found[i], truth[i]) for i in taken}, THUMOS_CLASSES


def segments_of(targets: np.ndarray) -> Iterator[Segment]:
    """Labels of per-chunk targets."""
    for column, label in enumerate(THUMOS_CLASSES):
        if label != BACKGROUND:
            yield from (Segment(a / 4, b / 4, label) for a, b in runs(targets[:, column] > 0))


def kept(path: Path, make) -> Scores:
    """Scores by video id, made where the file is not there."""
    if not path.exists():
        np.savez(path, **{f"of {i}": rows for i, rows in make().items()})
    with np.load(path) as file:
        return {name.removeprefix("of "): file[name] for name in file.files}


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/, urfall/ and thumos14/")
    parser.add_argument("--work", type=Path, required=True, help="as of suggestions.py, whose features are taken")
    parser.add_argument("--sets", nargs="+", default=[*OF_VIDEOS, THUMOS], choices=[*OF_VIDEOS, THUMOS])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.sets:
        found = []
        for seed in range(options.seeds):
            videos, classes = scored_videos(name, options.data, options.work, seed)
            n, grids = (THUMOS_GROUPS, (THUMOS_GRID, THUMOS_GRID)) if name == THUMOS else (GROUPS, (GRID, TOLD_GRID))
            groups = [[*videos.values()][at::n] for at in range(min(n, len(videos)))]
            rule, without = choose_without_each(groups, classes, grids[0])
            told = choose_told(groups, classes, rule.by_class, [one.by_class for one in without], grid=grids[1])
            found.append({"seed": seed, **told.to_dict()})
            print(name, found[-1], flush=True)
        actions = {*classes} - {BACKGROUND, AMBIGUOUS}
        about = {"videos": len(videos), "chunks": sum(len(one.scores) for one in videos.values())}
        about["rules_tried"] = len(grids[0].rules)
        record[name] = {**about, "actions": len(actions), "seeds": found}
        write_json(RECORD, record | about_machine())


if __name__ == "__main__":
    main()
