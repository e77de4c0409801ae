"""`lstr finetune` from videos to a weights folder, and what a user's mistakes end in."""

import json
import shutil

import pytest
import torch

from lstr.extractors.networks.build import identify
from lstr.extractors.networks.weights_file import read_card
from lstr.extractors.networks.weights_folder import open_weights
from tests.support.backbones import build_backbone
from tests.support.errors import assert_error

SETTINGS = {"short_side": 32, "crop": 32, "batch_size": 8, "draws": 8, "epochs": 2, "precision": "float32"}
SMALL = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One cache for all tests here, so that each video's flow is computed once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def finetune(lstr, small_set, home, monkeypatch):
    """finetune(output, *options): the command on the set, or on other videos and labels that are given."""
    monkeypatch.setenv("LSTR_HOME", str(home))

    def run(output, *options, videos=None, labels=None):
        flow = () if "rgb" in options else ("--set", "recipe.flow_algorithm=dis")
        given = ("--labels", labels or small_set.labels, "-o", output, *SMALL, *flow, *options)
        return lstr("finetune", videos or small_set.videos, *given)

    return run


@pytest.mark.slow
def test_from_videos_to_weights(finetune, small_set, tmp_path):
    """Both streams; a damaged video is named, left out, and leaves exit code 3. Then one more run is only told."""
    videos = tmp_path / "videos"
    shutil.copytree(small_set.videos, videos)
    content = json.loads(small_set.labels.read_text())
    content["database"]["cut"] = content["database"]["scene_00"]
    (tmp_path / "labels.json").write_text(json.dumps(content))
    whole = (videos / "scene_00.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    given = {"videos": videos, "labels": tmp_path / "labels.json"}
    code, out, err = finetune(tmp_path / "my weights", "--json", "--set", "eval_subset=testing", **given)
    assert code == 3 and "failed: cut: " in err and "hint: " in err and "epoch 2/2" in err, err
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
    assert_error(finetune(tmp_path / "second", "--stream", "rgb", "--init", weights.file("flow")), 4, "bninception")
    assert_error(finetune(weights.path, "--stream", "flow"), 4, "-o")
    code, out, err = finetune(weights.path, "--resume", **given)
    assert code == 0 and "flow" in out and "epoch 1/" not in err


MISTAKES = [
    (("--stream", "flow", "--init", "resnet50.pth"), 4, "bninception"),
    (("--stream", "rgb", "--init", "none.pth"), 2, "none.pth"),
    (("--stream", "rgb", "--init", "flow=random"), 4, "--init flow"),
    (("--init", "kinetics"), 4, "lstr weights fetch"),
    (("--recipe", "videos"), 4, "recipe.json"),
    (("--set", "epoch=3", "--resume"), 2, "'epoch'"),
    (("--set", "crop=40"), 2, "crop"),
    (("--set", "depth.lr=1"), 2, "depth.lr"),
    (("--set", "subset=other"), 2, "other"),
    (("--set", "eval_subset=training"), 2, "training"),
    (("--set", "cache_size=1MB"), 2, "cache_size"),
]


@pytest.mark.parametrize(("options", "code", "value"), MISTAKES, ids=lambda given: str(given))
def test_options_that_cannot_be(finetune, small_set, tmp_path, options, code, value):
    torch.save(build_backbone("resnet50", 3).state_dict(), tmp_path / "resnet50.pth")
    paths = {"resnet50.pth": tmp_path / "resnet50.pth", "none.pth": tmp_path / "none.pth", "videos": small_set.videos}
    left, out, err = finetune(tmp_path / "out", *(paths.get(option, option) for option in options))
    assert left == code and out == "" and value in err and err.count("hint: ") == 1 and "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_outputs_and_videos_that_cannot_be(finetune, lstr, small_set, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    assert_error(finetune(tmp_path / "full", "--resume"), 4, "-o")
    assert_error(finetune(tmp_path / "full"), 4, "-o")
    assert_error(finetune(tmp_path / "full" / "notes.txt"), 2, "-o")
    assert_error(finetune("/proc/none"), 2, "-o")
    assert_error(lstr("finetune", "--labels", small_set.labels, "-o", tmp_path / "out"), 2)
    (tmp_path / "videos").mkdir()
    for name in ("scene_00", "scene_01"):
        (tmp_path / "videos" / f"{name}.mp4").write_text("no video")
    code, out, err = finetune(tmp_path / "out", videos=tmp_path / "videos")
    assert code == 3 and out == "" and err.count("failed: ") == 2
    content = json.loads(small_set.labels.read_text())
    for video in content["database"].values():
        video["annotations"] = []
    (tmp_path / "nothing.json").write_text(json.dumps(content))
    code, out, err = finetune(tmp_path / "none", labels=tmp_path / "nothing.json")
    assert code == 2 and out == "" and err.count("hint: ") == 1 and not (tmp_path / "none").exists()
