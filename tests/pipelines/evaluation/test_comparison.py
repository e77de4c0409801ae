"""Model files on videos that none of them has seen, each by features of its own."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import load, save
from lstr.errors import SeenError
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.recipe import Recipe
from lstr.kinds import configure, make_model
from lstr.labels.label_set import AMBIGUOUS
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.evaluation.comparison import unseen
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import write_average, write_model
from tests.support.feature_set import TINY
from tests.support.small_set import DIMS, NAMES


def write(folder: Path, name: str, of: Checkpoint, seed: int, streams=("rgb", "flow"), metrics=None) -> ModelFile:
    """A model that nobody has trained, on the features that a checkpoint is of."""
    torch.manual_seed(seed)
    recipe = Recipe.from_dict(of.recipe, "the checkpoint").narrowed(streams)
    dims = {f"{stream}_dim": width if stream in streams else 0 for stream, width in zip(NAMES, DIMS, strict=True)}
    model = make_model(configure(**TINY | dims), len(of.classes)).eval()
    calibration = {stream: of.calibration[stream] for stream in streams if stream in of.calibration}
    path = folder / f"{name}.pt"
    save(path, model, of.classes, json.loads(recipe.to_json()), metrics or of.metrics, {}, calibration)
    return write_model(folder / f"{name}.lstr", path, None, {})


@pytest.fixture(scope="module")
def trained(small_set) -> Checkpoint:
    return load(small_set.checkpoint)


@pytest.fixture(scope="module")
def models(small_set, trained, tmp_path_factory):
    """Two files that have seen three of the four videos."""
    folder = tmp_path_factory.mktemp("compared")
    for seed, name in enumerate(("old", "new")):
        write(folder, name, trained, seed)
    return folder


@pytest.mark.long
def test_they_are_compared_on_what_neither_has_seen(lstr, small_set, models, tmp_path):
    """A person may have left a part of a video open: of that the models know no class."""
    labels = json.loads(small_set.labels.read_text())
    (left,) = (i for i, video in labels["database"].items() if video["subset"] == "testing")
    labels["classes"].append(AMBIGUOUS)
    labels["database"][left]["annotations"].append({"label": AMBIGUOUS, "segment": [0, 0.5]})
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    words = ("evaluate", models / "old.lstr", models / "new.lstr", small_set.videos, tmp_path / "labels.json")
    code, out, err = lstr(*words, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["videos"] == [left] and [one["name"] for one in document["checkpoints"]] == ["old", "new"]
    assert AMBIGUOUS not in document["checkpoints"][0]["lstr"]["per_class"]
    row = document["comparison"][0]
    old, new = (one["lstr"]["mAP"] for one in document["checkpoints"])
    assert (row["mAP"]["old"], row["mAP"]["new"]) == (old, new) and old != new
    assert document["better"] is None and document["sentence"]


@pytest.mark.long
def test_what_cannot_be_compared(lstr, small_set, models, tmp_path):
    old, new = models / "old.lstr", models / "new.lstr"
    labels = json.loads(small_set.labels.read_text())

    def check(expected: int, *words) -> None:
        code, _, err = lstr("evaluate", *words)
        assert code == expected and "hint: " in err, (words, err)

    def labels_file(name: str, content: dict) -> Path:
        (tmp_path / name).write_text(json.dumps(content))
        return tmp_path / name

    seen = [small_set.videos / f"{i}.mp4" for i, video in labels["database"].items() if video["subset"] == "training"]
    check(4, old, new, *seen, small_set.labels)
    for words in ((old, small_set.labels), (small_set.videos, small_set.labels), (old, old)):
        check(2, *words)
    for more in ("--published", "--allow-seen", "--choose-thresholds", "--set=model.n_heads=2", "--set=mode=stream"):
        check(2, old, new, small_set.videos, small_set.labels, more)
    unknown = labels_file("unknown.json", labels | {"classes": [*labels["classes"], "fly"]})
    check(4, old, new, small_set.videos, unknown)
    backwards = json.loads(json.dumps(labels))
    for video in backwards["database"].values():
        video["annotations"] = [video["annotations"][0] | {"segment": [2, 1]}]
    check(2, old, new, small_set.videos, labels_file("backwards.json", backwards))
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    labels["database"]["broken"] = {**labels["database"]["scene_00"], "subset": "testing"}
    code, out, err = lstr("evaluate", old, new, small_set.videos, tmp_path, labels_file("labels.json", labels))
    assert code == 3 and out and "broken" in err


def test_a_video_is_known_by_content_under_another_name(models, small_set, tmp_path):
    opened = [open_model(models / name) for name in ("old.lstr", "new.lstr")]
    first = min(small_set.videos.iterdir())
    seen = write_model(tmp_path / "seen.lstr", models / "old.pt", None, {"seen": {"x": sha256_of(first)}})
    renamed = tmp_path / "other.mp4"
    shutil.copy(first, renamed)
    assert unseen({"other": renamed}, opened).keys() == {"other"}
    with pytest.raises(SeenError):
        unseen({"other": renamed}, [seen])
    with pytest.raises(SeenError):
        unseen({opened[0].checkpoint("cpu").metrics["training_videos"][0]: tmp_path / "gone.mp4"}, opened)


def test_a_video_that_chose_an_epoch_is_known(trained, small_set, tmp_path):
    """Of runs of `lstr train` too, and of an average of them."""
    videos = {"left": min(small_set.videos.iterdir())}
    seen = {"training_videos": ["scene_09"]}
    last = write(tmp_path, "last", trained, 0, metrics=seen)
    best = write(tmp_path, "best", trained, 1, metrics=seen | {"validation_videos": ["left"]})
    write_average(tmp_path / "both.pt", [tmp_path / "last.pt", tmp_path / "best.pt"])
    for packed in (best, write_model(tmp_path / "both.lstr", tmp_path / "both.pt", None, {})):
        with pytest.raises(SeenError):
            unseen(videos, [packed])
    assert unseen(videos, [last]) == videos
