"""The plan of a learning: which videos have a part, what it takes, what it resumes, and what is refused."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from lstr.errors import ConfigError, LabelsError, OutputError, TooShortError, VideoError
from lstr.labels.label_set import Labels
from lstr.pipelines.learning.options import LearnOptions, choose_features
from lstr.pipelines.learning.plan import NETWORKS, LearnPlan, Workspace, write_labels
from lstr.pipelines.learning.planner import STEP_START_S, models_of
from lstr.pipelines.learning.preparation import Learning, check_output, plan
from lstr.pipelines.progress import Failed
from tests.support.errors import assert_error
from tests.support.learning import SMALL, options


@pytest.fixture
def quick():
    """Nothing of the machine is measured for a plan."""

    def training(preset, configs, *rest):
        return dict.fromkeys(configs, 0.05), 1

    with (
        patch("lstr.pipelines.learning.planner.measure_training", training),
        patch("lstr.pipelines.learning.planner.measure_chunks", return_value=0.001),
        patch("lstr.pipelines.learning.planner.measure_model", return_value=1.0),
    ):
        yield


def planned(chosen) -> Learning:
    return next(event for event in plan(chosen) if isinstance(event, Learning))


def with_labels(videos, tmp_path, change):
    """Options whose labels are changed."""
    content = json.loads((videos / "labels.json").read_text())
    change(content["database"])
    (tmp_path / "labels.json").write_text(json.dumps(content))
    return replace(options(videos, tmp_path / "m"), labels=str(tmp_path / "labels.json"))


def test_the_plan_comes_before_anything_is_written(videos, tmp_path, quick):
    found = planned(options(videos, tmp_path / "x"))
    assert found.model == tmp_path / "x.lstr" and not found.is_resumed
    assert found.plan.videos == {"training": 4, "testing": 2} and found.plan.seconds > 0
    # of the testing videos, two of 5 s
    assert "10 s" in found.plan.limitation and not replace(found.plan, chunks={"training": 14_400}).limitation
    assert msgspec.convert(found.plan.to_dict(), LearnPlan) == found.plan
    keys = [step.key for step in found.plan.steps]
    assert found.plan.progress(keys[0]).left == found.plan.seconds and found.plan.progress(keys[-1], 1, 1).left == 0
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_has_no_part_in_folds(videos, tmp_path, quick):
    """Of three videos one is broken: it is named before anything long, and two are left for as many folds."""
    folder = tmp_path / "videos"
    folder.mkdir()
    names = [path.stem for path in sorted((videos / "videos").rglob("*.mp4"))[:3]]
    for name in names:
        shutil.copy(next((videos / "videos").rglob(f"{name}.mp4")), folder)
    (folder / f"{names[1]}.mp4").write_bytes(b"no video")
    rows = [f"{name},{at},{at + 1},{label}" for name in names for at, label in ((1, "wave"), (3, "jump"))]
    (tmp_path / "labels.csv").write_text("\n".join(["video,start,end,label", *rows]))
    chosen = replace(options(videos, tmp_path / "m"), videos=[str(folder)], labels=str(tmp_path / "labels.csv"))
    *events, found = plan(chosen)
    assert [event.id for event in events if isinstance(event, Failed)] == [names[1]] == [*found.failed]
    assert found.plan.folds == 2 and found.plan.videos == {"training": 2}
    (folder / f"{names[0]}.mp4").write_bytes(b"no video")
    (folder / f"{names[2]}.mp4").write_bytes(b"no video")
    with pytest.raises(VideoError):
        planned(chosen)


def test_a_copy_of_a_video_has_no_fold_of_its_own(videos, tmp_path, quick):
    source = min((videos / "videos").rglob("*.mp4"))
    for name in "ab":
        shutil.copy(source, tmp_path / f"{name}.mp4")
    (tmp_path / "labels.csv").write_text("video,start,end,label\na,1,2,wave\nb,1,2,wave\n")
    chosen = replace(options(videos, tmp_path / "m"), videos=[str(tmp_path)], labels=str(tmp_path / "labels.csv"))
    with pytest.raises(LabelsError):  # two names, but one recording
        planned(chosen)


def test_recordings_that_each_show_an_action_alone_are_measured_by_folds(videos, tmp_path, quick):
    names = [path.relative_to(videos / "videos").with_suffix("") for path in (videos / "videos").rglob("*.mp4")]
    rows = [f"{name},3,4,only {at}\n{name},1,2,wave" for at, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["video,start,end,label", *rows]))
    assert planned(replace(options(videos, tmp_path / "m"), labels=str(tmp_path / "labels.csv"))).plan.folds == 3


@pytest.mark.parametrize("setting", ["train.eval_every", "train.patience"])
def test_a_setting_that_chooses_the_epoch_needs_videos_for_it(videos, tmp_path, setting, quick):
    def hold_out(database):
        first = min(i for i, video in database.items() if video["subset"] == "training")
        database[first]["subset"] = "validation"

    settings = {**SMALL, "train.eval_every": "1", setting: "1"}
    for folds in (0, None):
        with pytest.raises(ConfigError, match=r"train\.eval_every"):
            planned(options(videos, tmp_path / "m", settings=settings, folds=folds))
    chosen = replace(with_labels(videos, tmp_path, hold_out), settings=settings, folds=0)
    assert planned(chosen).plan.videos["validation"] == 1


@pytest.mark.long
def test_a_short_time_drops_images_and_then_the_folds(videos, tmp_path, quick):
    """Networks get at least two thirds of their training, unless nothing cheaper is left."""

    def all_teach(database):
        for entry in database.values():
            entry["subset"] = "training"

    settings = {"height": "32", "width": "48", "epochs": "20", "draws": "400"}
    chosen = replace(with_labels(videos, tmp_path, all_teach), algorithm=None, settings=settings)

    def within(seconds: float | None, **others):
        return planned(replace(chosen, seconds=seconds, **others)).plan

    whole = within(None)
    networks = sum(step.seconds - 4 * STEP_START_S for step in whole.steps if step.key in NETWORKS.values())
    others = whole.seconds - networks
    assert (whole.recipe, whole.folds, whole.draws) == ("pretrained", 3, 400)
    fewer = within(1.2 * (others + 0.8 * networks))
    assert (fewer.folds, fewer.draws, fewer.epochs) == (3, 320, whole.epochs)
    assert fewer.seconds == pytest.approx(others + 0.8 * networks)
    held_out = within(1.2 * (others + 0.5 * networks))
    assert (held_out.folds, held_out.recipe, held_out.draws) == (0, "pretrained", 400)
    fewest = within(1.2 * (held_out.seconds - networks / 10))
    assert fewest.folds == 0 and 96 <= fewest.draws < 400
    named = within(1.2 * (others + 0.5 * networks), folds=3)
    assert (named.folds, named.draws) == (3, 200), "folds that are named stay"
    with pytest.raises(TooShortError) as caught:
        within(10.0)
    minutes = int(caught.value.hint.split("--time ")[1].split("m")[0])
    assert within(60.0 * minutes).draws >= 96


def test_what_was_begun_resumes_with_fewer_networks_at_once(videos, tmp_path, quick):
    """As is advised where memory runs out; a larger cache is the same learning, another recipe file is not."""
    first = planned(options(videos, tmp_path / "m", at_once=2))
    first.workspace.write_plan(first.request, first.task, first.plan, first.division.labels, is_resumed=False)
    again = planned(options(videos, tmp_path / "m", at_once=1))
    assert again.is_resumed and (first.plan.at_once, again.plan.at_once) == (2, 1)
    assert planned(options(videos, tmp_path / "m", cache_size=10**10)).request == again.request
    recipe, requests = tmp_path / "my.json", []
    for side in (64, 96):
        recipe.write_text(json.dumps({"based_on": "fast", "flow": {"size": [side, side]}}))
        requests.append(planned(options(videos, tmp_path / "m", recipe=str(recipe), stream="flow")).request)
    assert requests[0] != requests[1]


def test_a_dry_run_and_a_cache_that_is_too_small(videos, tmp_path, quick, lstr):
    words = ("learn", videos / "videos", videos / "labels.json", "-o", tmp_path / "m", "--dry-run")
    words += ("--set", "recipe.flow_algorithm=dis")
    assert_error(lstr(*words, "--set", "cache_size=0.1MB"), 2, "--set cache_size=1GB")
    code, out, err = lstr(*words, "--set", "cache_size=1GB")
    assert code == 0 and out == "" and "rnn-small" in err and "warning: " not in err, err
    code, _, err = lstr(*words, "--set", "learn.folds=0")
    assert code == 0 and "warning: " in err, "thresholds are chosen on videos that the networks have seen"


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"model.nosuch": "1"}, "nosuch"),
        ({"train.epochs": "few"}, "'few'"),
        ({"train.teacher": "500"}, "20 chunks"),
        ({"model.kind": "gpt"}, "kind"),
        ({"flow.draws": "64"}, "flow.draws"),
    ],
)
def test_settings_are_checked_before_anything_is_measured(videos, tmp_path, settings, value):
    with (
        patch("lstr.pipelines.learning.planner.measure_training", side_effect=AssertionError),
        pytest.raises(ConfigError, match=value),
    ):
        planned(options(videos, tmp_path / "x", settings={**SMALL, **settings}))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_text("mine"),
        lambda path: (path.with_suffix(".learn").mkdir(), (path.with_suffix(".learn") / "x").touch()),
    ],
    ids=["folder", "text", "folder of others"],
)
def test_what_is_there_is_not_overwritten(videos, tmp_path, make):
    make(tmp_path / "m.lstr")
    with pytest.raises(OutputError) as caught:
        planned(options(videos, tmp_path / "m.lstr"))
    assert caught.value.hint


def test_labels_and_times_that_cannot_be(videos, tmp_path):
    def no_action(database):
        for video in database.values():
            if video["subset"] == "training":
                video["annotations"] = []

    def other_videos(database):
        database.clear()
        database["nosuch"] = {"subset": "training", "annotations": []}

    for change, folds in ((no_action, 0), (no_action, None), (other_videos, None)):
        with pytest.raises(LabelsError) as caught:
            planned(replace(with_labels(videos, tmp_path, change), folds=folds))
        assert caught.value.hint and "[[" not in caught.value.hint
    with pytest.raises(ConfigError, match="time"):
        options(videos, tmp_path / "m.lstr", seconds=0)


def test_what_is_behind_a_dot_is_of_the_name(tmp_path):
    names = ("fall", "fall.lstr", "fall.v2", "mouse.day1", "mouse.day2")
    models = [check_output(tmp_path / name) for name in names]
    assert [path.name for path in models] == [name.removesuffix(".lstr") + ".lstr" for name in names]
    assert len({Workspace(path).path for path in models}) == len(names) - 1


def test_features_and_models_of_a_recipe():
    every = LearnOptions(["v"], "l", Path("m.lstr"))
    assert choose_features(every, None) is None
    assert choose_features(replace(every, algorithm="dis"), None) == ("fast", "flow", "dis")
    assert choose_features(replace(every, recipe="live"), None) == ("live", "both", None)
    assert models_of(("grey", "difference")) == (("grey", "difference"), ("difference",))
    assert models_of(("rgb", "flow")) == (("rgb", "flow"), ("flow",))
    assert models_of(("difference", "change")) == (("difference", "change"),)


HOLD = """
import sys, time
from pathlib import Path
from lstr.pipelines.learning.plan import Workspace
with Workspace(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_one_learning_writes_a_folder_at_a_time(videos, tmp_path, lstr):
    """Another process is refused at once, and a killed one holds nothing."""
    model = tmp_path / "fall.lstr"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(model)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "held\n"
            assert_error(lstr("learn", videos / "videos", videos / "labels.json", "-o", model), 2, "fall.learn", "-o")
        finally:
            other.send_signal(signal.SIGKILL)
    workspace = Workspace(model)
    with workspace.locked():
        assert not workspace.is_foreign
    assert not list(tmp_path.iterdir()), "a folder into which nothing came goes away"
    workspace.path.mkdir()
    write_labels(workspace.labels, Labels(("a",), {}, True))  # before the plan
    assert not workspace.is_foreign
    (workspace.path / "x").touch()
    assert workspace.is_foreign
    with pytest.raises(OutputError), Workspace(workspace.path / "x" / "fall.lstr").locked():
        pass
