"""Every video teaches, and each is measured by what lacks it: models of folds, compared, averaged and packed."""

import json
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from lstr.average import mean_of
from lstr.batch import predict
from lstr.checkpoints.checkpoint import load
from lstr.extractors.weights.archive import Archive
from lstr.metrics.actions import measure_events
from lstr.pipelines.detection.job import DetectOptions, detect_sources
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.scoring import means_of
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.job import Learnt, plan
from lstr.pipelines.learning.plan import Compared
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import Finished, Notice
from lstr.pipelines.thresholds.by_actions import Scored, choose_without_each
from lstr.pipelines.weights.folder import open_weights
from tests.support.learning import SMALL, options, run

STREAMS_TRAINED = ("grey", "difference")


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
    events, result = taught
    model, folder = open_model(result.model), result.model.with_suffix(".learn")
    metrics, split = model.about["metrics"], model.about["split"]
    assert metrics["videos"] == 6 and metrics["folds"] == 3 and set(model.about["videos"].values()) == {"training"}
    assert split == "measured on models that each lacked the video, in 3 folds of all 6 videos"
    assert set(model.about["videos"]) <= set(model.about["seen"]) and "time_prior" in metrics
    folds = open_weights(folder / "weights").folds
    features = open_features(folder / "features")
    assert sorted(folds.values()) == [1, 1, 2, 2, 3, 3]
    by_fold = [sorted(i for i, fold in folds.items() if fold == number) for number in (1, 2, 3)]
    assert model.about["folds"] == by_fold
    data, labelled = model.about["data"], json.loads(all_teach.read_text())["database"].values()
    counts = Counter(one["label"] for video in labelled for one in video["annotations"])
    assert data["subsets"] == {"training": {"videos": 6, "seconds": 30.0, "labels": counts}}
    assert data["files"] == [f"scene_0{n}.mp4" for n in range(6)]
    card = model.card()
    assert card == Archive(result.model).read("card.md").decode() and "day 1" not in card
    assert (
        "| `training` | 6 | 0.5 |" in card
        and f"- Scored by what lacked fold 3: `{by_fold[2][0].split('/')[1]}`" in card
    )
    for video_id, fold in folds.items():
        record = features.read_record(video_id)
        assert record["fold"] == fold and record["seen"] == []
    rows, seen = {row["id"]: row["mAP"] for row in metrics["per_video"]}, folder / "seen"
    scored = {"rnn-small": [], "rnn-small-seen": [], "rnn-small-2": [], "rnn-small-seen-2": []}
    for fold in (1, 2, 3):
        others = {i for i, own in folds.items() if own != fold}
        assert set(open_features(seen / f"without_{fold}").ids()) == others
        for name, found in scored.items():
            if (file := folder / "models" / name / f"without_{fold}" / "run" / "checkpoint.pt").exists():
                lacking = load(file)
                assert set(lacking.metrics["training_videos"]) == others
                data = read_split(folder / "features", folder / "labels.json", "training").narrowed(lacking.config)
                held = [video for video in data.videos if folds[video.id] == fold]
                found += [(v, predict(lacking.model, v.features[:]).numpy()) for v in held]
    tried = ["rnn-small-seen", "rnn-small", "rnn-small, average over folds", "average of rnn-small-seen and rnn-small"]
    found_mAP = {one["model"]: one["mAP"] for one in model.about["tried"]}
    *compared, twice = found_mAP
    best = twice.removesuffix(", by two seeds")
    assert compared == tried and best in tried and model.about["taken"] in (best, twice)
    assert [event.taken for event in events if isinstance(event, Compared)] == [model.about["taken"]]
    for name in ("rnn-small-seen", "rnn-small"):
        scored[f"{name}, by two seeds"] = [
            (video, mean_of([own, again]))
            for (video, own), (_, again) in zip(scored[name], scored.pop(f"{name}-2"), strict=False)
        ]
    for name, found in scored.items():
        if found and name in found_mAP:
            together = means_of([own for _, own in found], [video.targets for video, _ in found], model.classes)
            assert found_mAP[name] == pytest.approx(together["mAP"])
        for video, own in found if model.about["taken"] == name else ():
            assert rows[video.id] == pytest.approx(means_of([own], [video.targets], model.classes)["mAP"])
        if model.about["taken"] == name:
            together = metrics["events"]["together"]
            expected = decided_by_others(found, data.labels, model.classes)["together"]
            assert all(expected[n] == together[n] for n in ("labels", "found", "false_alarms"))
    assert model.about["metrics"]["lstr"]["mAP"] == pytest.approx(found_mAP[model.about["taken"]])
    card = Archive(result.model).read("card.md").decode()
    assert metrics["decided_by_others"] and "thresholds that were chosen on the other videos" in card
    assert "thresholds that were chosen on the other videos" in result.report.read_text()
    assert "has learnt from all of its videos" in card and "in 3 folds, each of the 6 videos" in card
    assert "by feature networks that have not learnt from it" in result.report.read_text()


def decided_by_others(found, labels, classes) -> dict:
    """Event metrics of videos with their scores, each decided by thresholds that the others choose."""
    videos = [Scored(rows, labels.videos[video.id].segments) for video, rows in found]
    _, rules = choose_without_each([[one] for one in videos], classes)
    given = [
        detect_events(one.scores, classes, rule.by_class, one.truth) for one, rule in zip(videos, rules, strict=True)
    ]
    return measure_events(given, classes)


@pytest.mark.slow
def test_without_a_recipe_pretrained_networks_see_several_streams(videos, tmp_path):
    """Each stream is tried alone too; whatever is taken, the file is enough to detect with.

    What stays as it begins is seen the same with and without a fold, so it is computed once.
    """
    tiny = {"height": "32", "width": "48", "epochs": "1", "draws": "16", "model.d_model": "16", "train.epochs": "1"}
    chosen = options(videos, tmp_path / "m.lstr", algorithm=None, settings=tiny, folds=2)
    result = run(chosen)[1]
    tried = [one["model"] for one in result.about["tried"]]
    assert {"rnn-small", "rnn-small-grey", "rnn-small-difference", "rnn-small-change", "average over streams"} <= {
        *tried
    }
    seen = tmp_path / "m.learn" / "seen"
    assert {path.name for path in seen.iterdir()} == {"all", "without_1", "without_2"}
    for folder in (tmp_path / "m.learn" / "features", *seen.iterdir()):
        recipe = open_features(folder).recipe
        assert recipe.streams == (("grey", "difference", "change") if folder.name == "features" else STREAMS_TRAINED)
    weights = {part.weights for part in open_model(result.model).recipe.parts.values()}
    assert weights == {"weights"}, "of this training, which began with ImageNet's"
    video = next((videos / "videos").rglob("*.mp4"))
    detected = list(detect_sources([video], DetectOptions(result.model)))
    assert isinstance(detected[-1], Finished)


@pytest.fixture
def planned_by(videos, all_teach, tmp_path):
    """A function from a time and a number of folds to what planning yields, where a step of a network takes 0.24 s."""

    def planned(seconds: float, folds: int | None = None) -> list:
        with (
            patch("lstr.pipelines.learning.pace.measure_training", return_value=({"flow": 0.01}, 1)),
            patch("lstr.pipelines.learning.pace.measure_chunks", return_value=0.01),
            patch("lstr.pipelines.learning.pace.perf_counter", side_effect=count(step=0.125)),
            patch("lstr.pipelines.learning.pace.process_time", side_effect=count(step=0.125)),
        ):
            settings = {**SMALL, "epochs": "100", "draws": "48"}
            chosen = options(videos, tmp_path / "x", settings=settings, seconds=seconds, folds=folds)
            return list(plan(replace(chosen, labels=str(all_teach))))

    return planned


def test_a_time_too_short_for_folds_is_measured_on_one_or_holds_videos_out(planned_by):
    """Unless folds are asked for, or the time is enough: four networks of 48 s each, two, or one."""
    asked = ((600.0, None), (110.0, None), (60.0, None), (60.0, 3))
    planned = {key: planned_by(*key) for key in asked}
    plans = {key: events[-1].plan for key, events in planned.items()}
    assert [(one.folds, one.measured) for one in plans.values()] == [(3, 3), (3, 1), (0, 0), (3, 3)]
    assert plans[60.0, 3].epochs["flow"] < 66
    assert plans[110.0, None].split.startswith("measured on 2 of 6 videos (day 1/")
    told = [[e.text for e in events if isinstance(e, Notice) and "So " in e.text] for events in planned.values()]
    assert [len(texts) for texts in told] == [0, 1, 1, 0]
    assert "all videos are learnt from" in told[1][0] and "held out" in told[2][0]


@pytest.mark.slow
def test_one_fold_measures_what_has_learnt_from_all(videos, all_teach, tmp_path):
    settings = {**SMALL, "epochs": "2", "draws": "48"}
    chosen = options(videos, tmp_path / "m.lstr", settings=settings, seconds=360.0)
    chosen = replace(chosen, labels=str(all_teach))
    with patch("lstr.pipelines.learning.pace.measure_training", return_value=({"flow": 1.0}, 1)):
        result = run(chosen)[1]
    model, folder = open_model(result.model), tmp_path / "m.learn"
    kept = json.loads((folder / "plan.json").read_text())["plan"]
    assert (kept["folds"], kept["measured"]) == (3, 1)
    folds = open_weights(folder / "weights").folds
    assert sorted(folds.values()) == [1, 1] and {*folds} < {*model.about["seen"]}
    metrics = model.about["metrics"]
    assert {row["id"] for row in metrics["per_video"]} == set(folds) and metrics["folds"] == 1
    assert set(model.about["videos"].values()) == {"training"} and len(model.about["videos"]) == 6
    name = kept["candidates"][0]
    runs = {run.name: load(run / "run" / "checkpoint.pt") for run in (folder / "models" / name).iterdir()}
    assert set(runs) == {"all", "without_1"} and len(runs["all"].metrics["training_videos"]) == 6
    assert not set(runs["without_1"].metrics["training_videos"]) & set(folds)
    card = Archive(result.model).read("card.md").decode()
    assert "each of the 2 videos was scored by a model" in card and "in 1 folds" not in card
    assert "in 1 folds" not in result.report.read_text()


@pytest.mark.slow
def test_in_a_short_time_one_network_is_trained_well_rather_than_two_badly(videos, all_teach, tmp_path):
    def planned(seconds: float | None):
        def training(preset, configs, *others):
            return {stream: 0.05 for stream, config in configs.items() if config.epochs}, 1

        with (
            patch("lstr.pipelines.learning.pace.measure_training", training),
            patch("lstr.pipelines.learning.pace.measure_chunks", return_value=0.001),
            patch("lstr.pipelines.learning.pace.measure_model", return_value=1.0),
        ):
            settings = {"height": "32", "width": "48", "epochs": "20", "draws": "100"}
            chosen = options(videos, tmp_path / "x", algorithm=None, settings=settings, seconds=seconds, folds=0)
            return list(plan(replace(chosen, labels=str(all_teach))))[-1].plan

    two = planned(None)
    networks = sum(two.epochs.values()) * two.draws * 0.05
    others = 1.2 * (two.seconds - networks)
    assert two.recipe == "pretrained" and planned(others + 1.3 * networks).epochs == two.epochs
    assert planned(others + 1.2 * 0.8 * networks).recipe == "pretrained"
    one = planned(others + 1.2 * 0.5 * networks)
    assert one.recipe == "motion" and one.epochs["difference"] > 0.9 * two.epochs["difference"]
    assert planned(others + 1.2 * 0.2 * networks).recipe == "motion", "nothing less can be learnt"
