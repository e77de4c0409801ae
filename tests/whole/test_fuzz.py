"""Damaged and hostile files for each reader: it reads them, or raises a typed error of one sentence with a hint.

A minute for each in the slow set; LSTR_FUZZ_SECONDS makes it another time.
"""

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lstr import checkpoint
from lstr.errors import ExtractorError, LstrError
from lstr.extractors.networks.archive import Archive, write_archive
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.weights_file import ModelCard, read_card, read_state_dict
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import StreamPreset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.video.containers import look
from lstr.extractors.video.probe import probe
from lstr.kinds import configure, make_model
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.label_files import is_label_file, read_label_file
from lstr.pipelines.failures import FailureLog
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import open_output
from lstr.pipelines.features.recipes import find_recipe
from lstr.pipelines.info import describe
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.networks import recipe_of
from lstr.pipelines.model_files.packing import metrics_from, unpack_model, write_model
from tests.support.backbones import scale_of
from tests.support.feature_set import TINY
from tests.support.mutations import as_json, changed_bytes, changed_json, changed_text, changed_values
from tests.support.videos import write_video

SECONDS = float(os.environ.get("LSTR_FUZZ_SECONDS", "60"))
CLASSES = ["Background", "fall"]
PART = NetworkRecipe("shufflenetv2", "random", "0" * 16, 1, *scale_of("shufflenetv2", "rgb"), seed=2021)
RECIPE = Recipe(PART, None, flow_algorithm=None, long_side=96, short_side=64, crop=64).to_dict()
CONFIGURED = RECIPE | {"rgb": PART.to_dict() | {"network": "mine", "width": 512}}
NETWORK = {"network": "resnet18", "weights": None, "crops": 1, "mean": [1, 2, 3], "std": [1, 1, 1]}
PRESET = {"based_on": "fast", "rgb": NETWORK, "flow": None, "long_side": 320, "crop": 224}
DATABASE = {
    "a/b": {"subset": "train", "duration": 9.5, "annotations": [{"label": "fall", "segment": [0, 1.5]}]},
    "c": {"subset": "testing", "duration": 4, "annotations": [{"label": "sit", "segment": ["0:01", "0:02.5"]}]},
}
LABELS = {"version": "1", "classes": ["fall", "sit"], "database": DATABASE}
RECORD = {"id": "v", "bytes": 1, "mtime": 1.5, "recipe": "0" * 12, "chunks": 8, "arrays": {"rgb": {"signature": "0"}}}
FAILURE = {"id": "w", "source": "w.mp4", "reason": "it is damaged"}
METRICS = {"lstr": {"mAP": 0.5, "per_class": {"fall": {"AP": 0.5}}}, "videos": 3}
SWEPT = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


@dataclass(frozen=True)
class Target:
    """A reader, and what makes unsound files for it."""

    name: str
    """Of the file, or of the folder."""
    files: Callable[[Path], st.SearchStrategy[dict[str, bytes]]]
    """Contents by name, from a folder to make the sound ones in; "" is the file itself."""
    read: Callable[[Path], Any]


def one(content: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[str, bytes]]:
    return content.map(lambda made: {"": made})


def saved(content: Any) -> bytes:
    target = io.BytesIO()
    torch.save(content, target)
    return target.getvalue()


def json_in(sound: dict[str, Any], names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """A table of which some entries are JSON texts, with one of these changed."""

    def change(name: str) -> st.SearchStrategy[dict[str, Any]]:
        text = changed_json(json.loads(sound[name])).map(lambda made: made.decode(errors="replace"))
        return text.map(lambda made: {**sound, name: made})

    return st.sampled_from(names).flatmap(change)


def checkpoint_files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
    model = make_model(configure(**TINY, rgb_dim=8, flow_dim=0), len(CLASSES)).eval()
    checkpoint.save(folder / "c.pt", model, CLASSES, CONFIGURED, METRICS, {"thresholds": {"fall": {"on": 0.4}}})
    content = checkpoint.read(folder / "c.pt")
    texts = json_in(content, ("config", "classes", "recipe", "metrics", "extra", "versions"))
    odd = (None, 1, [], {}, {"rgb": 1}, {"rgb": {"x": 1}}, {1: torch.zeros(1)}, {"x": torch.zeros(0)})
    tables = st.sampled_from(odd)
    other = st.tuples(st.sampled_from(sorted(content)), tables).map(lambda changed: {**content, changed[0]: changed[1]})
    whole = (folder / "c.pt").read_bytes()
    return one(st.one_of(texts.map(saved), other.map(saved), changed_bytes(whole)))


def weights_files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
    card = ModelCard("mine", "rgb", "resnet50", ("Background", "fall"), {"a": "0" * 64}).to_json()
    content = {"state_dict": {"conv1.weight": torch.zeros(2, 3, 1, 1)}, "lstr": card}
    return one(json_in(content, ("lstr",)).map(saved) | changed_bytes(saved(content)))


def model_files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
    model = make_model(configure(**TINY, rgb_dim=8, flow_dim=0), len(CLASSES)).eval()
    checkpoint.save(folder / "c.pt", model, CLASSES, RECIPE, METRICS, {"thresholds": {"fall": {"on": 0.4, "off": 0.3}}})
    made = write_model(folder / "m.lstr", folder / "c.pt", None, {"metrics": METRICS, "videos": {"v": "training"}})
    whole = made.path.read_bytes()
    archive = Archive(made.path)
    parts = {"lstr.safetensors": archive.read("lstr.safetensors")}
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}

    def packed(values: Any) -> bytes:
        try:
            changed = json.loads(as_json(values)) if isinstance(values, dict) else {}
            write_archive(folder / "changed.lstr", changed, "", parts)
        except (ValueError, TypeError, RecursionError, ExtractorError):  # Python writes no such JSON
            return whole
        return (folder / "changed.lstr").read_bytes()

    tensors = changed_bytes(parts["lstr.safetensors"]).map(lambda new: parts | {"lstr.safetensors": new})

    def with_tensors(changed: dict[str, bytes]) -> bytes:
        write_archive(folder / "changed.lstr", document, "", changed)
        return (folder / "changed.lstr").read_bytes()

    return one(st.one_of(changed_values(document).map(packed), tensors.map(with_tensors), changed_bytes(whole)))


def read_recipe(path: Path) -> None:
    describe(path, {})
    find_recipe(str(path))


def read_model(path: Path) -> None:
    model = open_model(path)
    read_recipe(path)
    model.checkpoint()
    unpack_model(path, path.parent / f"unpacked-{path.stat().st_mtime_ns}")


def read_checkpoint(path: Path) -> None:
    loaded = checkpoint.load(path)
    recipe_of(loaded)
    read_recipe(path)


def one_of_several(contents: dict[str, Any]) -> st.SearchStrategy[dict[str, bytes]]:
    """The files of a folder, JSON values or bytes, with one of them changed."""
    sound = {name: content if isinstance(content, bytes) else as_json(content) for name, content in contents.items()}

    def change(name: str) -> st.SearchStrategy[dict[str, bytes]]:
        changed = changed_bytes if isinstance(contents[name], bytes) else changed_json
        return changed(contents[name]).map(lambda made: {**sound, name: made})

    return st.sampled_from(sorted(sound)).flatmap(change)


def feature_files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
    target = io.BytesIO()
    np.save(target, np.zeros((8, 1024), np.float32))
    records = {"records/v.json": RECORD, "failed.jsonl": FAILURE, "videos.jsonl": RECORD}
    networks = {"weights.json": {"rgb": "/nowhere/w"}, "calibration.pt": saved({"rgb": {"bn.mean": torch.zeros(2)}})}
    return one_of_several(
        {"recipe.json": RECIPE, "rgb_random_shufflenetv2/v.npy": target.getvalue(), **records, **networks}
    )


def read_features(path: Path) -> None:
    folder = open_features(path)
    for video_id in folder.ids():
        folder.load(video_id)
        folder.read_record(video_id)
    FailureLog(path).finish([])
    if output := open_output(path):
        output.compile()
    read_recipe(path)


def weights_folders(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
    recipe = RECIPE | {"rgb": network_recipe("rgb", StreamPreset("shufflenetv2")).to_dict() | {"weights": "mine"}}
    about = {"format": "lstr-weights/1", "name": "mine", "classes": CLASSES, "streams": ["rgb"], "training": {"v": "0"}}
    about |= {"folds": {"v": 1}, "metrics": {"rgb": {"all": {"mAP": 0.5}}}}
    return one_of_several({"finetune.json": about, "recipe.json": recipe, "rgb.pth": b"x"})


def annotation_files(form: str) -> Callable[[Path], st.SearchStrategy[dict[str, bytes]]]:
    def files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
        (folder / "labels.json").write_bytes(as_json({**LABELS, "database": {"c": DATABASE["c"]}}))
        convert([folder / "labels.json"], form, folder / f"sound.{form}")
        return one(changed_text((folder / f"sound.{form}").read_text()))

    return files


def json_files(content: object) -> Callable[[Path], st.SearchStrategy[dict[str, bytes]]]:
    return lambda _: one(changed_text(as_json(content).decode()) | changed_json(content))


def read_labels(path: Path) -> None:
    is_label_file(path)
    describe(path, {})
    read_label_file(path)
    assert convert([path], "csv").text.encode() is not None, "no half characters"


def video_files(form: str, codec: str) -> Callable[[Path], st.SearchStrategy[dict[str, bytes]]]:
    def files(folder: Path) -> st.SearchStrategy[dict[str, bytes]]:
        return one(changed_bytes(write_video(folder / f"sound.{form}", range(0, 300, 25), codec=codec).read_bytes()))

    return files


def read_video(path: Path) -> None:
    with path.open("rb") as piped:
        look(piped.read)
    probe(path)


TIMELINE = {
    **{"format": "lstr-timeline/1", "source": "v.mp4", "duration": 4.0, "classes": CLASSES, "seconds_per_chunk": 0.25},
    **{"chunks": 16, "gaps": [], "segments": [{"label": "fall", "start": 0.5, "end": 1.5, "score": 0.5}]},
}
EXPORT = """Observation id,Time offset (s),Media duration (s),FPS,Subject,Behavior,Modifier #1,Behavior type,Time,\
Media file name
o,0.5,10,25,ann,walk,fast,START,1.5,a.mp4
o,0.5,10,25,ann,walk,fast,STOP,2.5,a.mp4
o,0.5,10,25,,call,,POINT,3,a.mp4
"""
OBSERVATION = {
    **{"type": "MEDIA", "file": {"1": ["a.mp4", "b.mp4"], "2": []}, "time offset": 0.5},
    **{"observation time interval": [0, 0], "independent_variables": {"subset": "training"}},
    "media_info": {"length": {"a.mp4": 10.0, "b.mp4": 5.0}},
    "events": [[1.5, "ann", "walk", "fast", ""], [12.0, "ann", "walk", "fast", ""], [3, "2", "call", "", "x"]],
}
ETHOGRAM = {
    "0": {"code": "walk", "type": "State event", "category": ""},
    "1": {"code": "call", "type": "Point event", "category": "x"},
}
SUBJECTS = {"0": {"key": "", "name": "2", "description": "the same behaviour at the same time"}}
BORIS = {"behaviors_conf": ETHOGRAM, "subjects_conf": SUBJECTS, "observations": {"o": OBSERVATION}}
REGION = {"type": "timelinelabels", "value": {"ranges": [{"start": 1, "end": 50}], "timelinelabels": ["walk"]}}
DATA = {"video": "/data/upload/3/ab12cd00-a.mp4", "fps": 25, "subset": "training", "duration": 10.0}
TASKS = [{"data": DATA, "annotations": [{"completed_by": 1, "was_cancelled": False, "result": [REGION]}]}]
SUBTITLES = "1\n00:00:01,250 --> 00:00:03,500\n<b>jump</b>\n\n2\n00:00:04,750 --> 00:00:06,125\nwave\n"
BINARY = "time,walk,run\n0,0,0\n0.5,1,1\n1,0,0\n1.5,0,1\n"
TARGETS = {
    "labels": Target("labels.json", lambda _: one(changed_json(LABELS)), read_labels),
    "timeline": Target("v.json", lambda _: one(changed_json(TIMELINE)), read_labels),
    **{f"labels, {x}": Target(f"v.{x}", annotation_files(x), read_labels) for x in ("csv", "eaf", "vtt")},
    "labels, srt": Target("v.srt", lambda _: one(changed_text(SUBTITLES)), read_labels),
    "labels, boris": Target("v.boris", json_files(BORIS), read_labels),
    "labels, exports of BORIS": Target("v.csv", lambda _: one(changed_text(EXPORT)), read_labels),
    "labels, binary": Target("v.csv", lambda _: one(changed_text(BINARY)), read_labels),
    "labels, Label Studio": Target("v.json", json_files(TASKS), read_labels),
    "recipe": Target("recipe.json", lambda _: one(changed_json(CONFIGURED)), read_recipe),
    "recipe file": Target("own.json", lambda _: one(changed_json(PRESET)), read_recipe),
    "metrics": Target("metrics.json", lambda _: one(changed_json(METRICS)), metrics_from),
    "checkpoint": Target("c.pt", checkpoint_files, read_checkpoint),
    "weights": Target("w.pth", weights_files, lambda p: (read_card(p), read_state_dict(p))),
    "weights folder": Target("w", weights_folders, lambda p: (open_weights(p), read_recipe(p))),
    "model file": Target("m.lstr", model_files, read_model),
    "features": Target("f", feature_files, read_features),
    **{
        x: Target(f"v.{x}", video_files(x, c), read_video)
        for x, c in (("mp4", "h264"), ("mkv", "h264"), ("avi", "mpeg4"))
    },
}
QUICK = {"labels": 60, "timeline": 40, "labels, boris": 40, "weights folder": 40}
QUICK |= {"recipe": 100, "recipe file": 100, "metrics": 100}
"""Examples of the readers that take a millisecond each, in every run, always the same ones."""


def sweep(target: Target, folder: Path, examples: int, same: bool) -> None:
    """Read so many unsound files; what is no typed error with a hint fails the test."""
    (folder / "sound").mkdir()
    path = folder / target.name

    @settings(SWEPT, max_examples=examples, derandomize=same)
    @given(target.files(folder / "sound"))
    def read(files: dict[str, bytes]) -> None:
        for name, content in files.items():
            file = path / name if name else path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        try:
            target.read(path)
        except LstrError as error:
            assert error.hint, error
            assert "\n" not in str(error), "one sentence"

    read()
    assert {p.name for p in folder.iterdir() if not p.name.startswith("unpacked-")} <= {"sound", target.name}


@pytest.mark.parametrize("name", QUICK)
def test_what_a_reader_makes_of_unsound_files(tmp_path, name):
    sweep(TARGETS[name], tmp_path, QUICK[name], same=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute_of_unsound_files(tmp_path, name):
    end, turn = monotonic() + SECONDS, 0
    while monotonic() < end:
        (tmp_path / str(turn)).mkdir()
        sweep(TARGETS[name], tmp_path / str(turn), 200, same=False)
        turn += 1
