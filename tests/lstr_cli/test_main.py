"""All commands: help, completion, imports, `info`, `doctor`, and the command to type next."""

import json
import shlex
import sys

import click
import numpy as np
import pytest

from lstr_cli.main import COMMANDS, cli
from lstr_cli.options import MORE, Command, Option
from tests.support.browser import write_greys
from tests.support.documents import parse
from tests.support.processes import check_process


def list_commands(group=cli, before=""):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from list_commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(list_commands())


def test_help_without_a_command(lstr):
    code, out, err = lstr()
    assert code == 2 and out == "" and "error:" not in err and all(name in err for name in COMMANDS)
    assert {name.split()[0] for name in ALL} == {*COMMANDS} == {*cli.list_commands(click.Context(cli))}


@pytest.mark.parametrize("name", ALL)
def test_help_lists_every_option_below_its_heading(lstr, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = lstr(*name.split(), "--help")
    assert code == 0 and isinstance(ALL[name], Command) and f"Usage: lstr {name}" in out
    assert f"  lstr {name}" in lstr(name.split()[0], "--help")[1], "an example"
    for option in (param for param in ALL[name].params if isinstance(param, Option)):
        section = out.partition(f"\n{option.heading}:\n")[2].partition("\n\n")[0]
        assert max(option.opts, key=len) in section, option.name
        assert all(setting in section for setting, _ in option.settings)
        assert not option.settings or option.heading == MORE


def run_without(modules: tuple[str, ...], *words: object, **environment: str) -> str:
    """Return the output of a command that must not import modules."""
    code = "import sys\nfrom lstr_cli.main import main\ntry: main()\n"
    code += f"finally: assert not {{*{modules}}} & {{*sys.modules}}\n"
    return check_process(sys.executable, "-c", code, *words, env=environment)


def test_quick_commands_import_no_slow_packages(small_set):
    """torch alone takes more than a second."""
    assert "detect" in run_without(("torch", "cv2", "numpy", "rich"), "--help")
    assert run_without(("torch", "cv2", "numpy", "rich"), "--version")
    assert json.loads(run_without(("torch",), "info", small_set.videos / "scene_00.mp4", "--json"))["chunks"] == 20


def test_info_of_each_kind_of_input(run, small_set, tmp_path):
    def info(path) -> dict:
        run("info", path)
        return json.loads(run("info", path, "--json")[0])

    video = info(small_set.videos / "scene_00.mp4")
    assert (video["kind"], video["chunks"], video["size"], video["decoder"]) == ("video", 20, "96x64", "pyav")
    assert "seconds_after_sound" not in video
    write_greys(tmp_path / "late.mp4", late=3)
    assert info(tmp_path / "late.mp4")["seconds_after_sound"] == pytest.approx(3, abs=0.05)
    assert info(small_set.videos)["videos"] == 4
    features = info(small_set.features)
    assert (features["videos"], features["chunks"], features["damaged"]) == (4, 80, [])
    assert features["random_weights"] == "rgb and flow"
    checkpoint = info(small_set.checkpoint)
    assert checkpoint["recipe_id"] == features["recipe_id"] and checkpoint["config"]["d_model"] == 64
    run("detect", small_set.features, "-c", small_set.checkpoint, "-o", tmp_path, "-f", "json")
    assert info(tmp_path / "scene_00.json")["videos"] == 1
    (tmp_path / "own.json").write_text('{"based_on": "fast", "long_side": 160}')
    for recipe in (small_set.features / "recipe.json", "faithful", "pretrained", tmp_path / "own.json"):
        assert "recipe" in info(recipe)["kind"]


def test_doctor_reports_missing_parts(lstr, run, monkeypatch):
    from lstr.extractors.flow import workers

    findings = {f["what"]: f for f in json.loads(run("doctor", "--json")[0])}
    assert {"torch", "networks", "av", "optical flow", "GPU"} <= findings.keys()
    assert findings["default model"]["ok"] is None, "it is optional"
    monkeypatch.delattr("cv2.optflow")
    monkeypatch.setattr(workers, "_tvl1", None)
    code, out, err = lstr("doctor")
    assert code == 1 and "MISSING" in out and "opencv-contrib-python" in err


def next_command(err: str) -> list[str]:
    """Return the words of the proposed command, which must parse."""
    (line,) = [line for line in err.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    parse(words[1:])
    return words


@pytest.mark.long
def test_each_command_proposes_the_next(run, small_set, tmp_path, monkeypatch):
    """From labels and features to a timeline by the printed commands; the paths have spaces."""
    monkeypatch.chdir(tmp_path)  # the last command writes to the folder `timeline`
    labels, folder = tmp_path / "my labels.json", tmp_path / "a run"
    (tmp_path / "l.csv").write_text("video,start,end,label\nscene_00,0.5,1.5,jump\n")
    _, err = run("labels", "convert", "l.csv", "--to", "activitynet", "--subset", "training", "-o", labels)
    assert next_command(err) == ["lstr", "labels", "check", str(labels)]
    extract = ("extract", small_set.videos, "-o", small_set.features, "--recipe", small_set.recipe, "--workers", "1")
    words = next_command(run(*extract)[1])
    assert words[:3] == ["lstr", "train", str(small_set.features)]
    assert "next:" not in run(*extract, "--json")[1], "the output is for a program"
    words = [{"LABELS": small_set.labels, "run": folder}.get(word, word) for word in words]
    words = next_command(run(*words[1:], "--set", "model.d_model=16", "--set", "train.epochs=1")[1])
    assert words[:3] == ["lstr", "evaluate", str(folder / "checkpoint.pt")]
    words = next_command(run(*words[1:], "--set", "resamples=0")[1])
    assert (folder / "evaluation" / "report.html").exists()
    words[words.index("VIDEO")] = small_set.features
    _, err = run(*words[1:], "-f", "json", "--duration", "0.5")
    assert "next:" not in err and any((tmp_path / "timeline").iterdir())


def test_training_on_other_features_proposes_detection_on_them(run, tmp_path):
    for stream in ("rgb", "flow"):
        (tmp_path / "store" / stream).mkdir(parents=True)
        np.save(tmp_path / "store" / stream / "a.npy", np.random.default_rng(0).random((40, 8), np.float32))
    (tmp_path / "l.csv").write_text("video,start,end,label\na,0.5,1.5,jump\n")
    settings = ("--set", "features.rate=4", "--set", "train.epochs=1")
    _, err = run("train", tmp_path / "store", "--labels", tmp_path / "l.csv", "-o", tmp_path / "run", *settings)
    run(*next_command(err)[1:-1], tmp_path / "timeline")
    assert (tmp_path / "timeline" / "a.json").exists()
