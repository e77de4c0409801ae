"""One table as every command takes it: train, evaluate, detect, extract and finetune read labels by one function."""

import json

import pytest

from lstr.labels.label_set import read_labels
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.label_files import read_label_file


@pytest.fixture
def table(small_set, tmp_path):
    """The labels of the small set as a CSV with endings, clock times and other names of the subsets."""
    rows = ["video,subset,start,end,label"]
    for name, video in read_labels(small_set.labels).videos.items():
        subset = {"training": "train", "testing": "test"}[video.subset]
        rows += [f"{name}.avi,{subset},0:{s.start:06.3f},0:00:{s.end:06.3f},{s.label}" for s in video.segments]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_evaluation_scores_alike(small_set, table, lstr):
    """Also where the table lists no classes: those of the checkpoint are meant, in its order."""
    given = ("evaluate", small_set.checkpoint, small_set.features, "--json", "--set", "resamples=0", "--labels")
    (code, out, _), (again, csv, err) = lstr(*given, small_set.labels), lstr(*given, table)
    assert (code, again) == (0, 0), err
    first, second = ({**json.loads(text), "seconds": 0, "labels": ""} for text in (out, csv))
    assert first == second
    assert "'train' is taken as 'training'" in err and "is taken as 'scene_00'" in err


def test_classes_that_nobody_trained_are_said(small_set, tmp_path, lstr):
    content = json.loads(small_set.labels.read_text())
    for video in content["database"].values():
        if video["subset"] == "training":
            video["annotations"] = [a for a in video["annotations"] if a["label"] != "walk"]
        else:
            video["annotations"].append({"label": "walk", "segment": [0, 1]})
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(content))
    _, _, err = lstr("evaluate", small_set.checkpoint, small_set.features, "--labels", path, "--set", "resamples=0")
    assert "walk: " in err and "none in training" in err
    run = ("--preset", "lstr-small", "--set", "train.epochs=1", "--print-config")
    _, _, err = lstr("train", small_set.features, "--labels", path, "-o", tmp_path / "run", *run)
    assert "never trained" in err and "walk: " in err


def test_labels_without_subsets_train_and_do_not_test(small_set, tmp_path, lstr):
    convert([small_set.labels], "vtt", tmp_path / "vtt")
    labels = read_label_file(tmp_path / "vtt")
    assert not labels.has_subsets and len(labels.videos) == 4
    code, _, err = lstr("evaluate", small_set.checkpoint, small_set.features, "--labels", tmp_path / "vtt")
    assert code == 2 and "names no subsets" in err and "--subset training" in err
    code, _, err = lstr(
        "evaluate", small_set.checkpoint, small_set.features, "--labels", tmp_path / "vtt", "--subset", "train"
    )
    assert code == 0, err
