"""`lstr finetune` from videos to a weights folder, and what a user's mistakes end in."""

import json
import shutil

import pytest
import torch

from lstr.extractors.networks.build import identify, randomise
from lstr.extractors.networks.weights_file import read_card
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import PRESETS
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.pipelines.training.network_run import NetworkRun
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.backbones import build_backbone
from tests.support.mistakes import mistake

SETTINGS = {"short_side": 32, "crop": 32, "batch_size": 8, "draws": 8, "epochs": 2, "precision": "float32"}
SMALL = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def acted(tmp_path_factory):
    """The videos and labels of `small_set`: three to train on, one for testing."""
    root = tmp_path_factory.mktemp("acted videos")
    labels = render_scenes(root, SceneConfig(n_videos=4, n_testing=1, seconds=5.0, width=96, height=64))
    return root / "videos", labels


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One cache for all tests here, so that each video's flow is computed once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def finetune(lstr, acted, home, monkeypatch):
    """finetune(output, *options): the command on the set, or on other videos and labels that are given."""
    monkeypatch.setenv("LSTR_HOME", str(home))

    def run(output, *options, videos=None, labels=None):
        flow = () if "rgb" in options else ("--set", "recipe.flow_algorithm=dis")
        given = ("--labels", labels or acted[1], "-o", output, *SMALL, *flow, *options)
        return lstr("finetune", videos or acted[0], *given)

    return run


@pytest.mark.slow
def test_from_videos_to_weights(finetune, acted, tmp_path):
    """Both streams; a damaged video is named, left out, and leaves exit code 3. Then one more run is only told."""
    videos = tmp_path / "videos"
    shutil.copytree(acted[0], videos)
    content = json.loads(acted[1].read_text())
    content["database"]["cut"] = content["database"]["scene_00"]
    (tmp_path / "labels.json").write_text(json.dumps(content))
    whole = (videos / "scene_00.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    given = {"videos": videos, "labels": tmp_path / "labels.json"}
    code, out, err = finetune(tmp_path / "my weights", "--json", "--set", "eval_subset=testing", **given)
    assert code == 3 and "failed: cut: " in err and "hint: " in err and "1 of 5 videos were skipped: cut" in err, err
    assert "flow: epoch 2/2 loss " in err and " mAP " in err and "% mAP" in err
    result = json.loads(out)
    weights = open_weights(tmp_path / "my weights")
    assert result["name"] == weights.about["name"] == "my-weights" and result["streams"] == ["rgb", "flow"]
    assert [failed["id"] for failed in result["failed"]] == ["cut"]
    assert set(result["training"]) == {"scene_00", "scene_01", "scene_02"} and set(result["validation"]) == {"scene_03"}
    assert weights.recipe.crop == 32 and weights.recipe.algorithm == "dis"
    assert weights.recipe.rgb.folder("rgb") == "rgb_my-weights_resnet50"
    for stream, network in (("rgb", "resnet50"), ("flow", "bninception")):
        assert identify(weights.file(stream)) == (network, stream)
        assert set(read_card(weights.file(stream)).seen) == {f"scene_0{i}" for i in range(4)}
        assert 0 <= result["metrics"][stream]["all"]["mAP"] <= 1
    lines = [json.loads(line) for line in (weights.path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [("flow", 1), ("flow", 2), ("rgb", 1), ("rgb", 2)]
    assert {"loss", "lr", "rate", "waiting", "memory_mb"} <= lines[0].keys()
    mistake(finetune(tmp_path / "second", "--stream", "rgb", "--init", weights.file("flow")), 4, "holds a bninception")
    mistake(finetune(weights.path, "--stream", "flow"), 4, "holds finished weights", "-o")
    code, out, err = finetune(weights.path, "--resume", **given)
    assert code == 0 and "is finished" in err and "flow" in out and "epoch 1/" not in err


@pytest.mark.slow
def test_a_run_that_was_stopped(finetune, tmp_path, monkeypatch):
    """Ctrl-C in an epoch: what is there is kept, and --resume needs what it was begun with."""
    options = ("--stream", "flow")
    kept = NetworkRun.save

    def stop(self, *given):
        kept(self, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkRun, "save", stop)
    code, out, err = finetune(tmp_path / "run", *options)
    assert code == 130 and out == "" and "--resume" in err and "Traceback" not in err
    monkeypatch.setattr(NetworkRun, "save", kept)
    mistake(finetune(tmp_path / "run", *options), 4, "already holds a run", "--resume")
    mistake(finetune(tmp_path / "run", *options, "--resume", "--set", "seed=3"), 4, "flow.seed was 0, is 3")
    code, _, err = finetune(tmp_path / "run", *options, "--resume")
    assert code == 0 and "epoch 2/2" in err and "epoch 1/2" not in err, err


def test_mistakes(finetune, lstr, acted, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    network = build_backbone("resnet50", 3)
    randomise(network, 0)
    torch.save(network.state_dict(), tmp_path / "resnet50.pth")
    content = json.loads(acted[1].read_text())
    for video in content["database"].values():
        video["annotations"] = []
    (tmp_path / "nothing.json").write_text(json.dumps(content))
    out = tmp_path / "out"
    mistake(finetune(tmp_path / "full", "--resume"), 4, "is not empty", "-o")
    mistake(finetune(tmp_path / "full"), 4, "is not empty", "-o")
    mistake(finetune(tmp_path / "full" / "notes.txt"), 2, "cannot be written", "-o")
    mistake(finetune("/proc/none"), 2, "cannot be written", "-o")
    mistake(
        finetune(out, "--stream", "flow", "--init", tmp_path / "resnet50.pth"), 4, "holds a resnet50", "bninception"
    )
    mistake(finetune(out, "--stream", "rgb", "--init", tmp_path / "none.pth"), 2, "none.pth is not a file")
    mistake(finetune(out, "--stream", "rgb", "--init", "flow=random"), 4, "leave out --init flow")
    mistake(finetune(out, "--init", "kinetics"), 4, "is not on this machine", "lstr weights fetch")
    mistake(finetune(out, "--recipe", acted[0]), 4, "no recipe.json")
    mistake(finetune(out, "--set", "epoch=3", "--resume"), 2, "Unknown setting: 'epoch'", "out holds no run to resume")
    mistake(finetune(out, "--set", "crop=40"), 2, "crop is 40 of a short side of 32", "up to short_side")
    mistake(finetune(out, "--set", "depth.lr=1"), 2, "depth.lr")
    mistake(finetune(out, "--set", "subset=other"), 2, "labelled as other", "training")
    mistake(finetune(out, "--set", "eval_subset=training"), 2, "would train and choose")
    mistake(lstr("finetune", "--labels", acted[1], "-o", out), 2, "Give a video")
    told = (("labels no action", acted[0], tmp_path / "nothing.json", ()),)
    told += (("and the cache may have", acted[0], acted[1], ("--set", "cache_size=1MB")),)
    for words, videos, labels, options in told:
        code, printed, err = finetune(out, *options, videos=videos, labels=labels)
        assert code == 2 and printed == "" and words in err and err.count("hint: ") == 1, err
    assert not out.exists()


def test_nothing_that_can_be_read(finetune, tmp_path):
    (tmp_path / "videos").mkdir()
    for name in ("scene_00", "scene_01"):
        (tmp_path / "videos" / f"{name}.mp4").write_text("no video")
    code, out, err = finetune(tmp_path / "out", videos=tmp_path / "videos")
    assert code == 3 and out == "" and err.count("failed: ") == 2 and "None of the videos can be read" in err


@pytest.mark.long
def test_weights_that_fit_one_stream_only(tmp_path):
    torch.save(build_backbone("resnet50", 3).state_dict(), tmp_path / "resnet50.pth")
    found = initial_weights(PRESETS["fast"], str(tmp_path / "resnet50.pth"), {})
    assert found["rgb"].path and found["flow"].path is None
    found = initial_weights(PRESETS["activitynet"], str(tmp_path / "resnet50.pth"), {})
    assert not found["rgb"].crossed and found["flow"].crossed
