"""`lstr finetune`: from videos to a weights folder, and its errors."""

import json
import shutil

import pytest
import torch

from lstr.extractors.networks.build import identify
from lstr.extractors.networks.weights_file import read_card
from lstr.extractors.networks.weights_folder import open_weights
from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.learning import change_labels
from tests.support.training import read_log

SETTINGS = {"short_side": 32, "crop": 32, "batch_size": 8, "draws": 8, "epochs": 2, "precision": "float32"}
SMALL = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home with the cache of all tests")


@pytest.fixture
def finetune(lstr, small_set, home, monkeypatch):
    """Return finetune(output, *options), which runs the command on the small set or on other videos and labels."""
    monkeypatch.setenv("LSTR_HOME", str(home))

    def run(output, *options, videos=small_set.videos, labels=small_set.labels):
        flow = () if "rgb" in options else ("--set", "recipe.flow_algorithm=dis")
        return lstr("finetune", videos, "--labels", labels, "-o", output, *SMALL, *flow, *options)

    return run


@pytest.mark.slow
def test_both_streams_are_trained_without_a_damaged_video(finetune, small_set, tmp_path):
    """The damaged video is reported, and the exit code is 3. A second run has nothing to do."""
    videos = shutil.copytree(small_set.videos, tmp_path / "videos")
    labels = change_labels(small_set.labels.parent, tmp_path, lambda videos: videos.update(cut=videos["scene_00"]))
    whole = (videos / "scene_00.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    words = ("--json", "--set", "eval_subset=testing")
    code, out, err = finetune(tmp_path / "my weights", *words, videos=videos, labels=labels)
    assert code == 3 and "failed: cut: " in err and "hint: " in err and "epoch 2/2" in err, err
    result, weights = json.loads(out), open_weights(tmp_path / "my weights")
    assert result["name"] == weights.about["name"] == "my-weights" and result["streams"] == ["rgb", "flow"]
    assert [failed["id"] for failed in result["failed"]] == ["cut"]
    assert set(result["training"]) == {"scene_00", "scene_01", "scene_02"} and set(result["validation"]) == {"scene_03"}
    assert weights.recipe.crop == 32 and weights.recipe.algorithm == "dis"
    assert weights.recipe.rgb.folder("rgb") == "rgb_my-weights_resnet50"
    for stream, network in (("rgb", "resnet50"), ("flow", "bninception")):
        assert identify(weights.file(stream)) == (network, stream)
        assert set(read_card(weights.file(stream)).seen) == {f"scene_0{i}" for i in range(4)}
        assert 0 <= result["metrics"][stream]["all"]["mAP"] <= 1
    lines = read_log(weights.path, ())
    assert [(line["stage"], line["epoch"]) for line in lines] == [("flow", 1), ("flow", 2), ("rgb", 1), ("rgb", 2)]
    assert {"loss", "lr", "rate", "waiting", "memory_mb"} <= lines[0].keys()
    assert_error(finetune(tmp_path / "second", "--stream", "rgb", "--init", weights.file("flow")), 4, "bninception")
    code, out, err = finetune(weights.path, "--resume", videos=videos, labels=labels)
    assert code == 0 and "flow" in out and "epoch 1/" not in err


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("--stream", "flow", "--init", "resnet50.pth"), 4, "bninception"),
        (("--stream", "rgb", "--init", "missing.pth"), 2, "missing.pth"),
        (("--stream", "rgb", "--init", "flow=random"), 4, "--init flow"),
        (("--init", "kinetics"), 4, "lstr weights fetch"),
        (("--recipe", "videos"), 4, "recipe.json"),
        (("--set", "epoch=3", "--resume"), 2, "'epoch'"),
        (("--set", "crop=40"), 2, "crop"),
        (("--set", "depth.lr=1"), 2, "depth.lr"),
        (("--set", "subset=other"), 2, "other"),
        (("--set", "eval_subset=training"), 2, "training"),
        (("--set", "cache_size=1MB"), 2, "cache_size"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(finetune, small_set, tmp_path, monkeypatch, options, code, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "videos").symlink_to(small_set.videos)
    if "resnet50.pth" in options:
        torch.save(build_backbone("resnet50", 3).state_dict(), "resnet50.pth")
    status, out, err = finetune(tmp_path / "out", *options)
    assert status == code and out == "" and value in err and err.count("hint: ") == 1 and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_outputs_videos_and_labels_that_cannot_be_used(finetune, lstr, small_set, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "scene_00.mp4").write_text("no video")
    assert_error(finetune(folder, "--resume"), 4, "-o")
    assert_error(finetune(folder), 4, "-o")
    assert_error(finetune(folder / "scene_00.mp4"), 2, "-o")
    assert_error(finetune("/proc/none"), 2, "-o")
    assert_error(lstr("finetune", "--labels", small_set.labels, "-o", tmp_path / "out"), 2)
    code, out, err = finetune(tmp_path / "out", videos=folder)
    assert code == 3 and out == "" and err.count("failed: ") == 1
    labels = change_labels(
        small_set.labels.parent, tmp_path, lambda videos: [video["annotations"].clear() for video in videos.values()]
    )
    assert_error(finetune(tmp_path / "weights", labels=labels), 2)
    assert not (tmp_path / "weights").exists()
