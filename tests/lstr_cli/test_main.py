"""The command line: help, exit codes, and what a user's mistakes end in."""

import json
import os
import shutil
import subprocess
import sys
import time
import wave

import av
import numpy as np
import pytest

from lstr_cli.main import COMMANDS
from tests.support.mistakes import mistake


def test_without_a_command_there_is_help(lstr):
    code, out, err = lstr()
    assert code == 2 and out == "" and err.startswith("Usage: lstr ") and "detect" in err and "error:" not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(lstr, name):
    code, out, _ = lstr(name, "--help")
    assert code == 0 and f"Usage: lstr {name}" in out and "Example" in out and f"  lstr {name}" in out


def test_help_answers_at_once():
    """Best of three, in CPU time, so that a busy machine is no failure; torch alone takes over a second."""
    spent = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-m", "lstr_cli.main", "--help"], check=True, capture_output=True)
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(spent) < 0.5
    code = "import sys; sys.argv = ['lstr', '--version']\nfrom lstr_cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([m for m in ('torch', 'cv2', 'numpy', 'rich') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "[]"


def complete(shell: str, *words: str) -> list[str]:
    """What a shell is offered for the last of the words, by Click's own protocol; fails when torch was imported."""
    code = "import sys\nfrom lstr_cli.main import main\ntry: main()\nfinally: assert 'torch' not in sys.modules\n"
    request = {"_LSTR_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    environment = os.environ | request
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return run.stdout.splitlines()


def test_the_shell_completes():
    assert complete("bash", "lstr", "ext") == ["plain,extract"]
    assert complete("bash", "lstr", "extract", "--cal") == ["plain,--calibrate"]
    assert complete("bash", "lstr", "weights", "fe") == ["plain,fetch"]
    assert complete("bash", "lstr", "detect", "vid") == ["file,vid"]
    assert complete("bash", "lstr", "detect", "v", "-m", "fall") == ["file,fall"]
    assert complete("zsh", "lstr", "")[1::3] == list(COMMANDS)


@pytest.fixture
def bad(tmp_path, sound_only):
    """Inputs that are no video, by what is wrong with them."""
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "text.mp4").write_text("this is no video\n" * 100)
    (folder / "empty.mp4").touch()
    (folder / "no videos").mkdir()
    shutil.copy(sound_only, folder / "sound.mp4")
    with wave.open(str(folder / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(16000))
    with av.open(str(folder / "short.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(4):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")))
        container.mux(stream.encode())
    return folder


NO_VIDEOS = {
    "none.mp4": (2, "does not exist"),
    "no videos": (2, "holds no video"),
    "text.mp4": (3, "not a readable video"),
    "empty.mp4": (3, "empty (0 bytes)"),
    "sound.mp4": (3, "no video stream"),
    "sound.wav": (3, "no video stream"),
    "short.mp4": (3, "less than one chunk"),
}


@pytest.mark.parametrize("name", ["no videos", "text.mp4"])
@pytest.mark.long
def test_extract_of_what_is_no_video(lstr, bad, small_set, tmp_path, name):
    code, words = NO_VIDEOS[name]
    result = lstr("extract", bad / name, "-o", tmp_path / "features", "--recipe", small_set.recipe, "--workers", "1")
    mistake(result, code, words, name)
    left = [p for p in (tmp_path / "features").rglob("*") if p.suffix == ".npy" or ".tmp-" in p.name]
    assert left == [] and (code == 3 or not (tmp_path / "features").exists())


@pytest.mark.parametrize("name", NO_VIDEOS)
def test_detect_of_what_is_no_video(lstr, bad, small_set, tmp_path, name):
    code, words = NO_VIDEOS[name]
    result = lstr("detect", bad / name, "-c", small_set.checkpoint, "-o", tmp_path / "out", "--set", "flow_threads=1")
    mistake(result, code, words, name)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_outputs_that_cannot_be_written(lstr, small_set, tmp_path):
    (tmp_path / "file").write_text("in the way")
    video = small_set.videos / "scene_00.mp4"
    for output in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none"):
        result = lstr("extract", video, "-o", output, "--recipe", small_set.recipe, "--workers", "1")
        mistake(result, 2, "-o")
        mistake(lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", output), 2, "cannot be written")
        train = ("train", small_set.features, "--labels", small_set.labels, "--preset", "lstr-small")
        mistake(lstr(*train, "-o", output), 2, "cannot be written")
    assert (tmp_path / "file").read_text() == "in the way"


def test_features_of_another_recipe(lstr, small_set, tmp_path):
    crops = json.loads(small_set.recipe.read_text())
    crops["flow"]["crops"] = 10
    (tmp_path / "crops.json").write_text(json.dumps(crops))
    own = ("--recipe", tmp_path / "crops.json", "--workers", "1")
    mistake(lstr("extract", small_set.videos, "-o", small_set.features, *own), 4, "another recipe", "flow.crops")
    shutil.copytree(small_set.features, tmp_path / "features")
    recipe = json.loads((tmp_path / "features" / "recipe.json").read_text())
    (tmp_path / "features" / "recipe.json").write_text(json.dumps(recipe | {"long_side": 160}))
    evaluate = ("evaluate", small_set.checkpoint, tmp_path / "features", "--labels", small_set.labels)
    mistake(lstr(*evaluate), 4, "different recipes", "long_side: 160 against 96")
    mistake(lstr("detect", tmp_path / "features", "-c", small_set.checkpoint), 4, "different recipes")


def changed_labels(small_set, path, change) -> str:
    content = json.loads(small_set.labels.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return str(path)


def test_labels_that_do_not_fit(lstr, small_set, tmp_path):
    evaluate = ("evaluate", small_set.checkpoint, small_set.features, "--labels")
    train = ("train", small_set.features, "-o", tmp_path / "run", "--preset", "lstr-small", "--labels")
    entry = {"subset": "testing", "duration": 5, "annotations": []}
    unknown = changed_labels(small_set, tmp_path / "u.json", lambda c: c["database"].update(ghost=entry))
    mistake(lstr(*evaluate, unknown), 2, "ghost", "--set skip_missing=true")
    entry["subset"] = "training"
    unknown = changed_labels(small_set, tmp_path / "u.json", lambda c: c["database"].update(ghost=entry))
    mistake(lstr(*train, unknown), 2, "ghost", "--set skip_missing=true")
    assert lstr(*evaluate, unknown)[0] == 0, "a training video without features does not matter here"
    more = changed_labels(small_set, tmp_path / "m.json", lambda c: c["classes"].append("somersault"))
    mistake(lstr(*evaluate, more), 4, "other classes", "somersault")
    reverse = changed_labels(
        small_set, tmp_path / "r.json", lambda c: c["database"]["scene_00"]["annotations"][0].update(segment=[3, 1])
    )
    mistake(lstr(*train, reverse), 2, "scene_00")
    (tmp_path / "text.json").write_text("hello")
    mistake(lstr(*train, tmp_path / "text.json"), 2, "text.json")
    mistake(lstr(*train, tmp_path / "none.json"), 2, "none.json")
    assert not (tmp_path / "run").exists()


def test_checkpoints_that_do_not_fit(lstr, small_set, tmp_path):
    video = small_set.videos / "scene_00.mp4"
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "cut.pt").write_bytes(small_set.checkpoint.read_bytes()[:1000])
    for name in ("text.pt", "cut.pt", "none.pt"):
        mistake(lstr("detect", video, "-c", tmp_path / name), 4, name)
    mistake(lstr("detect", video), 4, "No model is named", "-m FILE", "lstr learn")
    mistake(lstr("detect", video, "-c", small_set.checkpoint, "-f", "pdf"), 2, "pdf")
    mistake(lstr("detect", video, "-c", small_set.checkpoint, "--set", "model.d_feedforward=99"), 4, "99")


def test_weights_that_do_not_fit(lstr, small_set, tmp_path):
    (tmp_path / "text.pth").write_text("hello")
    extract = ("extract", small_set.videos, "-o", tmp_path / "features", "--workers", "1", "--weights")
    for stream in ("rgb=", ""):
        mistake(lstr(*extract, f"{stream}{tmp_path / 'text.pth'}"), 4, "text.pth")
        mistake(lstr(*extract, f"{stream}{tmp_path / 'none.pth'}"), 2, "none.pth")
    assert not (tmp_path / "features").exists()


@pytest.mark.long
def test_one_bad_file_among_good_ones(lstr, small_set, bad, tmp_path):
    shutil.copy(small_set.videos / "scene_00.mp4", bad / "no videos" / "good.mp4")
    shutil.copy(bad / "text.mp4", bad / "no videos" / "text.mp4")
    code, _, err = lstr(
        "extract", bad / "no videos", "-o", tmp_path / "f", "--recipe", small_set.recipe, "--workers", "1"
    )
    assert code == 3 and "1 done, 0 kept, 1 failed" in err
    code, _, err = lstr("detect", bad / "no videos", "-c", small_set.checkpoint, "-o", tmp_path / "t", "-f", "json")
    assert code == 3 and (tmp_path / "t" / "good.json").exists() and err.count("failed: ") == 1


def test_info(lstr, small_set, tmp_path):
    def info(path) -> dict:
        code, out, _ = lstr("info", path, "--json")
        assert code == 0
        return json.loads(out)

    video = info(small_set.videos / "scene_00.mp4")
    assert (video["kind"], video["chunks"], video["size"], video["decoder"]) == ("video", 20, "96x64", "pyav")
    assert info(small_set.videos)["videos"] == 4
    features = info(small_set.features)
    assert (features["videos"], features["chunks"], features["damaged"]) == (4, 80, [])
    assert features["random_weights"] == "rgb and flow"
    checkpoint = info(small_set.checkpoint)
    assert checkpoint["recipe_id"] == features["recipe_id"] and checkpoint["config"]["d_model"] == 64
    assert checkpoint["preset"] == "not recorded"
    lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json")
    assert info(tmp_path / "scene_00.json")["videos"] == 1
    code, out, _ = lstr("info", small_set.features)
    assert code == 0 and "feature folder" in out
    mistake(lstr("info", tmp_path / "none"), 2, "does not exist")
    (tmp_path / "odd.json").write_text("{}")
    mistake(lstr("info", tmp_path / "odd.json"), 2, "odd.json")


def test_doctor(lstr, monkeypatch):
    code, out, _ = lstr("doctor", "--json")
    findings = {f["what"]: f for f in json.loads(out)}
    assert code == 0 and {"torch", "networks", "av", "optical flow", "GPU"} <= findings.keys()
    assert findings["default model"]["ok"] is None, "it need not be there"
    code, out, _ = lstr("doctor")
    assert code == 0 and "–\tdefault model\tnone in" in out and "ok\tav\t" in out
    import cv2

    from lstr.extractors.flow import workers

    monkeypatch.delattr(cv2, "optflow")
    monkeypatch.setattr(workers, "_tvl1", None)
    code, out, err = lstr("doctor")
    assert code == 1 and "MISSING" in out and "pip install --force-reinstall --no-deps opencv-contrib-python" in err


def test_train_and_resume_from_the_command(lstr, small_set, tmp_path):
    command = [
        "train",
        small_set.features,
        "--labels",
        small_set.labels,
        "-o",
        tmp_path / "run",
        "--preset",
        "lstr-small",
    ]
    command += ["--set", "model.d_model=16", "--set", "train.epochs=2"]
    code, out, err = lstr(*command)
    assert code == 0 and out == "" and "epoch 2/2" in err
    mistake(lstr(*command), 4, "already holds a run", "--resume")
    assert lstr(*command, "--resume")[0] == 0


def test_an_error_of_ours_is_one_sentence(lstr, monkeypatch, small_set):
    def fail(*_):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("lstr.pipelines.info.describe", fail)
    mistake(lstr("info", small_set.videos), 1, "ZeroDivisionError: division by zero", "LSTR_DEBUG=1")


def test_progress_is_quiet_when_piped(lstr, small_set, tmp_path):
    start = time.monotonic()
    _, _, err = lstr("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path)
    lines = [line for line in err.splitlines() if "of 20 chunks" in line]
    assert len(lines) <= 1 + (time.monotonic() - start) / 10


@pytest.mark.slow
def test_weights_of_ones_own_all_the_way(lstr, small_set, tmp_path):
    """A file in the published layout: named in the folder, needed by detect, refused when it is another."""
    import torch

    from lstr.extractors.networks.build import randomise
    from tests.support.backbones import build_backbone

    for name, seed in (("mine.pth", 5), ("other.pth", 6)):
        backbone = build_backbone("mobilenetv3")
        randomise(backbone, seed)
        state = {f"backbone.{key}": value for key, value in backbone.state_dict().items()}
        torch.save({"meta": {}, "state_dict": state}, tmp_path / name)
    mine, other = (("--weights", f"rgb={tmp_path / name}") for name in ("mine.pth", "other.pth"))
    features, run = tmp_path / "features", tmp_path / "run"
    code, _, err = lstr("extract", small_set.videos, "-o", features, "--recipe", small_set.recipe, *mine)
    assert code == 0 and "flow networks carry random weights" in err and "rgb and flow" not in err
    assert sorted(p.name for p in features.glob("*_*")) == ["flow_random_shufflenetv2", "rgb_custom_mobilenetv3"]
    train = ("train", features, "--labels", small_set.labels, "-o", run, "--preset", "lstr-small")
    assert lstr(*train, "--set", "train.epochs=1", "--set", "model.d_model=16")[0] == 0
    detect = ("detect", small_set.videos / "scene_03.mp4", "-c", run / "checkpoint.pt")
    assert lstr(*detect, "--weights", tmp_path / "mine.pth")[0] == 0, "the file says that it is for rgb"
    assert lstr(*detect)[0] == 0, "the run knows where its weights were"
    mistake(lstr(*detect, *other), 4, "rgb.sha256")
    mistake(
        lstr("extract", small_set.videos, "-o", features, "--recipe", small_set.recipe, *other), 4, "another recipe"
    )
    (tmp_path / "mine.pth").rename(tmp_path / "moved.pth")
    mistake(lstr(*detect), 4, "mine.pth", "--weights rgb=")


@pytest.mark.slow
def test_learning_without_an_output_makes_the_model_here(lstr, small_set, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = lstr("learn", small_set.videos, small_set.labels, "--recipe", "live", "--dry-run", "--json")
    assert code == 0, err
    assert json.loads(out)["model"] == "labels.lstr" and not list(tmp_path.glob("*.lstr"))
