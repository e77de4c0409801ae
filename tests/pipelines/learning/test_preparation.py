"""What is settled before a learning begins: which videos have a part, how they are divided, and what goes on."""

import json
import shutil
from dataclasses import replace
from unittest.mock import patch

import pytest

from lstr.errors import ConfigError, LabelsError, OutputError
from lstr.pipelines.learning.plan import Workspace
from lstr.pipelines.learning.planner import STEP_START_S
from lstr.pipelines.learning.preparation import Learning, check_output, plan
from lstr.pipelines.progress import Failed
from tests.support.learning import SMALL, options


@pytest.fixture
def quick():
    """Nothing of the machine is measured for a plan."""
    with (
        patch("lstr.pipelines.learning.planner.measure_training", return_value=({"flow": 0.01}, 1)),
        patch("lstr.pipelines.learning.planner.measure_chunks", return_value=0.01),
        patch("lstr.pipelines.learning.planner.measure_model", return_value=1.0),
    ):
        yield


def planned_of(events) -> Learning:
    return next(event for event in events if isinstance(event, Learning))


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
    events = list(plan(chosen))
    assert [event.id for event in events if isinstance(event, Failed)] == [names[1]]
    planned = planned_of(events)
    assert planned.plan.folds == 2 and planned.plan.videos == {"training": 2}
    assert "2 folds of all 2 videos" in planned.plan.split and [*planned.failed] == [names[1]]


def test_recordings_that_each_show_an_action_alone_are_measured_by_folds(videos, tmp_path, quick):
    names = [path.relative_to(videos / "videos").with_suffix("") for path in (videos / "videos").rglob("*.mp4")]
    rows = [f"{name},3,4,only {at}\n{name},1,2,wave" for at, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["video,start,end,label", *rows]))
    planned = planned_of(plan(replace(options(videos, tmp_path / "m"), labels=str(tmp_path / "labels.csv"))))
    assert planned.plan.folds == 3


@pytest.mark.parametrize("setting", ["train.eval_every", "train.patience"])
@pytest.mark.parametrize("folds", [0, None])
def test_a_setting_that_chooses_the_epoch_needs_videos_for_it(videos, tmp_path, setting, folds):
    chosen = options(videos, tmp_path / "m", settings={**SMALL, setting: "1"}, folds=folds)
    with pytest.raises(ConfigError, match=f"{setting} chooses the epoch"):
        list(plan(chosen))


def test_a_setting_that_chooses_the_epoch_is_taken_where_videos_can(videos, tmp_path, quick):
    content = json.loads((videos / "labels.json").read_text())
    first = min(i for i, video in content["database"].items() if video["subset"] == "training")
    content["database"][first]["subset"] = "validation"
    (tmp_path / "labels.json").write_text(json.dumps(content))
    chosen = options(videos, tmp_path / "m", settings={**SMALL, "train.eval_every": "1"}, folds=0)
    assert planned_of(plan(replace(chosen, labels=str(tmp_path / "labels.json")))).plan.videos["validation"] == 1


def test_images_of_one_network_alone_are_refused(videos, tmp_path):
    """Both networks had the larger number."""
    chosen = options(videos, tmp_path / "m", settings={**SMALL, "flow.draws": "64"})
    with pytest.raises(ConfigError, match="flow.draws") as caught:
        list(plan(chosen))
    assert "--set draws=64" in caught.value.hint


def test_what_was_begun_goes_on_with_fewer_networks_at_once(videos, tmp_path, quick):
    """As is advised where memory runs out."""
    first = planned_of(plan(options(videos, tmp_path / "m", at_once=2)))
    first.workspace.write_plan(first.request, first.task, first.plan, first.division.labels, is_resumed=False)
    again = planned_of(plan(options(videos, tmp_path / "m", at_once=1)))
    assert again.is_resumed and (first.plan.at_once, again.plan.at_once) == (2, 1)


def test_a_recipe_file_that_says_another_thing_begins_anew(videos, tmp_path, quick):
    recipe, requests = tmp_path / "my.json", []
    for side in (64, 96):
        recipe.write_text(json.dumps({"based_on": "fast", "flow": {"size": [side, side]}}))
        chosen = options(videos, tmp_path / "m", recipe=str(recipe), stream="flow")
        requests.append(planned_of(plan(chosen)).request)
    assert requests[0] != requests[1]


def test_samples_of_several_pictures_are_planned_as_such(videos, tmp_path, quick):
    """Three pictures a sample take as long as three samples, and fill an epoch with a third of them."""
    found = []
    for segments in ("1", "3"):
        settings = {**SMALL, "segments": segments, "samples": "segments", "mixup": "0"}
        found.append(planned_of(plan(options(videos, tmp_path / "m", settings=settings, folds=0))).plan)
    one, three = ([step.seconds for step in of.steps if "network" in step.key][0] - STEP_START_S for of in found)
    assert three == pytest.approx(3 * one)


def test_a_cache_that_is_too_small_is_told_by_the_plan(videos, tmp_path, quick, lstr):
    """`lstr learn` had no `cache_size` to make larger, and `--dry-run` did not object."""
    with pytest.raises(OutputError, match="The chunks of 4 videos need .* GB") as told:
        list(plan(options(videos, tmp_path / "m", cache_size=10**5)))
    assert "--set cache_size=1GB" in told.value.hint
    words = (
        "learn",
        videos / "videos",
        videos / "labels.json",
        "-o",
        tmp_path / "m",
        "--set",
        "recipe.flow_algorithm=dis",
        "--dry-run",
    )
    code, _, err = lstr(*words, "--set", "cache_size=0.1MB")
    assert code == 2 and "use --set cache_size=1GB" in err
    code, out, err = lstr(*words, "--set", "cache_size=1GB")
    assert code == 0 and out == "" and "models (rnn-small): flow" in err, err
    code, _, err = lstr(*words, "--set", "learn.folds=0")
    assert code == 0 and "models (rnn-small): flow" in err, err
    assert "warning: thresholds are chosen on videos that the networks" in err


def test_a_larger_cache_is_no_other_learning(videos, tmp_path, quick):
    requests = {planned_of(plan(options(videos, tmp_path / "m", cache_size=size))).request for size in (10**9, 10**10)}
    assert len(requests) == 1


def test_what_is_behind_a_dot_is_of_the_name(tmp_path):
    """The second of mouse.day1 and mouse.day2 deleted what the first was made of."""
    names = ("fall", "fall.lstr", "fall.v2", "mouse.day1", "mouse.day2")
    models = [check_output(tmp_path / name) for name in names]
    assert [path.name for path in models] == [name.removesuffix(".lstr") + ".lstr" for name in names]
    assert len({Workspace(path).path for path in models}) == len(names) - 1


def test_labels_without_an_action_to_learn_are_refused_by_the_plan(videos, tmp_path):
    """The plan was made, and the learning ended in a message of a file and an option that nobody had named."""
    content = json.loads((videos / "labels.json").read_text())
    for video in content["database"].values():
        if video["subset"] == "training":
            video["annotations"] = []
    (tmp_path / "labels.json").write_text(json.dumps(content))
    for folds in (0, None):
        chosen = replace(options(videos, tmp_path / "m", folds=folds), labels=str(tmp_path / "labels.json"))
        with pytest.raises(LabelsError, match="tmp.*labels.json .* 4 videos") as caught:
            list(plan(chosen))
        assert "[[" not in caught.value.hint
