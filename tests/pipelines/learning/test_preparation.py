"""Plans of `lstr learn`: videos, folds, time, resumption, and errors before the first step."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from lstr.errors import ConfigError, LabelsError, OutputError, TooShortError, VideoError
from lstr.pipelines.learning import planner
from lstr.pipelines.learning.plan import NETWORKS, LearnPlan, Workspace
from lstr.pipelines.learning.preparation import Learning, check_output, plan
from lstr.pipelines.progress import Failed
from tests.support.errors import assert_error
from tests.support.learning import SMALL, change_labels, name_validation, options, use_all_for_training


@pytest.fixture
def unmeasured(monkeypatch):
    monkeypatch.setattr(planner, "measure_training", lambda _, configs, *__: (dict.fromkeys(configs, 0.05), 1))
    monkeypatch.setattr(planner, "measure_chunks", lambda *_: 0.001)
    monkeypatch.setattr(planner, "measure_model", lambda *_: 1.0)


def make_plan(chosen) -> Learning:
    return next(event for event in plan(chosen) if isinstance(event, Learning))


def label(folder, tmp_path, *rows):
    """Return options for the videos of a folder with labels of a table."""
    (tmp_path / "labels.csv").write_text("\n".join(["video,start,end,label", *rows]))
    return replace(options(folder, tmp_path / "m"), videos=[str(folder)], labels=str(tmp_path / "labels.csv"))


def test_a_plan_writes_nothing(videos, tmp_path, unmeasured):
    learning = make_plan(options(videos, tmp_path / "x"))
    planned = learning.plan
    assert learning.model == tmp_path / "x.lstr" and not learning.is_resumed
    assert planned.videos == {"training": 4, "testing": 2} and planned.seconds > 0
    assert "10 s" in planned.limitation and not replace(planned, chunks={"training": 14_400}).limitation  # two of 5 s
    assert LearnPlan.from_dict(planned.to_dict()) == planned
    keys = [*planned.steps]
    assert planned.progress(keys[0]).left == planned.seconds and planned.progress(keys[-1], 1, 1).left == 0
    assert not list(tmp_path.iterdir())


def test_unreadable_videos_are_skipped_before_the_division_into_two_folds(videos, tmp_path, unmeasured):
    paths = [shutil.copy(path, tmp_path / path.name) for path in sorted((videos / "videos").rglob("*.mp4"))[:3]]
    rows = [f"{path.stem},{at},{at + 1},{action}" for path in paths for at, action in ((1, "wave"), (3, "jump"))]
    chosen = label(tmp_path, tmp_path, *rows)
    paths[1].write_bytes(b"no video")
    *events, learning = plan(chosen)
    assert [event.id for event in events if isinstance(event, Failed)] == [paths[1].stem] == [*learning.failed]
    assert learning.plan.folds == 2 and learning.plan.videos == {"training": 2}
    for path in paths:
        path.write_bytes(b"no video")
    with pytest.raises(VideoError):
        make_plan(chosen)


def test_two_copies_of_a_video_are_a_single_recording(videos, tmp_path, unmeasured):
    for name in "ab":
        shutil.copy(min((videos / "videos").rglob("*.mp4")), tmp_path / f"{name}.mp4")
    with pytest.raises(LabelsError):
        make_plan(label(tmp_path, tmp_path, "a,1,2,wave", "b,1,2,wave"))


def test_videos_without_actions_are_background(videos, tmp_path, unmeasured):
    """They need no labels, and are for training if the labels have subsets."""
    video = min((videos / "videos").rglob("*.mp4"))
    labelled = tmp_path / "idle" / video.relative_to(videos / "videos")
    labelled.parent.mkdir(parents=True)
    shutil.copy(video, tmp_path / "idle" / "nobody.mp4")
    chosen = options(videos, tmp_path / "m", negatives=[str(tmp_path / "idle")])
    planned = make_plan(chosen)
    added = planned.division.labels.videos["nobody"]
    assert (added.subset, added.segments) == ("training", ()) and "nobody" in planned.videos
    shutil.copy(video, labelled)
    with pytest.raises(LabelsError, match=video.stem):
        make_plan(chosen)


def test_folds_are_used_if_each_recording_has_a_unique_action(videos, tmp_path, unmeasured):
    folder = videos / "videos" / "day 1"
    rows = [f"{path.stem},3,4,only {at}\n{path.stem},1,2,wave" for at, path in enumerate(folder.iterdir())]
    assert make_plan(label(folder, tmp_path, *rows)).plan.folds == 3


@pytest.mark.parametrize("setting", ["train.eval_every", "train.patience"])
def test_settings_that_choose_the_epoch_need_validation_videos(videos, tmp_path, setting, unmeasured):
    settings = {**SMALL, "train.eval_every": "1", setting: "1"}
    for folds in (0, None):
        with pytest.raises(ConfigError, match=r"train\.eval_every"):
            make_plan(options(videos, tmp_path / "m", settings=settings, folds=folds))
    labels = change_labels(videos, tmp_path, name_validation)
    chosen = options(videos, tmp_path / "m", labels=labels, settings=settings, folds=0)
    assert make_plan(chosen).plan.videos["validation"] == 1


@pytest.mark.long
def test_a_short_time_limit_reduces_images_and_then_removes_folds(videos, tmp_path, unmeasured):
    """Networks get at least two thirds of their training if removing folds suffices."""
    settings = {"size": "32,48", "epochs": "20", "draws": "400"}
    labels = change_labels(videos, tmp_path, use_all_for_training)

    def plan_with(seconds: float | None, **changes):
        chosen = {"labels": labels, "algorithm": None, "settings": settings, "seconds": seconds, **changes}
        return make_plan(options(videos, tmp_path / "m", **chosen)).plan

    unlimited = plan_with(None)
    networks = sum(s - 4 * planner.STEP_START_S for key, s in unlimited.steps.items() if key in NETWORKS.values())
    rest = unlimited.seconds - networks
    assert (unlimited.recipe, unlimited.folds, unlimited.draws) == ("pretrained", 3, 400)
    fewer = plan_with(1.2 * (rest + 0.8 * networks))
    assert (fewer.folds, fewer.draws, fewer.epochs) == (3, 320, unlimited.epochs)
    assert fewer.seconds == pytest.approx(rest + 0.8 * networks)
    held_out = plan_with(1.2 * (rest + 0.5 * networks))
    assert (held_out.folds, held_out.recipe, held_out.draws) == (0, "pretrained", 400)
    fewest = plan_with(1.2 * (held_out.seconds - networks / 10))
    assert fewest.folds == 0 and 96 <= fewest.draws < 400
    with_folds = plan_with(1.2 * (rest + 0.5 * networks), folds=3)
    assert (with_folds.folds, with_folds.draws) == (3, 200)
    with pytest.raises(TooShortError) as caught:
        plan_with(10.0)
    minutes = int(caught.value.hint.split("--time ")[1].split("m")[0])
    assert plan_with(60.0 * minutes).draws >= 96


def test_a_dry_run_reports_a_small_cache_and_unreliable_thresholds(videos, tmp_path, unmeasured, lstr):
    words = ("learn", videos / "videos", videos / "labels.json", "-o", tmp_path / "m", "--dry-run")
    words += ("--set", "recipe.flow_algorithm=dis")
    assert_error(lstr(*words, "--set", "cache_size=0.1MB"), 2, "--set cache_size=1GB")
    code, out, err = lstr(*words, "--set", "cache_size=1GB")
    assert code == 0 and out == "" and "rnn-small" in err and "warning: " not in err, err
    code, _, err = lstr(*words, "--set", "learn.folds=0")
    assert code == 0 and "warning: " in err, "thresholds are chosen on training videos of the networks"


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"model.nosuch": "1"}, "nosuch"),
        ({"train.epochs": "few"}, "'few'"),
        ({"model.kind": "gpt"}, "kind"),
        ({"flow.draws": "64"}, "flow.draws"),
    ],
)
def test_settings_are_checked_before_measurements(videos, tmp_path, monkeypatch, settings, value):
    monkeypatch.setattr(planner, "measure_training", None)
    with pytest.raises(ConfigError, match=value):
        make_plan(options(videos, tmp_path / "x", settings={**SMALL, **settings}))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_text("text"),
        lambda path: (path.with_suffix(".learn").mkdir(), (path.with_suffix(".learn") / "x").touch()),
    ],
    ids=["folder", "text", "unknown folder"],
)
def test_existing_files_are_not_overwritten(videos, tmp_path, write):
    write(tmp_path / "m.lstr")
    with pytest.raises(OutputError):
        make_plan(options(videos, tmp_path / "m.lstr"))


def test_labels_without_actions_or_videos_are_refused(videos, tmp_path):
    def remove_actions(database):
        for video in database.values():
            if video["subset"] == "training":
                video["annotations"] = []

    chosen = options(videos, tmp_path / "m", labels=change_labels(videos, tmp_path, remove_actions))
    for wrong in (chosen, replace(chosen, folds=0), label(videos / "videos", tmp_path, "nosuch,1,2,wave")):
        with pytest.raises(LabelsError) as caught:
            make_plan(wrong)
        assert "[[" not in caught.value.hint


def test_a_dot_is_part_of_the_name_of_a_model(tmp_path):
    names = ("fall", "fall.lstr", "mouse.day1", "mouse.day2")
    models = [check_output(tmp_path / name) for name in names]
    assert [path.name for path in models] == [name.removesuffix(".lstr") + ".lstr" for name in names]
    assert len({Workspace(path).path for path in models}) == len(names) - 1


HOLD = """
import sys, time
from pathlib import Path
from lstr.pipelines.learning.plan import Workspace
with Workspace(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_two_processes_cannot_train_into_the_same_folder(videos, tmp_path, lstr):
    """The second one is refused at once; the lock ends with the first, also when it is killed."""
    model = tmp_path / "fall.lstr"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(model)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "locked\n"
            assert_error(lstr("learn", videos / "videos", videos / "labels.json", "-o", model), 2, "fall.learn", "-o")
            assert (workspace := Workspace(model)).path.is_dir(), "it belongs to the first"
        finally:
            process.kill()
    with workspace.locked():
        assert not workspace.is_foreign
    assert not list(tmp_path.iterdir()), "an empty folder is removed"
    workspace.path.mkdir()
    (workspace.path / "x").touch()
    assert workspace.is_foreign
    with pytest.raises(OutputError), Workspace(workspace.path / "x" / "fall.lstr").locked():
        pass
