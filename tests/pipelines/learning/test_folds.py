"""Networks and models learn from every video, and each video is scored by others that have not seen it."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.weights_folder import open_weights
from lstr.metrics.actions import measure_events
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.evaluation.scoring import detect_events, means_of
from lstr.pipelines.evaluation.thresholds import Scored, choose_without_each
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.learn import Learnt
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import Finished
from tests.support.learning import options, run


@pytest.fixture(scope="module")
def all_teach(videos, tmp_path_factory) -> Path:
    """Labels that call no video testing."""
    content = json.loads((videos / "labels.json").read_text())
    for entry in content["database"].values():
        entry["subset"] = "training"
    path = tmp_path_factory.mktemp("labels") / "labels.json"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def taught(videos, all_teach, tmp_path_factory) -> tuple[list, Learnt]:
    return run(replace(options(videos, tmp_path_factory.mktemp("taught") / "drawn.lstr"), labels=str(all_teach)))


@pytest.mark.slow
def test_every_video_teaches_and_is_measured_by_what_lacks_it(taught, all_teach):
    _, result = taught
    model, folder = open_model(result.model), result.model.with_suffix(".learn")
    metrics = model.about["metrics"]
    assert metrics["videos"] == 6 and metrics["folds"] == 3 and set(model.about["videos"].values()) == {"training"}
    assert set(model.about["videos"]) <= set(model.about["seen"]) and "time_prior" in metrics
    folds = open_weights(folder / "weights").folds
    features = open_features(folder / "features")
    assert sorted(folds.values()) == [1, 1, 2, 2, 3, 3]
    by_fold = [sorted(i for i, fold in folds.items() if fold == number) for number in (1, 2, 3)]
    assert model.about["folds"] == by_fold
    labelled = json.loads(all_teach.read_text())["database"].values()
    counts = Counter(one["label"] for video in labelled for one in video["annotations"])
    assert model.about["data"]["subsets"] == {"training": {"videos": 6, "seconds": 30.0, "labels": counts}}
    assert model.about["data"]["files"] == [f"scene_0{n}.mp4" for n in range(6)]
    assert model.card() == Archive(result.model).read("card.md").decode() and "day 1" not in model.card()
    for video_id, fold in folds.items():
        record = features.read_record(video_id)
        assert record["fold"] == fold and record["seen"] == []
    found = []
    for fold in (1, 2, 3):
        others = {i for i, own in folds.items() if own != fold}
        assert set(open_features(folder / "seen" / f"without_{fold}").ids()) == others
        lacking = load(folder / "models" / "flow" / f"without_{fold}" / "checkpoint.pt")
        assert set(lacking.metrics["training_videos"]) == others
        data = read_split(folder / "features", folder / "labels.json", "training")
        held = [video for video in data.videos if folds[video.id] == fold]
        found += [(v, predict(lacking.model, v.features[:]).numpy()) for v in held]
    together = means_of([own for _, own in found], [video.targets for video, _ in found], model.classes)
    assert metrics["lstr"]["mAP"] == pytest.approx(together["mAP"])
    assert model.about["tried"] == [{"model": "flow", "mAP": pytest.approx(together["mAP"])}]
    rows = {row["id"]: row["mAP"] for row in metrics["per_video"]}
    for video, own in found:
        assert rows[video.id] == pytest.approx(means_of([own], [video.targets], model.classes)["mAP"])
    expected, events = decided_by_others(found, data.labels, model.classes), metrics["events"]["together"]
    assert metrics["decided_by_others"] and result.report.is_file()
    assert all(expected["together"][n] == events[n] for n in ("labels", "found", "false_alarms"))


def decided_by_others(found, labels, classes) -> dict:
    """Event metrics of videos with their scores, each decided by thresholds that the others choose."""
    videos = [Scored(rows, labels.videos[video.id].segments) for video, rows in found]
    _, rules = choose_without_each([[one] for one in videos], classes)
    given = [
        detect_events(one.scores, classes, rule.by_class, one.truth) for one, rule in zip(videos, rules, strict=True)
    ]
    return measure_events(given, classes)


@pytest.mark.slow
def test_without_a_recipe_two_networks_and_two_averaged_models(videos, tmp_path):
    """One model of both streams, one of motion alone; the file is enough to detect with."""
    tiny = {"height": "32", "width": "48", "epochs": "1", "draws": "16", "model.d_model": "16", "train.epochs": "1"}
    chosen = options(videos, tmp_path / "m.lstr", algorithm=None, settings=tiny, folds=2)
    result = run(chosen)[1]
    assert [one["model"] for one in result.about["tried"]] == ["grey+difference", "difference", "average"]
    seen = tmp_path / "m.learn" / "seen"
    assert {path.name for path in seen.iterdir()} == {"all", "without_1", "without_2"}
    for folder in (tmp_path / "m.learn" / "features", *seen.iterdir()):
        assert open_features(folder).recipe.streams == ("grey", "difference")
    content = [torch.load(path, weights_only=True) for path in (tmp_path / "m.learn" / "weights").rglob("*.pth")]
    assert len(content) == 6
    weights = {part.weights for part in open_model(result.model).recipe.parts.values()}
    assert weights == {"weights"}, "of this training, which started from those of ImageNet"
    video = next((videos / "videos").rglob("*.mp4"))
    detected = list(detect_sources([video], DetectOptions(result.model)))
    assert isinstance(detected[-1], Finished)
