"""From labelled videos to one file, whole, and the same file however often it is stopped on the way."""

import json
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import LabelsError, OutputError
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.weights_folder import open_weights
from lstr.metrics.actions import measure_events
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.evaluation.chosen_thresholds import SINGLE_RECORDING
from lstr.pipelines.evaluation.scoring import detect_events, means_of
from lstr.pipelines.evaluation.thresholds import Scored, choose_without_each
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.options import IMAGE_SETTINGS, choose_features, initial_recipe, settings_of_networks
from lstr.pipelines.learning.plan import StepProgress, Workspace
from lstr.pipelines.learning.preparation import Learning, plan
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import Failed, Finished, Notice, result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.pipelines.training.finetune import FinetuneOptions, finetune
from lstr.pipelines.training.recogniser import settle
from tests.support.learning import SMALL, options, run


@pytest.fixture(scope="module")
def learnt(videos, tmp_path_factory) -> tuple[list, Learnt]:
    return run(options(videos, tmp_path_factory.mktemp("learnt") / "drawn.lstr"))


def until(step: str, chosen) -> list:
    """The events of a learning up to the progress of a step."""
    seen: list = []
    with closing(learn(chosen)) as events:
        for event in events:
            seen.append(event)
            if isinstance(event, StepProgress) and event.step.name.startswith(step) and event.done:
                break
    return seen


def changed_labels(videos, tmp_path, change) -> str:
    content = json.loads((videos / "labels.json").read_text())
    change(content["database"])
    (tmp_path / "labels.json").write_text(json.dumps(content))
    return str(tmp_path / "labels.json")


def learnt_for_an_hour(result: Learnt) -> Learnt:
    events = {**result.about["metrics"]["events"], "hours": 1.0}
    return replace(result, about={**result.about, "metrics": {**result.about["metrics"], "events": events}})


@pytest.mark.long
def test_one_file_has_all_that_detection_needs(videos, learnt):
    events, result = learnt
    progress = [event for event in events if isinstance(event, StepProgress)]
    planned = next(event for event in events if isinstance(event, Learning)).plan
    assert list(dict.fromkeys(event.step.name for event in progress)) == [step.name for step in planned.steps]
    left = [event.left for event in progress]
    assert left[0] == max(left) and left[-1] == min(left)
    model = open_model(result.model)
    assert model.about["metrics"]["events"]["together"]["labels"] > 0
    assert set(model.about["videos"].values()) == {"training", "testing"}
    assert result.report.is_file() and "10 s" in result.lines()[-1] != learnt_for_an_hour(result).lines()[-1]
    held_out = next(i for i, subset in model.about["videos"].items() if subset == "testing")
    copy = result.model.parent / "elsewhere" / "copy.lstr"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(result.model, copy)
    source = videos / "videos" / f"{held_out}.mp4"
    detected = result_of(detect_sources([source], DetectOptions(copy, device="cpu")))
    assert detected.timelines[source.stem]["decided"] == 20


@pytest.mark.long
def test_the_same_again_has_nothing_to_do(videos, learnt, tmp_path):
    before = learnt[1].model.read_bytes()
    events, again = run(options(videos, learnt[1].model))
    assert not [event for event in events if isinstance(event, StepProgress | Learning)]
    assert again.about == learnt[1].about and learnt[1].model.read_bytes() == before
    model = shutil.copy(learnt[1].model, tmp_path / "m.lstr")
    with pytest.raises(OutputError):  # it would replace what it begins with
        list(plan(options(videos, tmp_path / "m.lstr", init=str(model), algorithm=None)))


@pytest.mark.long
def test_other_labels_begin_again(videos, learnt, tmp_path):
    def shorten(database):
        first = next(entry for entry in database.values() if entry["subset"] == "training")
        first["annotations"][0]["segment"][1] -= 0.5

    shutil.copytree(learnt[1].model.parent / "drawn.learn", tmp_path / "drawn.learn")
    chosen = replace(options(videos, tmp_path / "drawn.lstr"), labels=changed_labels(videos, tmp_path, shorten))
    assert [event for event in until("train the flow", chosen) if isinstance(event, Notice)]
    assert not (tmp_path / "drawn.learn" / "models").exists()


@pytest.mark.slow
def test_another_time_resumes_what_was_begun(videos, tmp_path):
    """Once networks are trained, with the plan that they began with; a finished file is learnt again."""
    chosen = options(videos, tmp_path / "drawn.lstr", seconds=600.0)

    def begun(step, seconds):
        events = until(step, replace(chosen, seconds=seconds))
        weights = (tmp_path / "drawn.learn" / "weights").glob("*.pth")
        found = next(event for event in events if isinstance(event, Learning))
        return found, {path: path.stat().st_mtime_ns for path in weights}

    first, trained = begun("compute features", 600.0)
    second, kept = begun("train the model", 900.0)
    assert second.is_resumed and second.plan == replace(first.plan, budget=900.0) and trained == kept != {}
    run(replace(chosen, seconds=900.0))
    assert not begun("compute frames", 300.0)[0].is_resumed


@pytest.mark.slow
def test_more_videos_begin_with_what_was_learnt(videos, learnt, tmp_path):
    """With another class; a video that the networks have seen is not held out, and the file knows all of them."""
    render_scenes(tmp_path, SceneConfig(n_videos=3, n_testing=1, seconds=5.0, width=96, height=64, seed=5))
    labels = json.loads((tmp_path / "labels.json").read_text())
    labels["classes"].append("bow")
    entries = {f"new_{name}": entry for name, entry in labels["database"].items()}
    for name, entry in entries.items():
        entry["annotations"].append({"label": "bow", "segment": [0.0, 0.5]})
        (tmp_path / "videos" / f"{name.removeprefix('new_')}.mp4").rename(tmp_path / "videos" / f"{name}.mp4")
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": entries}))
    before = learnt[1].model
    _, result = run(options(tmp_path, tmp_path / "more.lstr", init=str(before), false_alarms=2.0))
    assert "bow" in open_model(result.model).classes and result.about["metrics"]["thresholds_f1"] is None
    assert set(open_model(before).about["seen"]) < set(open_model(result.model).about["seen"])

    shutil.copytree(videos / "videos", tmp_path / "videos", dirs_exist_ok=True)
    old = json.loads((videos / "labels.json").read_text())["database"]
    held_out = {i: {**entry, "subset": "testing"} for i, entry in old.items()}
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": {**entries, **held_out}}))
    with pytest.raises(LabelsError, match="4"):
        run(options(tmp_path, tmp_path / "other.lstr", init=str(before)))


@pytest.mark.slow
def test_networks_that_begin_with_a_learning_are_trained_gently(videos, tmp_path):
    """A third of the rate, half of the epochs, all else as at first."""
    features, output = ("pretrained", "both", None), tmp_path / "weights"
    chosen = options(videos, output, algorithm=None, settings={})
    shared = {name: getattr(chosen, name) for name in ("videos", "labels", "output", "cache", "device")}
    settings = {f"{stream}.epochs": "0" for stream in ("grey", "difference")}
    result_of(finetune(FinetuneOptions(**shared, recipe=features[0], settings=settings)))

    def configs(chosen):
        begun = initial_recipe(str(output))
        again = choose_features(chosen, begun)
        return settle(again, settings_of_networks(chosen, begun, again), str(output), "cpu").configs

    at_first, now = settle(features, {}, None, "cpu").configs, configs(replace(chosen, init=str(output)))
    for stream, one in at_first.items():
        sizes = {name: getattr(now[stream], name) for name in IMAGE_SETTINGS}  # those of the networks' own videos
        assert now[stream] == one.replace(lr=one.lr / 3, epochs=one.epochs // 2, **sizes)
    now = configs(replace(chosen, init=str(output), settings={"epochs": "5", "shake": "0.1"}))
    assert {s: one.epochs for s, one in now.items()} == {s: 5 if one.epochs else 0 for s, one in at_first.items()}
    assert {one.shake for one in now.values() if one.epochs} == {0.1}


@pytest.mark.slow
def test_of_one_recording_one_network_learns(videos, tmp_path):
    """Of two parts of it as of the whole; a video that cannot be read is left out."""
    content = json.loads((videos / "labels.json").read_text())
    entries, clips = content["database"], tmp_path / "videos"
    first, second, *others = sorted(i for i, entry in entries.items() if entry["subset"] == "training")
    names = {i: i for i in entries} | {first: "one_part1", second: "one_part2"}
    clips.mkdir()
    for video_id, name in names.items():
        (clips / f"{Path(name).name}.mp4").symlink_to(videos / "videos" / f"{video_id}.mp4")
    for video_id in others:
        entries[video_id]["subset"] = "testing"
    content["database"] = {Path(names[i]).name: entry for i, entry in entries.items()}
    content["database"]["bad"] = content["database"]["one_part1"]
    (clips / "bad.mp4").write_bytes(b"no video")
    (tmp_path / "labels.json").write_text(json.dumps(content))
    settings = {"epochs": "1", "draws": "24"}
    chosen = options(videos, tmp_path / "x.lstr", algorithm=None, settings=settings)
    chosen = replace(chosen, videos=[str(clips)], labels=str(tmp_path / "labels.json"), false_alarms=2.0)
    named = [*plan(replace(chosen, recipe="motion"))][-1]
    assert set(named.plan.epochs) == {"difference", "change"}, "what is named is taken"
    events, result = run(chosen)
    assert {event.id for event in events if isinstance(event, Failed)} == {one.id for one in result.failed} == {"bad"}
    planned = next(event for event in events if isinstance(event, Learning))
    assert planned.plan.recipe == planned.features[0] == "difference" and set(planned.plan.epochs) == {"difference"}
    seen = open_model(result.model).recipe.parts["difference"]
    assert seen.size == (105, 159), "as many pixels as 112 x 149, in the shape of the videos"
    rules = open_model(result.model).about["thresholds"]
    assert {rule["on"] for rule in rules.values()} == {SINGLE_RECORDING.on}
    again = next(event for event in plan(chosen) if isinstance(event, Learning))
    assert again.is_finished and again.plan == planned.plan


@pytest.mark.slow
def test_the_epoch_that_validation_videos_choose_is_packed(videos, tmp_path):
    def hold_out(database):
        first = min(i for i, video in database.items() if video["subset"] == "training")
        database[first]["subset"] = "validation"

    settings = {**SMALL, "train.epochs": "30", "train.lr": "0.01", "train.eval_every": "1", "train.patience": "1"}
    chosen = options(videos, tmp_path / "m.lstr", settings=settings, folds=0)
    _, result = run(replace(chosen, labels=changed_labels(videos, tmp_path, hold_out)))
    of_run = Workspace(result.model).models / "flow" / "all"
    best, last = (load(of_run / f"{name}.pt").metrics for name in ("best", "checkpoint"))
    assert open_model(result.model).about["checkpoint"]["metrics"]["epoch"] == best["epoch"] < last["epoch"]


def test_without_a_labelled_action_among_the_measured_there_is_no_figure():
    events = {"together": {"labels": 0, "found": 0, "false_alarms": 0, "delay": {"p50": None}}, "hours": 1.0}
    metrics = {"events": {**events, "per_class": {}}, "lstr": {"mAP": None}, "time_prior": {"mAP": None}}
    told = Learnt(Path("m.lstr"), {"metrics": metrics, "split": "measured"}, None).lines()
    assert len(told) == 2 and "mAP –" in told[1]


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
