"""Equality of two commits: what is the same from run to run is equal, what was computed otherwise is found."""

import importlib
import json
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from lstr.kinds import KINDS
from lstr.kinds import presets as kinds_presets

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
ROOT = BENCHMARKS.parent


@pytest.fixture
def fingerprints(monkeypatch):
    """The module of what files hold."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("fingerprints")


@pytest.fixture
def equality(fingerprints):
    """The module that records and compares."""
    return importlib.import_module("equality")


def test_an_array_is_its_type_shape_and_values(fingerprints):
    digest, array = fingerprints.array_digest, np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest(array) == digest(np.asfortranarray(array)) == digest(array.copy())
    assert digest(array) == digest(np.repeat(array, 2, axis=0)[::2]), "its layout in memory is none of it"
    moved = array.copy()
    moved[1, 2] = np.nextafter(moved[1, 2], 9)
    others = (array.astype(np.float64), array.reshape(3, 2), array.ravel(), moved, array.view(np.int32))
    assert len({digest(array), *map(digest, others)}) == 1 + len(others)


def test_documents_differ_by_their_results_alone(fingerprints):
    first = {
        "lstr": {"mAP": 0.5},
        "seconds": 1.5,
        "speed": {"realtime_factor": 9},
        "delay": {"seconds": [0.1, 0.6]},
        "model": {"lstr": "0.1.0", "made_by": {"date": "2026-11-22"}, "path": "/tmp/a/run"},
    }
    second = {**first, "seconds": 2.5, "speed": None}
    second["model"] = {"path": "/tmp/b/run", "made_by": None, "lstr": "0.2.0"}
    parts = fingerprints.document_parts
    assert parts(first, {"/tmp/a": "WORK"}) == parts(second, {"/tmp/b": "WORK"})
    assert list(parts(first, {})) == ["lstr", "delay", "model"]
    for name, other in (("lstr", {"mAP": 0.5000001}), ("delay", {"seconds": [0.1, 0.7]}), ("model", {"path": "x"})):
        found = parts({**first, name: other}, {})
        assert [key for key in found if found[key] != parts(first, {})[key]] == [name]


def write_checkpoint(path, weight, **entries):
    about = {"versions": {"lstr": path.stem}, "made_by": {"date": path.stem}, "train": {"epochs": 2}, **entries}
    content = {"format": "x/1", "classes": '["a"]', "extra": json.dumps(about), "versions": json.dumps(path.stem)}
    torch.save({**content, "calibration": {"rgb": {"mean": torch.ones(2)}}, "model_state_dict": {"w": weight}}, path)
    return path


def test_a_checkpoint_is_its_tensors_and_its_entries(fingerprints, tmp_path):
    def content(name, weight, **entries):
        return fingerprints.file_content(write_checkpoint(tmp_path / f"{name}.pt", weight, **entries), {})

    weight = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    first = content("a", weight)
    assert set(first["tensors"]) == {"calibration.rgb.mean", "model_state_dict.w"}
    assert set(first["entries"]) == {"format", "classes", "extra.train"}
    assert content("b", weight) == first, "another version and date"
    moved, settled = content("c", weight + 0.01), content("d", weight, train={"epochs": 3})
    assert moved["entries"] == first["entries"] and moved["tensors"] != first["tensors"]
    assert settled["tensors"] == first["tensors"] and settled["entries"] != first["entries"]


def test_pictures_and_videos_are_what_is_seen(fingerprints, equality, tmp_path):
    pixels = np.zeros((4, 4, 3), np.uint8)
    noted = PngInfo()
    noted.add_text("Software", "another version")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(pixels).save(tmp_path / "b.png", pnginfo=noted, compress_level=0)
    pixels[1, 1] = 1
    Image.fromarray(pixels).save(tmp_path / "c.png")
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        equality.draw_video(tmp_path / f"{name}.mp4", seed, seconds=0.5)
    for suffix in ("png", "mp4"):
        a, b, c = (fingerprints.file_content(tmp_path / f"{name}.{suffix}", {}) for name in "abc")
        assert a == b != c


def test_inputs_are_the_same_each_time(equality, fingerprints, tmp_path, monkeypatch, lstr):
    monkeypatch.setenv("LSTR_SHARED", str(tmp_path / "nowhere"))
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        assert equality.write_videos(tmp_path / name) == "drawn"
        equality.write_features(tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*.*") if path.suffix != ".mkv")
        found.append({path.relative_to(tmp_path / name): fingerprints.file_content(path, {}) for path in files})
    assert found[0] == found[1] and len(found[0]) == len(equality.VIDEOS) + 2 * len(equality.FEATURE_VIDEOS) + 3
    for labels in ("videos.json", "features.json"):
        assert lstr("labels", "check", tmp_path / "a" / labels)[0] == 0
    frames = []
    for path in ("videos/fall-15.mp4", "pipe.mkv"):
        with av.open(str(tmp_path / "a" / path)) as container:
            frames.append([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    assert len(frames[0]) == 60 and np.array_equal(*frames)


def test_every_kind_of_model_takes_part(fingerprints):
    presets = importlib.import_module("equality_kinds").PRESETS
    known = kinds_presets()
    known["small"] = known["rnn-small"]  # its earlier name, which both commits accept
    assert {settings.get("model.kind", known[name].model.kind) for name, settings in presets.items()} == set(KINDS)


def make_job(equality, tmp_path, body, results="", **changes):
    script = tmp_path / "script.py"
    script.write_text(body)
    return equality.Job("a job", f"python {script} word", results, **changes)


def test_a_job_leaves_items(equality, tmp_path):
    body = (
        "import sys, os, pathlib, json\n"
        "print(json.dumps({'word': sys.argv[1], 'read': sys.stdin.read(), 'where': os.getcwd(), 'seconds': 1}))\n"
        "for name in 'ab':\n"
        "    pathlib.Path(name).mkdir()\n"
        "    pathlib.Path(name, f'{name}.scores.txt').write_text(os.environ['OMP_NUM_THREADS'])\n"
    )
    (tmp_path / "input").write_text("text")
    for at, (apart, names) in enumerate(
        (
            ("", {"a job": {"a/a.scores.txt", "b/b.scores.txt"}}),
            ("suffix", {"a job .scores.txt": {"a/a.scores.txt", "b/b.scores.txt"}}),
            ("folder", {"a job a": {"a/a.scores.txt"}, "a job b": {"b/b.scores.txt"}}),
        )
    ):
        work = tmp_path / str(at)
        work.mkdir()
        (work / "input").write_text("text")
        job = make_job(equality, tmp_path, body, "*/*.txt", apart=apart, piped="input", document="printed.json")
        items, reason = equality.run(job, ROOT, work)
        assert not reason and {name: set(parts) for name, parts in items.items() if "," not in name} == names
        assert set(items["a job, printed"]) == {"word", "read", "where"}
    lines = make_job(equality, tmp_path, "print('{\"chunk\": 0}')", lines=True)
    assert list(equality.run(lines, ROOT, tmp_path)[0]) == ["a job"]


def test_a_job_that_fails_or_leaves_nothing_says_so(equality, tmp_path):
    failing = make_job(equality, tmp_path, "open('a.txt', 'w').close()\nraise SystemExit('error: no')", "*.txt")
    items, reason = equality.run(failing, ROOT, tmp_path)
    assert (list(items), reason) == (["a job"], "exit code 1: error: no")
    assert equality.run(make_job(equality, tmp_path, "", "*.npy"), ROOT, tmp_path) == ({}, "it left no *.npy")


def write_record(path, **changes):
    items = {"features": {"a.npy": "1", "b.npy": "2"}, "evaluate": {"": "3"}}
    plain = {"about": {"torch": "2.15.0"}, "commit": path.stem, "failed": {}, "items": items}
    path.write_text(json.dumps({"format": "lstr-equality/1", **plain, **changes}))
    return path


def test_what_differs_is_said(equality, tmp_path, capsys):
    def told(**changes):
        after = write_record(tmp_path / "after.json", **changes)
        code = equality.main(["compare", str(write_record(tmp_path / "before.json")), str(after)])
        return code, capsys.readouterr().out.splitlines()[1:]

    same = ["equal    features (2 parts)", "equal    evaluate (1 part)"]
    assert told() == (0, same)
    code, lines = told(about={"torch": "2.16.0"})
    assert code == 0 and lines[0].startswith("note: torch was 2.15.0 and is 2.16.0") and lines[1:] == same
    assert told(failed={"learn": "exit code 1"}) == (1, ["failed   learn, after: exit code 1", *same])
    items = {"features": {"a.npy": "9", "c.npy": "2"}, "evaluate": {"": "4"}, "learn": {"": "5"}}
    assert told(items=items) == (
        1,
        [
            "differs  features: 1 of 2 parts differ (a.npy); 1 gone (b.npy); 1 new (c.npy)",
            "differs  evaluate: 1 of 1 part differ",
            "differs  learn: only after",
        ],
    )
    assert told(items={"features": {"a.npy": "1", "b.npy": "2"}}) == (1, [same[0], "differs  evaluate: only before"])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SystemExit, match="no record"):
        equality.main(["compare", str(tmp_path / "other.json"), str(tmp_path / "before.json")])
