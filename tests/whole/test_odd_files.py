"""Files that are no files, and models whose entries contradict themselves: one sentence that names the file."""

import hashlib
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

import lstr as face
from lstr.checkpoint import load, save
from lstr.errors import CheckpointError, LabelsError, OutputError, RecipeError
from lstr.extractors.networks.archive import CARD, DOCUMENT, Archive
from lstr.files.arrays import open_array
from lstr.files.content import MOST, MOST_TEXT
from lstr.labels.label_set import read_labels
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import unpack_model, write_model
from tests.support.mistakes import mistake


@pytest.fixture(scope="module")
def model(small_set, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.lstr"
    return write_model(path, small_set.checkpoint, None, {}).path


def rewritten(source, target, card=None, **entries):
    """A model file with other entries in model.json, or another card."""
    archive = Archive(source)
    contents = {name: archive.read(name) for name in archive.sizes if name != DOCUMENT}
    document = archive.document | entries
    if card is not None:
        contents[CARD] = card
        stated = {"bytes": len(card), "sha256": hashlib.sha256(card).hexdigest()}
        document["members"] = {**document["members"], CARD: stated}
    with zipfile.ZipFile(target, "w") as container:
        for name, content in {DOCUMENT: json.dumps(document).encode(), **contents}.items():
            container.writestr(name, content)
    return target


RULES = [
    ({"classes": []}, "it has no classes"),
    ({"thresholds": {"wave": {"on": 0.2, "off": 0.8}}}, "'wave' is 0.2, below its end threshold 0.8"),
    ({"thresholds": {"wave": {"on": 50}}}, "a threshold of 'wave' is above 1"),
    ({"thresholds": {"wave": {"highest": "yes"}}}, "thresholds"),
    ({"thresholds": {"wave": {"lowest": True}}}, "thresholds"),
]


@pytest.mark.parametrize(
    ("entries", "words"), RULES, ids=["no classes", "on below off", "percent", "no bool", "no rule"]
)
def test_a_model_that_contradicts_itself_is_refused_by_name(model, small_set, tmp_path, lstr, entries, words):
    path = rewritten(model, tmp_path / "odd.lstr", **entries)
    mistake(lstr("detect", small_set.videos, "-m", path, "-o", tmp_path / "t"), 4, "odd.lstr", words)
    with pytest.raises(CheckpointError, match="odd.lstr"):
        open_model(path)


def test_a_checkpoint_with_such_thresholds_is_refused_by_name(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    rules = {"thresholds": {loaded.classes[1]: {"on": 0.2, "off": 0.8}}}
    save(tmp_path / "odd.pt", loaded.model, loaded.classes, None, {}, rules)
    with pytest.raises(
        CheckpointError,
        match=r"odd\.pt cannot be used: the start threshold of .* is 0\.2, below its end threshold 0\.8",
    ):
        load(tmp_path / "odd.pt")


def test_a_card_in_no_encoding_is_unpacked_as_it_is(model, tmp_path):
    unpack_model(rewritten(model, tmp_path / "odd.lstr", card=b"\xff\xfe caf\xe9"), tmp_path / "out")
    assert (tmp_path / "out" / CARD).read_bytes() == b"\xff\xfe caf\xe9"
    assert (tmp_path / "out" / "checkpoint.pt").is_file()


def test_a_pipe_is_not_waited_for(small_set, tmp_path, lstr):
    """As model, checkpoint, array and label file: whoever waited would do so until somebody writes."""
    for name in ("p.lstr", "p.pt", "p.npy", "p.csv"):
        os.mkfifo(tmp_path / name)
    for name in ("p.lstr", "p.pt"):
        mistake(lstr("detect", small_set.videos, "-m", tmp_path / name, "-o", tmp_path / "t"), 4, name)
    with pytest.raises(ValueError, match="not a file on a disk"):
        open_array(tmp_path / "p.npy")
    mistake(lstr("labels", "check", tmp_path / "p.csv"), 2, "p.csv")
    mistake(lstr("info", tmp_path / "p.csv"), 2, "p.csv is not a file on a disk")
    with pytest.raises(LabelsError, match="not a file on a disk"):
        read_labels(tmp_path / "p.csv")
    mistake(lstr("labels", "convert", tmp_path / "p.csv", "-o", tmp_path / "labels.json"), 2, "p.csv")


def test_a_pipe_is_not_waited_for_where_a_text_or_a_video_is_meant(small_set, tmp_path, lstr):
    """A folder with a pipe named as a video was one that `lstr extract` never left, not even by Ctrl-C."""
    for name in ("p.json", "p.txt", "p.mp4"):
        os.mkfifo(tmp_path / name)
    words, out = "file on a disk, such as a pipe", tmp_path / "out"
    extract = ("extract", small_set.videos, "-o", out, "--recipe")
    mistake(lstr(*extract, tmp_path / "p.json"), 4, "p.json", "neither a recipe nor a file")
    mistake(lstr(*extract, small_set.recipe, "--calibrate", tmp_path / "p.txt"), 2, "p.txt", words)
    train = ("train", small_set.features, "--labels", small_set.labels, "-o", out)
    mistake(lstr(*train, "--config", tmp_path / "p.json"), 2, "p.json", words)
    mistake(lstr("pack", small_set.checkpoint, "-o", tmp_path / "m.lstr", "--metrics", tmp_path / "p.json"), 2, words)
    code, _, err = lstr("extract", tmp_path / "p.mp4", "-o", out, "--recipe", small_set.recipe)
    assert code == 3 and words in err and f"lstr detect - < {tmp_path / 'p.mp4'}" in err
    mistake(lstr("detect", tmp_path / "p.mp4", "-m", small_set.checkpoint, "-o", out), 3, words)


def test_a_text_beyond_all_measure_is_refused_before_it_is_read(tmp_path, lstr):
    """A line of a gigabyte took several, before its first character was looked at."""
    for name, most in (("l.csv", MOST), ("r.json", MOST_TEXT)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(most + 1)
    mistake(lstr("labels", "check", tmp_path / "l.csv"), 2, "l.csv", f"more than {MOST} are not read")
    mistake(lstr("extract", tmp_path, "-o", tmp_path / "f", "--recipe", tmp_path / "r.json"), 2, "are not read")
    with pytest.raises(LabelsError, match="are not read"):
        read_labels(tmp_path / "l.csv")


@pytest.mark.parametrize("job", ["extract", "train", "finetune", "learn"])
def test_none_is_no_output(small_set, tmp_path, monkeypatch, job):
    monkeypatch.chdir(tmp_path)
    labels = [] if job == "extract" else [small_set.labels]
    with pytest.raises(OutputError, match="output is None"):
        getattr(face, job)(small_set.videos, *labels, None)
    assert list(tmp_path.iterdir()) == []


def test_an_array_that_is_shorter_than_its_record_is_refused(small_set, tmp_path):
    folder = open_features(shutil.copytree(small_set.features, tmp_path / "f"))
    video_id = folder.ids()[0]
    for stream in folder.folders:
        path = folder.array(stream, video_id)
        np.save(path, np.load(path)[:-2])
    with pytest.raises(RecipeError, match="its record says"):
        folder.load(video_id)
