"""The comparison of model files on videos that none of them was trained on."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import load, save
from lstr.errors import SeenError
from lstr.extractors.networks.weights_file import sha256_of
from lstr.kinds import configure, make_model
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.evaluation.comparison import unseen
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.model_files.packing import write_average, write_model
from tests.support.feature_set import TINY
from tests.support.small_set import DIMS


def write(folder: Path, name: str, template: Checkpoint, seed: int, metrics=None) -> ModelFile:
    """Write an untrained model for the features of a checkpoint."""
    torch.manual_seed(seed)
    model = make_model(configure(**TINY, rgb_dim=DIMS[0], flow_dim=DIMS[1]), len(template.classes)).eval()
    path, metrics = folder / f"{name}.pt", metrics or template.metrics
    save(path, model, template.classes, template.recipe, metrics, {}, template.calibration)
    return write_model(folder / f"{name}.lstr", path, None, {})


@pytest.fixture(scope="module")
def trained(small_set) -> Checkpoint:
    return load(small_set.checkpoint)


@pytest.fixture(scope="module")
def models(trained, tmp_path_factory):
    """Two files that were trained on three of the four videos."""
    folder = tmp_path_factory.mktemp("compared")
    return [write(folder, name, trained, seed).path for seed, name in enumerate(("old", "new"))]


@pytest.mark.long
def test_models_are_compared_on_videos_of_no_training(run, small_set, models):
    testing = read_split(small_set.features, small_set.labels, "testing").videos[0].id
    document = json.loads(run("evaluate", *models, small_set.videos, small_set.labels, "--json")[0])
    first, second = document["checkpoints"]
    assert document["videos"] == [testing] and (first["name"], second["name"]) == ("old", "new")
    assert first["chance"]["mAP"] > 0 and first["time_prior"]["mAP"] > 0, "from the training videos of the label file"
    assert first["interval"] is None, "one video has no interval"
    values = document["comparison"][0]["mAP"]
    assert (values["old"], values["new"]) == (first["lstr"]["mAP"], second["lstr"]["mAP"])
    assert values["old"] != values["new"] and document["better"] is None and document["sentence"]


@pytest.mark.long
def test_invalid_comparisons_are_refused(lstr, small_set, models, tmp_path):
    videos, own_labels = small_set.videos, small_set.labels
    labels = json.loads(own_labels.read_text())

    def check(expected: int, *words) -> None:
        code, _, err = lstr("evaluate", *words)
        assert code == expected and "hint: " in err, (words, err)

    def write_labels(content: dict) -> Path:
        (tmp_path / "labels.json").write_text(json.dumps(content))
        return tmp_path / "labels.json"

    seen = [videos / f"{i}.mp4" for i, video in labels["database"].items() if video["subset"] == "training"]
    check(4, *models, *seen, own_labels)
    for words in ((models[0], own_labels), (videos, own_labels), models, (*models, *seen, own_labels, "--subset=val")):
        check(2, *words)
    for option in ("--published", "--allow-seen", "--choose-thresholds", "--set=model.n_heads=2", "--set=mode=stream"):
        check(2, *models, videos, own_labels, option)
    check(4, *models, videos, write_labels(labels | {"classes": [*labels["classes"], "fly"]}))
    reversed_times = {"label": labels["classes"][1], "segment": [2, 1]}
    entries = {i: video | {"annotations": [reversed_times]} for i, video in labels["database"].items()}
    check(2, *models, videos, write_labels(labels | {"database": entries}))
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    labels["database"]["broken"] = {**labels["database"]["scene_00"], "subset": "testing"}
    code, out, err = lstr("evaluate", *models, videos, tmp_path, write_labels(labels))
    assert code == 3 and out and "broken" in err


def test_training_videos_are_recognised_by_id_and_by_content(models, small_set, tmp_path):
    opened = [open_model(path) for path in models]
    video, copy = min(small_set.videos.iterdir()), tmp_path / "other.mp4"
    shutil.copy(video, copy)
    assert unseen({"other": copy}, opened).keys() == {"other"}
    seen = write_model(tmp_path / "seen.lstr", models[0].with_suffix(".pt"), None, {"seen": {"x": sha256_of(video)}})
    with pytest.raises(SeenError):
        unseen({"other": copy}, [seen])
    with pytest.raises(SeenError):
        unseen({opened[0].checkpoint("cpu").metrics["training_videos"][0]: tmp_path / "missing.mp4"}, opened)


def test_validation_videos_count_as_training_videos_also_of_a_model_in_an_average(trained, small_set, tmp_path):
    videos = {"validation": min(small_set.videos.iterdir())}
    metrics = {"training_videos": ["scene_09"]}
    last = write(tmp_path, "last", trained, 0, metrics)
    best = write(tmp_path, "best", trained, 1, metrics | {"validation_videos": ["validation"]})
    write_average(tmp_path / "both.pt", [tmp_path / "last.pt", tmp_path / "best.pt"])
    for model in (best, write_model(tmp_path / "both.lstr", tmp_path / "both.pt", None, {})):
        with pytest.raises(SeenError):
            unseen(videos, [model])
    assert unseen(videos, [last]) == videos
