"""What a mistyped command line is answered with: one sentence, one hint, exit code 2."""

import json

import pytest

from tests.support.mistakes import mistake


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("detct", "x.mp4"), "No such command 'detct'"),
        (("zzzzz",), "No such command 'zzzzz'"),
        (("labels", "chek", "x.json"), "No such command 'chek'"),
        (("detect", "x.mp4", "--fromat", "json"), "Did you mean"),
        (("detect", "x.mp4", "--set", "modl.d_model=7"), "'modl.d_model' is not a valid setting"),
        (("labels", "convert", "a.csv", "--to", "zzz"), "'zzz' is not one of "),
        (("labels", "convert", "a.csv", "--from", "zzz"), "'zzz' is not one of "),
    ],
)
def test_a_mistyped_command_line(lstr, typed, words):
    result = lstr(*typed)
    mistake(result, 2, words, "--help` shows how it is used")
    assert result[2].count("\n") == 2


def test_a_device_that_is_not_there(lstr, small_set, tmp_path, monkeypatch):
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
        mistake(lstr(*command), 2, "Device cuda is not available", "LSTR_DEVICE=cpu")
    assert list(tmp_path.glob("*/*")) == []


def test_thresholds_are_scores(lstr, small_set):
    for option in ("--on", "--off"):
        result = lstr("detect", small_set.videos, "-c", small_set.checkpoint, option, "2")
        mistake(result, 2, "scores are from 0 to 1", "on 0.5 and off 0.35")


def test_an_empty_name_is_not_this_folder(lstr, small_set, tmp_path, monkeypatch):
    monkeypatch.chdir(small_set.videos)
    mistake(lstr("detect", "", "-c", small_set.checkpoint), 2, "One of the names is empty")
    mistake(lstr("extract", "", "-o", tmp_path / "features"), 2, "One of the names is empty")


def test_paths_and_videos_are_checked_before_anything_is_built(lstr, small_set, tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr("lstr.pipelines.detection.model.networks_of", lambda *_: built.append("networks"))
    monkeypatch.setattr("lstr.pipelines.detection.detect.load_checkpoint", lambda *_: built.append("checkpoint"))
    good, options = small_set.videos / "scene_00.mp4", ("-c", small_set.checkpoint)
    mistake(lstr("detect", good, tmp_path / "nosuch.mp4", *options), 2, "nosuch.mp4 does not exist")
    mistake(lstr("detect", good, *options, "-o", small_set.labels), 2, "cannot be written")
    assert built == []
    monkeypatch.undo()
    monkeypatch.setattr("lstr.pipelines.detection.model.networks_of", lambda *_: built.append("networks"))
    (tmp_path / "text.mp4").write_text("no video")
    mistake(lstr("detect", tmp_path / "text.mp4", *options), 3, "not a readable video")
    assert built == []


def test_nothing_found_says_what_came_nearest(lstr, small_set, tmp_path):
    command = ("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json")
    _, _, err = lstr(*command, "--on", "1")
    line = next(line for line in err.splitlines() if "scene_00: nothing found; best was" in line)
    assert "below its threshold of 1." in line and " s, " in line
    threshold = err[err.index(line) :].splitlines()[1].removeprefix("hint: try --on ")
    code, out, _ = lstr(*command, "--on", threshold)
    assert code == 0 and "scene_00: 20 decisions, actions: 0" not in out
    _, _, err = lstr(*command, "--on", threshold, "--min-length", "60")
    assert "for less than 60 s" in err and "hint: try a shorter --min-length" in err


def test_testing_videos_are_no_reason_to_warn(lstr, small_set, tmp_path):
    """Left out of training is what the testing subset is for; a missing label is worth a warning."""
    finetune = ("finetune", small_set.videos, "-o", tmp_path / "weights", "--set", "cache_size=1MB", "--labels")
    _, _, err = lstr(*finetune, small_set.labels)
    assert "kept unseen, being labelled as testing: scene_03" in err and "warning: " not in err
    labels = json.loads(small_set.labels.read_text())
    del labels["database"]["scene_03"]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    _, _, err = lstr(*finetune, tmp_path / "labels.json")
    assert "warning: skipped, without a label in" in err and "scene_03" in err
