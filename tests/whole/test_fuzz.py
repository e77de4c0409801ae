"""Damaged and hostile files for each reader: it reads them, or raises a typed error of one sentence with a hint.

The slow tests take 20 seconds for each reader, or LSTR_FUZZ_SECONDS.
"""

import copy
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

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
from tests.support.videos import write_video

SECONDS = float(os.environ.get("LSTR_FUZZ_SECONDS", "20"))
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


DIGITS = "@5000 digits@"  # json.dumps refuses such a number
DEEP = "@deep@"  # and such nesting
VALUES = (
    *(None, True, False, 0, -1, 3, 1 << 31, 1 << 63, 10**40, 10**400, 0.5, -0.0, 1e308, -1e308),
    *(float("nan"), float("inf"), DIGITS, DEEP),
    *("", " ", ".", "..", "/", "../x", "a/../../b", "a\0b", "\ud800", "\u202e"),
    *("x" * 5000, "é" * 200, "<b>", "{}", "1"),
    *([], {}, [[]], [None], [1, 2], [0] * 100, [[0, 1], "x"], {"a": 1}, {"": {}}, {"type": "os.system"}),
)
TIMES = ("", "0", "-1", "1e400", "nan", "inf", "9" * 400, "00:00:99,9", "1:2:3:4:5", "-->", "\0", "\ud7ff", *";,<&")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
Files = st.SearchStrategy[bytes | dict[str, bytes]]
"""The content of a file, or contents by name in a folder"""


@st.composite
def mutated_bytes(draw, content: bytes) -> bytes:
    """Replace up to four parts of a file by random bytes, extreme numbers, copies, or nothing."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(content) - 1, 0)) | st.integers(0, min(len(content), 256)))
        size, order = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from(("big", "little")))
        numbers = [(number & ((1 << 8 * size) - 1)).to_bytes(size, order) for number in NUMBERS]
        copied = content[start : start + draw(st.integers(1, 64))]
        new = draw(st.binary(max_size=32) | st.sampled_from([copied, *numbers]))
        end = start + draw(st.sampled_from((0, len(new), len(content))) | st.integers(1, 64))
        content = content[:start] + new + content[end:]
    return content


@st.composite
def mutated_text(draw, text: str) -> bytes:
    """Replace up to four parts of a text by times, or change its bytes."""
    if draw(st.integers(0, 3)) == 0:
        return draw(mutated_bytes(text.encode()))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(start + 12, len(text))))
        text = text[:start] + draw(st.sampled_from(TIMES)) + text[end:]
    return text.encode(errors="surrogatepass")


@st.composite
def mutated_values(draw, value: Any) -> Any:
    """Replace, delete, rename or wrap up to three entries of a JSON value."""
    root = [copy.deepcopy(value)]
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(list_entries(root))))
        change = draw(st.sampled_from(("replace", "replace", "replace", "delete", "rename", "wrap")))
        if change == "delete" and parent is not root:
            del parent[key]
        elif change == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from(("", "..", "x", "a\0b", "\ud800")))] = parent.pop(key)
        elif change == "wrap":
            parent[key] = [parent[key]]
        else:
            parent[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return root[0]


def list_entries(value: dict | list):
    """Yield (parent, key) of every entry."""
    for key, entry in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(entry, dict | list):
            yield from list_entries(entry)


@st.composite
def mutated_json(draw, value: Any) -> bytes:
    """A JSON file with mutated values, and sometimes mutated bytes."""
    content = to_json(draw(mutated_values(value)))
    return draw(mutated_bytes(content)) if draw(st.integers(0, 9)) == 0 else content


def to_json(value: Any) -> bytes:
    text = json.dumps(value).replace(json.dumps(DIGITS), "7" * 5000)
    return text.replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000).encode()


class Target(NamedTuple):
    """A reader, and mutated files for it."""

    name: str  # of the file or folder
    files: Callable[[Path], Files]  # builds the strategy; valid files are written to the folder
    read: Callable[[Path], Any]


def folder_files(contents: dict[str, Any]) -> Files:
    """The files of a folder, JSON values or bytes, with one of them mutated."""
    valid = {name: content if isinstance(content, bytes) else to_json(content) for name, content in contents.items()}

    def mutate(name: str) -> Files:
        mutated = mutated_bytes if isinstance(contents[name], bytes) else mutated_json
        return mutated(contents[name]).map(lambda data: {**valid, name: data})

    return st.sampled_from(sorted(valid)).flatmap(mutate)


def save_bytes(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def mutated_entries(table: dict[str, Any], names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """A table with one of its JSON texts mutated."""

    def mutate(name: str) -> st.SearchStrategy[dict[str, Any]]:
        return mutated_json(json.loads(table[name])).map(lambda data: {**table, name: data.decode(errors="replace")})

    return st.sampled_from(names).flatmap(mutate)


def write_checkpoint(folder: Path, recipe: dict[str, Any]) -> Path:
    model = make_model(configure(**TINY, rgb_dim=8, flow_dim=0), len(CLASSES)).eval()
    thresholds = {"thresholds": {"fall": {"on": 0.4, "off": 0.3}}}
    checkpoint.save(folder / "c.pt", model, CLASSES, recipe, METRICS, thresholds)
    return folder / "c.pt"


def checkpoint_files(folder: Path) -> Files:
    path = write_checkpoint(folder, CONFIGURED)
    content = checkpoint.read(path)
    texts = mutated_entries(content, ("config", "classes", "recipe", "metrics", "extra", "versions"))
    values = (None, 1, [], {}, {"rgb": 1}, {"rgb": {"x": 1}}, {1: torch.zeros(1)}, {"x": torch.zeros(0)})
    replaced = st.builds(
        lambda name, value: {**content, name: value}, st.sampled_from(sorted(content)), st.sampled_from(values)
    )
    return (texts | replaced).map(save_bytes) | mutated_bytes(path.read_bytes())


def weights_files(folder: Path) -> Files:
    card = ModelCard("mine", "rgb", "resnet50", ("Background", "fall"), {"a": "0" * 64}).to_json()
    content = {"state_dict": {"conv1.weight": torch.zeros(2, 3, 1, 1)}, "lstr": card}
    return mutated_entries(content, ("lstr",)).map(save_bytes) | mutated_bytes(save_bytes(content))


def model_files(folder: Path) -> Files:
    about = {"metrics": METRICS, "videos": {"v": "training"}}
    archive = Archive(write_model(folder / "m.lstr", write_checkpoint(folder, RECIPE), None, about).path)
    valid, tensors = (folder / "m.lstr").read_bytes(), archive.read("lstr.safetensors")
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}

    def pack(values: Any, tensors: bytes) -> bytes:
        try:
            entries = json.loads(to_json(values)) if isinstance(values, dict) else {}
            write_archive(folder / "changed.lstr", entries, "", {"lstr.safetensors": tensors})
        except (ValueError, TypeError, RecursionError, ExtractorError):  # Python writes no such JSON
            return valid
        return (folder / "changed.lstr").read_bytes()

    documents = st.builds(pack, mutated_values(document), st.just(tensors))
    return documents | st.builds(pack, st.just(document), mutated_bytes(tensors)) | mutated_bytes(valid)


def read_recipe(path: Path) -> None:
    describe(path, {})
    find_recipe(str(path))


def read_model(path: Path) -> None:
    model = open_model(path)
    read_recipe(path)
    model.checkpoint()
    unpack_model(path, path.parent / f"unpacked-{path.stat().st_mtime_ns}")


def read_checkpoint(path: Path) -> None:
    recipe_of(checkpoint.load(path))
    read_recipe(path)


def feature_files(folder: Path) -> Files:
    array = io.BytesIO()
    np.save(array, np.zeros((8, 1024), np.float32))
    calibration = save_bytes({"rgb": {"bn.mean": torch.zeros(2)}})
    return folder_files(
        {
            **{"recipe.json": RECIPE, "rgb_random_shufflenetv2/v.npy": array.getvalue(), "calibration.pt": calibration},
            **{"records/v.json": RECORD, "failed.jsonl": FAILURE, "videos.jsonl": RECORD},
            "weights.json": {"rgb": "/nowhere/w"},
        }
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


def weights_folders(folder: Path) -> Files:
    recipe = RECIPE | {"rgb": network_recipe("rgb", StreamPreset("shufflenetv2")).to_dict() | {"weights": "mine"}}
    about = {"format": "lstr-weights/1", "name": "mine", "classes": CLASSES, "streams": ["rgb"], "training": {"v": "0"}}
    about |= {"folds": {"v": 1}, "metrics": {"rgb": {"all": {"mAP": 0.5}}}}
    return folder_files({"finetune.json": about, "recipe.json": recipe, "rgb.pth": b"x"})


def annotation_files(form: str) -> Callable[[Path], Files]:
    def files(folder: Path) -> Files:
        (folder / "labels.json").write_bytes(to_json({**LABELS, "database": {"c": DATABASE["c"]}}))
        convert([folder / "labels.json"], form, folder / f"valid.{form}")
        return mutated_text((folder / f"valid.{form}").read_text())

    return files


def json_files(content: object) -> Callable[[Path], Files]:
    return lambda _: mutated_text(to_json(content).decode()) | mutated_json(content)


def read_labels(path: Path) -> None:
    is_label_file(path)
    describe(path, {})
    read_label_file(path)
    convert([path], "csv").text.encode()  # fails for half characters


def video_files(form: str, codec: str) -> Callable[[Path], Files]:
    def files(folder: Path) -> Files:
        video = write_video(folder / f"valid.{form}", range(0, 300, 25), codec=codec)
        return mutated_bytes(video.read_bytes())

    return files


def read_video(path: Path) -> None:
    with path.open("rb") as file:
        look(file.read)
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
    "labels": Target("labels.json", lambda _: mutated_json(LABELS), read_labels),
    "timeline": Target("v.json", lambda _: mutated_json(TIMELINE), read_labels),
    **{f"labels, {x}": Target(f"v.{x}", annotation_files(x), read_labels) for x in ("csv", "eaf", "vtt")},
    "labels, srt": Target("v.srt", lambda _: mutated_text(SUBTITLES), read_labels),
    "labels, boris": Target("v.boris", json_files(BORIS), read_labels),
    "labels, exports of BORIS": Target("v.csv", lambda _: mutated_text(EXPORT), read_labels),
    "labels, binary": Target("v.csv", lambda _: mutated_text(BINARY), read_labels),
    "labels, Label Studio": Target("v.json", json_files(TASKS), read_labels),
    "recipe": Target("recipe.json", lambda _: mutated_json(CONFIGURED), read_recipe),
    "recipe file": Target("own.json", lambda _: mutated_json(PRESET), read_recipe),
    "metrics": Target("metrics.json", lambda _: mutated_json(METRICS), metrics_from),
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
# Examples of the readers that take a millisecond each, in every run, always the same ones
QUICK = {"labels": 60, "timeline": 40, "labels, boris": 40, "weights folder": 40}
QUICK |= {"recipe": 100, "recipe file": 100, "metrics": 100}


def read_examples(target: Target, folder: Path, count: int, same: bool) -> None:
    """Read mutated files; fail on an error without type or hint, and on files that are left in the folder."""
    (folder / "valid").mkdir()
    path = folder / target.name
    checks = list(HealthCheck)

    @settings(database=None, suppress_health_check=checks, print_blob=False, max_examples=count, derandomize=same)
    @given(target.files(folder / "valid"))
    def read(files: bytes | dict[str, bytes]) -> None:
        for name, content in (files if isinstance(files, dict) else {"": files}).items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        try:
            target.read(path)
        except LstrError as error:
            sentence, *cells = str(error).split("\n")
            assert error.hint and sentence and all(line.startswith("  ") for line in cells), error

    read()
    assert {p.name for p in folder.iterdir() if not p.name.startswith("unpacked-")} <= {"valid", target.name}


@pytest.mark.parametrize("name", QUICK)
def test_readers_reject_mutated_files(tmp_path, name):
    read_examples(TARGETS[name], tmp_path, QUICK[name], same=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_readers_reject_mutated_files_for_longer(tmp_path, name):
    end, turn = monotonic() + SECONDS, 0
    while monotonic() < end:
        (tmp_path / str(turn)).mkdir()
        read_examples(TARGETS[name], tmp_path / str(turn), 200, same=False)
        turn += 1
