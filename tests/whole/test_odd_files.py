"""Pipes, huge files and contradictory models: an error that names the file."""

import os
import shutil

import numpy as np
import pytest

from lstr.checkpoint import load, save
from lstr.errors import CheckpointError, RecipeError
from lstr.extractors.networks.archive import CARD
from lstr.files.arrays import open_array
from lstr.files.content import MOST, MOST_TEXT
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.model_files.packing import unpack_model, write_model
from tests.support.errors import assert_error
from tests.support.model_files import rewrite_model


@pytest.fixture(scope="module")
def model(small_set, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.lstr"
    return write_model(path, small_set.checkpoint, None, {}).path


RULES = ({"on": 0.2, "off": 0.8}, {"on": 50}, {"highest": "yes"}, {"lowest": True})


@pytest.mark.parametrize("entries", [{"classes": []}, *({"thresholds": {"wave": rule}} for rule in RULES)], ids=str)
def test_contradictory_models_are_refused(model, small_set, tmp_path, lstr, entries):
    path = rewrite_model(model, tmp_path / "odd.lstr", lambda document, _: document.update(entries))
    assert_error(lstr("detect", small_set.videos, "-m", path, "-o", tmp_path / "t"), 4, "odd.lstr")


def test_contradictory_thresholds_of_a_checkpoint_are_refused(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    save(tmp_path / "odd.pt", loaded.model, loaded.classes, None, {}, {"thresholds": {loaded.classes[1]: RULES[0]}})
    with pytest.raises(CheckpointError, match=r"odd\.pt .*0\.2.*0\.8"):
        load(tmp_path / "odd.pt")


def test_a_card_of_unknown_encoding_is_unpacked_unchanged(model, tmp_path):
    change = lambda _, members: members.update({CARD: b"\xff\xfe caf\xe9"})  # noqa: E731
    unpack_model(rewrite_model(model, tmp_path / "odd.lstr", change), tmp_path / "out")
    assert (tmp_path / "out" / CARD).read_bytes() == b"\xff\xfe caf\xe9"
    assert (tmp_path / "out" / "checkpoint.pt").is_file()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("detect VIDEOS -m p.lstr -o out", 4),
        ("detect VIDEOS -m p.pt -o out", 4),
        ("detect p.mp4 -m CHECKPOINT -o out", 3),
        ("info p.csv", 2),
        ("labels convert p.csv -o labels.json", 2),
        ("extract VIDEOS -o out --recipe p.json", 4),
        ("train FEATURES --labels LABELS -o out --config p.json", 2),
        ("pack CHECKPOINT -o m.lstr --metrics p.json", 2),
    ],
)
def test_commands_do_not_wait_for_a_pipe(small_set, tmp_path, lstr, monkeypatch, words, code):
    """A reader of a pipe waits until another program writes to it."""
    monkeypatch.chdir(tmp_path)
    pipe = next(word for word in words.split() if word.startswith("p."))
    os.mkfifo(pipe)
    arguments = [getattr(small_set, word.lower()) if word.isupper() else word for word in words.split()]
    assert_error(lstr(*arguments), code, pipe)


def test_arrays_do_not_wait_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "p")
    with pytest.raises(ValueError):
        open_array(tmp_path / "p")


def test_huge_text_files_are_refused_unread(tmp_path, lstr):
    for name, limit in (("l.csv", MOST), ("r.json", MOST_TEXT)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(limit + 1)
    assert_error(lstr("labels", "check", tmp_path / "l.csv"), 2, "l.csv", str(MOST))
    words = "extract", tmp_path / "l.csv", "-o", tmp_path / "f", "--recipe", tmp_path / "r.json"
    assert_error(lstr(*words), 2, "r.json")


def test_arrays_shorter_than_their_record_are_refused(small_set, tmp_path):
    folder = open_features(shutil.copytree(small_set.features, tmp_path / "f"))
    video_id = folder.ids()[0]
    for stream in folder.folders:
        path = folder.array(stream, video_id)
        np.save(path, np.load(path)[:-2])
    with pytest.raises(RecipeError, match="record"):
        folder.load(video_id)
