"""From labelled videos to one file, whole, and the same file however often it is stopped on the way."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from lstr.errors import ConfigError, LabelsError, OutputError, VideoError
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.evaluation.chosen_thresholds import SINGLE_RECORDING
from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.options import LearnOptions, choose_features
from lstr.pipelines.learning.plan import StepProgress
from lstr.pipelines.learning.preparation import Learning, plan
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import Failed, Notice, result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.learning import SMALL, options, run


@pytest.fixture(scope="module")
def learnt(videos, tmp_path_factory) -> tuple[list, Learnt]:
    return run(options(videos, tmp_path_factory.mktemp("learnt") / "drawn.lstr"))


@pytest.mark.long
def test_one_file_has_all_that_detection_needs(videos, learnt):
    events, result = learnt
    names = list(dict.fromkeys(event.step.name for event in events if isinstance(event, StepProgress)))
    assert names == [
        "compute frames and flow",
        "train the flow network",
        "compute features",
        "train the model",
        "choose thresholds",
        "measure on held-out videos",
        "write the model file",
    ]
    left = [event.left for event in events if isinstance(event, StepProgress)]
    assert left[0] == max(left) and left[-1] == min(left)
    model = open_model(result.model)
    assert model.about["metrics"]["events"]["together"]["labels"] > 0
    assert set(model.about["videos"].values()) == {"training", "testing"}
    assert result.report.is_file()
    caught, measured = result.lines()
    assert "caught" in caught and "2 videos that the labels hold out" in measured
    held_out = next(i for i, subset in model.about["videos"].items() if subset == "testing")
    copy = result.model.parent / "elsewhere" / "copy.lstr"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(result.model, copy)
    source = videos / "videos" / f"{held_out}.mp4"
    detected = result_of(detect_sources([source], DetectOptions(copy, device="cpu")))
    assert detected.timelines[source.stem]["decided"] == 20


@pytest.mark.long
def test_the_same_again_has_nothing_to_do(videos, learnt):
    before = learnt[1].model.read_bytes()
    events, again = run(options(videos, learnt[1].model))
    assert not [event for event in events if isinstance(event, StepProgress | Learning)]
    assert again.about == learnt[1].about and learnt[1].model.read_bytes() == before


def test_two_learnings_of_one_file_are_one_too_many(videos, tmp_path, lstr):
    with closing(learn(options(videos, tmp_path / "drawn.lstr"))) as events:
        next(events)
        words = (videos / "videos", videos / "labels.json", "-o", tmp_path / "drawn.lstr")
        code, _, err = lstr("learn", *words)
        assert code == 2 and str(tmp_path / "drawn.learn") in err
        assert "--resume" not in err and "with -o" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_another_time_goes_on_with_what_was_begun(videos, tmp_path):
    """Once networks are trained, with the plan that they began with; a finished file is learnt anew."""
    chosen = options(videos, tmp_path / "drawn.lstr", seconds=600.0)

    def until(name: str, chosen: LearnOptions) -> list:
        seen: list = []
        with closing(learn(chosen)) as events:
            for event in events:
                seen.append(event)
                if isinstance(event, StepProgress) and event.step.name.startswith(name) and event.done:
                    break
        return seen

    def told(events: list) -> str:
        return " ".join(event.text for event in events if isinstance(event, Notice))

    first = next(event for event in until("compute features", chosen) if isinstance(event, Learning))
    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "drawn.learn" / "weights").glob("*.pth")}
    events = until("train the model", replace(chosen, seconds=900.0))
    second = next(event for event in events if isinstance(event, Learning))
    assert trained == {path: path.stat().st_mtime_ns for path in trained} and len(trained) > 0
    assert "only the time limit has changed" in told(events) and "starts over" not in told(events)
    assert second.is_resumed and second.plan == replace(first.plan, budget=900.0)
    events, _ = run(replace(chosen, seconds=900.0))
    assert "only the time" not in told(events), "the plan has the new time"
    assert "learning starts over" in told(until("compute frames", replace(chosen, seconds=300.0)))


@pytest.mark.long
def test_other_labels_begin_anew(videos, learnt, tmp_path):
    shutil.copytree(learnt[1].model.parent / "drawn.learn", tmp_path / "drawn.learn")
    labels = json.loads((videos / "labels.json").read_text())
    first = next(entry for entry in labels["database"].values() if entry["subset"] == "training")
    first["annotations"][0]["segment"][1] -= 0.5
    changed = tmp_path / "labels.json"
    changed.write_text(json.dumps(labels))
    chosen = replace(options(videos, tmp_path / "drawn.lstr"), labels=str(changed))
    with closing(learn(chosen)) as events:
        seen = []
        for event in events:
            seen.append(event)
            if isinstance(event, StepProgress) and event.step.name == "train the flow network":
                break
    assert any(isinstance(event, Notice) and "starts over" in event.text for event in seen)
    assert not (tmp_path / "drawn.learn" / "models").exists()


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
    _, result = run(options(tmp_path, tmp_path / "more.lstr", init=str(before)))
    assert "bow" in open_model(result.model).classes
    assert set(open_model(before).about["seen"]) < set(open_model(result.model).about["seen"])

    labels["classes"].remove("bow")
    entries = {i: {**entry, "annotations": entry["annotations"][:-1]} for i, entry in entries.items()}
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": entries}))
    _, result = run(options(tmp_path, tmp_path / "same.lstr", init=str(before), false_alarms=2.0))
    assert result.about["metrics"]["thresholds_f1"] is None

    shutil.copytree(videos / "videos", tmp_path / "videos", dirs_exist_ok=True)
    old = json.loads((videos / "labels.json").read_text())["database"]
    held_out = {i: {**entry, "subset": "testing"} for i, entry in old.items()}
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": {**entries, **held_out}}))
    with pytest.raises(LabelsError, match="have seen 4 of the testing videos"):
        run(options(tmp_path, tmp_path / "other.lstr", init=str(before)))


@pytest.mark.slow
def test_a_video_that_cannot_be_read_is_left_out(videos, tmp_path):
    shutil.copytree(videos / "videos", tmp_path / "videos")
    labels = json.loads((videos / "labels.json").read_text())
    bad = next(i for i, entry in labels["database"].items() if entry["subset"] == "training")
    (tmp_path / "videos" / f"{bad}.mp4").write_bytes(b"no video")
    chosen = LearnOptions(
        [str(tmp_path / "videos")],
        str(videos / "labels.json"),
        tmp_path / "drawn.lstr",
        settings=SMALL,
        cache=videos / "chunks",
        algorithm="dis",
    )
    events, result = run(chosen)
    assert [event.id for event in events if isinstance(event, Failed)] == [bad]
    assert [one.id for one in result.failed] == [bad] and result.model.is_file()


def test_a_named_recipe_is_taken_or_the_default_one():
    every = options(Path("v"), Path("m.lstr"), algorithm=None)
    assert choose_features(every, None) is None
    assert choose_features(replace(every, algorithm="dis"), None) == ("fast", "flow", "dis")
    assert choose_features(replace(every, recipe="live"), None) == ("live", "both", None)


@pytest.mark.slow
def test_of_one_recording_one_network_learns(videos, tmp_path):
    """Of two parts of it as of the whole."""
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
    (tmp_path / "labels.json").write_text(json.dumps(content))
    settings = {"epochs": "1", "draws": "24"}
    chosen = options(videos, tmp_path / "x.lstr", algorithm=None, settings=settings)
    chosen = replace(chosen, videos=[str(clips)], labels=str(tmp_path / "labels.json"), false_alarms=2.0)
    named = [*plan(replace(chosen, recipe="motion"))][-1]
    assert set(named.plan.epochs) == {"difference", "change"}, "what is named is taken"
    events, result = run(chosen)
    planned = next(event for event in events if isinstance(event, Learning))
    assert planned.plan.recipe == planned.features[0] == "difference" and set(planned.plan.epochs) == {"difference"}
    said = " ".join(event.text for event in events if isinstance(event, Notice))
    assert "for a single recording" in said and "second recording" in said and "no video is available" in said
    seen = open_model(result.model).recipe.parts["difference"]
    assert seen.size == (105, 159), "as many pixels as 112 x 149, in the shape of the videos"
    rules = open_model(result.model).about["thresholds"]
    assert {rule["on"] for rule in rules.values()} == {SINGLE_RECORDING.on}
    again = next(event for event in plan(chosen) if isinstance(event, Learning))
    assert again.is_finished and again.plan == planned.plan


def test_the_plan_comes_before_anything_is_written(videos, tmp_path):
    planned = next(event for event in plan(options(videos, tmp_path / "x")) if isinstance(event, Learning))
    assert planned.model == tmp_path / "x.lstr" and not planned.is_resumed
    assert planned.plan.videos == {"training": 4, "testing": 2} and planned.plan.seconds > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("model.nosuch", "1", "Unknown setting"),
        ("train.epochs", "few", "train.epochs is 'few'"),
        ("train.teacher", "500", "longest training video has 20 chunks"),
    ],
)
def test_settings_of_the_model_are_checked_before_anything_is_measured(videos, tmp_path, name, value, sentence):
    with (
        patch("lstr.pipelines.learning.planner.measure_training", side_effect=AssertionError),
        pytest.raises(ConfigError, match=sentence),
    ):
        list(plan(options(videos, tmp_path / "x", settings={**SMALL, name: value})))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_text("mine"), "is not a model file"),
        (lambda path: (path.with_suffix(".learn").mkdir(), (path.with_suffix(".learn") / "x").touch()), "lstr learn"),
    ],
)
def test_what_is_there_is_not_overwritten(videos, tmp_path, make, sentence):
    make(tmp_path / "m.lstr")
    with pytest.raises(OutputError, match=sentence) as caught:
        list(plan(options(videos, tmp_path / "m.lstr")))
    assert caught.value.hint


def test_learning_from_videos_of_which_none_can_be_read_is_refused(videos, tmp_path):
    copied = shutil.copytree(videos, tmp_path / "copied", ignore=shutil.ignore_patterns("chunks"))
    for name, entry in json.loads((copied / "labels.json").read_text())["database"].items():
        if entry["subset"] == "training":
            (copied / "videos" / f"{name}.mp4").write_text("no video")
    with pytest.raises(VideoError, match="None of the training videos can be read") as caught:
        list(plan(options(copied, tmp_path / "m.lstr")))
    assert "lstr info" in caught.value.hint


@pytest.mark.slow
def test_too_few_recordings_for_the_folds_end_it_in_a_sentence_of_them(videos, tmp_path):
    """What is damaged in its middle is found as its frames are computed; a number of folds was said to be wrong."""
    copied = shutil.copytree(videos, tmp_path / "copied", ignore=shutil.ignore_patterns("chunks"))
    database = json.loads((copied / "labels.json").read_text())["database"]
    for name in [name for name, entry in database.items() if entry["subset"] == "training"][1:]:
        path = copied / "videos" / f"{name}.mp4"
        whole, sound = path.read_bytes(), path.stat().st_size * 5 // 8
        path.write_bytes(whole[:sound] + bytes(1000) + whole[sound + 1000 :])
    events: list = []
    with pytest.raises(VideoError, match="with 3 folds .* only 2"):
        events.extend(learn(options(copied, tmp_path / "m.lstr", folds=3)))


@pytest.mark.long
def test_the_model_that_is_begun_with_is_not_replaced(videos, learnt, tmp_path):
    model = shutil.copy(learnt[1].model, tmp_path / "m.lstr")
    with pytest.raises(OutputError, match="overwritten"):
        list(plan(options(videos, tmp_path / "m.lstr", init=str(model), algorithm=None)))


def test_without_a_labelled_action_among_the_measured_there_is_no_figure():
    events = {"together": {"labels": 0, "found": 0, "false_alarms": 0, "delay": {"p50": None}}, "hours": 1.0}
    metrics = {"events": {**events, "per_class": {}}, "lstr": {"mAP": None}, "time_prior": {"mAP": None}}
    told = Learnt(Path("m.lstr"), {"metrics": metrics, "split": "measured"}, None).lines()
    assert told[0].startswith("no action is labelled") and "mAP –" in told[1]


def test_what_cannot_be_is_refused_before_anything_is_looked_at(videos, tmp_path):
    with pytest.raises(ConfigError, match="kind"):
        list(plan(options(videos, tmp_path / "m.lstr", settings={"model.kind": "gpt"})))
    with pytest.raises(ConfigError, match="time"):
        options(videos, tmp_path / "m.lstr", seconds=0)
    labels = videos / "other.json"
    labels.write_text(json.dumps({"database": {"nosuch": {"subset": "training", "annotations": []}}}))
    with pytest.raises(LabelsError, match="No label belongs"):
        list(plan(LearnOptions([str(videos / "videos")], str(labels), tmp_path / "m.lstr")))
