"""Wrong command lines and unsuitable files: one error with a hint, the exit code, and no output."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.errors import assert_error
from tests.support.videos import write_video

DETECT = "detect {video} -c {checkpoint}"
TRAIN = "train {features} -o {out} --preset lstr-small --labels"
EVALUATE = "evaluate {checkpoint} {features} --labels"
EXTRACT = "extract {videos} -o {out} --workers 1"
LABEL = "label {videos} --no-browser"
SNAPSHOTS = Path(__file__).with_name("snapshots")  # the errors of each command; LSTR_SNAPSHOTS=write writes them again

# exit code, command line, text in the error
WRONG = [
    (2, "detct x.mp4", "detct"),
    (2, "detect x.mp4 --fromat json", "--format"),
    (2, "detect x.mp4 --labels y.json", "--set labels=VALUE"),
    (2, "labels convert a.csv --from zzz", "zzz"),
    (2, "extract x.mp4 -o f --workers", "--workers"),
    (2, "models mini", "miniroad"),
    (2, f"{TRAIN} {{labels}} --preset thumos", "lstr-small"),
    (2, f"{DETECT} --set flow_threads=none", "flow_threads"),
    (2, f"{DETECT} --set flow_threads", "NAME=VALUE"),
    (2, f"{DETECT} --set flow_thread=1", "flow_threads"),
    (2, f"{DETECT} --set timeout=never", "timeout"),
    (2, f"{DETECT} --on 2", "0.5"),
    (2, f"{DETECT} -f pdf", "pdf"),
    (4, f"{DETECT} --set model.d_feedforward=99", "99"),
    # inputs that are not videos
    (2, "detect '' -c {checkpoint}", ""),
    (2, "detect {bad}/none.mp4 -c {checkpoint} -o {out}", "none.mp4"),
    (2, "detect {bad}/empty -c {checkpoint} -o {out}", "empty"),
    (3, "detect {bad}/text.mp4 -c {checkpoint} -o {out}", "text.mp4"),
    (3, "detect {bad}/sound.mp4 -c {checkpoint} -o {out}", "sound.mp4"),
    (3, "detect {bad}/short.mp4 -c {checkpoint} -o {out}", "short.mp4"),
    (2, "detect {video} {bad}/none.mp4 -c {checkpoint} -o {out}", "none.mp4"),
    (2, "info {bad}/odd.json", "odd.json"),
    # outputs that cannot be written
    (2, f"{DETECT} -o {{bad}}/text.mp4", "text.mp4"),
    (2, f"{DETECT} -o {{bad}}/text.mp4/below", "text.mp4"),
    (2, f"{DETECT} -o {'x' * 256}", "xx"),
    (2, "extract {video} -o {bad}/text.mp4 --recipe {recipe}", "-o"),
    (2, "extract {video} -o /proc/none --recipe {recipe}", "-o"),
    (2, "train {features} --labels {labels} -o {bad}/text.mp4/below", "text.mp4"),
    # features of another recipe, labels, models and weights that do not fit
    (4, "extract {videos} -o {features} --recipe {bad}/crops.json --workers 1", "flow.crops"),
    (4, "detect {bad}/features -c {checkpoint}", "long_side"),
    (2, f"{EVALUATE} {{bad}}/testing.json", "ghost"),
    (4, f"{EVALUATE} {{bad}}/classes.json", "somersault"),
    (2, f"{EVALUATE} {{labels}} --subset odd", "odd"),
    (2, f"{EVALUATE} {{labels}} --to md --json", "--json"),
    (2, f"{EVALUATE} {{labels}} --to md --choose-thresholds", "--choose-thresholds"),
    (2, f"{TRAIN} {{bad}}/reverse.json", "scene_00"),
    (2, f"{TRAIN} {{bad}}/none.json", "none.json"),
    (4, "detect {video} -c {bad}/text.mp4", "text.mp4"),
    (4, "detect {video} -c {bad}/none.pt", "none.pt"),
    (4, "detect {video}", "lstr learn"),
    (4, f"{EXTRACT} --weights rgb={{bad}}/text.mp4", "text.mp4"),
    (4, f"{DETECT} --weights grey=x", "grey"),
    (2, f"{EXTRACT} --weights {{bad}}/none.pth", "none.pth"),
    # pages and services
    (2, f"{LABEL} -o labels.csv", ".json"),
    (2, f"{LABEL} --labels nowhere.csv", "nowhere.csv"),
    (2, f"{LABEL} --labels {{bad}}/foreign.csv", "--columns"),
    (2, f"{LABEL} -o {{bad}}/timeline.json", "timeline.json"),
    (4, f"{LABEL} -m {{bad}}/nowhere.lstr", "nowhere.lstr"),
    (2, f"{LABEL} --port 0", "0"),
    (2, "watch {bad}/nowhere.toml", "nowhere.toml"),
    (2, "events {bad}/nowhere.toml", "nowhere.toml"),
]


@pytest.fixture
def bad(tmp_path, small_set, sound_only):
    """A folder of unsuitable files, named after their faults."""
    folder = tmp_path / "bad"
    (folder / "empty").mkdir(parents=True)
    (folder / "text.mp4").write_text("text, not a video\n" * 100)
    sound_only.rename(folder / "sound.mp4")
    write_video(folder / "short.mp4", range(0, 80, 20))
    (folder / "odd.json").write_text("{}")
    (folder / "timeline.json").write_text('{"format": "lstr-timeline/1"}')
    (folder / "foreign.csv").write_text("aanvang;einde;gedrag\n0,5;1,5;vallen\n")
    recipe = json.loads(small_set.recipe.read_text())
    (folder / "crops.json").write_text(json.dumps(recipe | {"flow": recipe["flow"] | {"crops": 10}}))
    shutil.copytree(small_set.features, folder / "features")
    recipe = json.loads((folder / "features" / "recipe.json").read_text())
    (folder / "features" / "recipe.json").write_text(json.dumps(recipe | {"long_side": 160}))
    for name in ("testing", "classes", "reverse"):
        labels = json.loads(small_set.labels.read_text())
        if name == "classes":
            labels["classes"].append("somersault")
        elif name == "reverse":
            labels["database"]["scene_00"]["annotations"][0]["segment"] = [3, 1]
        else:
            labels["database"]["ghost"] = {"subset": name, "duration": 5, "annotations": []}
        (folder / f"{name}.json").write_text(json.dumps(labels))
    return folder


def modification_times(folder) -> dict:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("code", "line", "text"), WRONG, ids=[line for _, line, _ in WRONG])
def test_errors_name_the_cause(lstr, small_set, bad, tmp_path, monkeypatch, code, line, text):
    monkeypatch.chdir(tmp_path)
    before = modification_times(bad), modification_times(small_set.features)
    places = {**vars(small_set), "video": small_set.videos / "scene_00.mp4", "bad": bad, "out": tmp_path / "out"}
    *_, err = found = lstr(*(word.format(**places) for word in shlex.split(line)))
    assert_error(found, code, text)
    assert not (tmp_path / "out").exists() and not list(small_set.videos.glob("labels*"))
    assert before == (modification_times(bad), modification_times(small_set.features))
    for path, name in ((tmp_path / "bad", "{bad}"), (f"{tmp_path}/", ""), (f"{small_set.videos.parent}/", "")):
        err = err.replace(str(path), name)
    check_snapshot(line, err[re.search("error: |failed: ", err).start() :])


def check_snapshot(line, shown):
    """Compare what a command line shows with the file of its command."""
    path = SNAPSHOTS / f"{line.split()[0]}.txt"
    known = re.findall(r"^\$ lstr (.*)\n((?:(?!\$ ).*\n)*)", path.read_text() if path.exists() else "", re.MULTILINE)
    if os.environ.get("LSTR_SNAPSHOTS") == "write":
        known = {**dict(known), line: shown}.items()
        path.write_text("".join(f"$ lstr {name}\n{output}" for name, output in known))
    assert dict(known).get(line) == shown


def test_a_missing_device(lstr, small_set, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("LSTR_DEVICE", "cuda")
    features, labels = small_set.features, ("--labels", small_set.labels)
    for command in (
        ("detect", small_set.videos, "-c", small_set.checkpoint),
        ("extract", small_set.videos, "-o", tmp_path / "features"),
        ("train", features, *labels, "-o", tmp_path / "run"),
        ("evaluate", small_set.checkpoint, features, *labels),
        ("finetune", small_set.videos, *labels, "-o", tmp_path / "weights"),
        ("bench",),
    ):
        assert_error(lstr(*command), 2, "LSTR_DEVICE=cpu")
    assert list(tmp_path.glob("*/*")) == []


def test_internal_errors_are_reported(lstr, monkeypatch, small_set):
    def fail(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("lstr.pipelines.info.describe", fail)
    assert_error(lstr("info", small_set.videos), 1, "ZeroDivisionError: division by zero", "LSTR_DEBUG=1")


def test_a_detection_without_actions_proposes_a_threshold(lstr, small_set, tmp_path):
    command = ("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json")
    _, _, err = lstr(*command, "--on", "1")
    threshold = err.partition("--on ")[2].split()[0]
    assert lstr(*command, "--on", threshold)[0] == 0
    assert json.loads((tmp_path / "scene_00.json").read_text())["segments"]
    _, _, err = lstr(*command, "--on", threshold, "--min-length", "60")
    assert "hint: " in err and "--min-length" in err
