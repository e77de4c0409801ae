"""What a shell offers for values: names that the program has, files otherwise, and never at the price of torch."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import click
import pytest

from lstr.config import WindowConfig
from lstr.extractors.presets import PRESETS
from lstr.kinds import KINDS, OURS, presets
from lstr_cli import completion
from lstr_cli.main import cli


def offered(*words: str) -> list[tuple[str, str]]:
    """(type, value) of what is offered for the last of the words."""
    command, context, rest = cli, click.Context(cli, info_name="lstr"), list(words)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        command = command.get_command(context, name)
        context = click.Context(command, info_name=name, parent=context)
    *typed, last = rest
    from click.shell_completion import ShellComplete

    found = ShellComplete(cli, {}, "lstr", "_LSTR_COMPLETE").get_completions(list(words[:-1]), last)
    return [(item.type, item.value) for item in found]


def values(*words: str) -> list[str]:
    return [value for kind, value in offered(*words) if kind == "plain"]


def test_names_are_those_of_the_program():
    """They stand in the completion, since importing what has them takes seconds."""
    assert {*completion.RECIPES, "kinetics", "kinetics-fast"} == set(PRESETS)
    assert set(completion.PRESETS) == set(presets())


@pytest.mark.parametrize("kind", OURS)
def test_settings_of_a_kind_are_read_from_its_text(kind):
    shared, settings = ({field.name for field in fields(config)} for config in (WindowConfig, KINDS[kind].config))
    assert set(completion.own_settings(kind)) | shared == settings
    assert all(completion.kind_of(preset) == kind for preset in (*KINDS[kind].presets, f"{kind}-small"))


def test_settings_of_the_kind_that_is_chosen():
    """By a setting or a preset of the same command line."""
    named = ("--set", "model.kind=testra", "--set")
    assert values("train", "f", *named, "model.dec") == ["model.decay="]
    assert values("detect", "v", *named, "model.dec") == ["model.decay="]
    assert values("train", "f", "--preset", "gatehub-thumos14", "--set", "model.gam") == [
        "model.gamma=",
        "model.gamma_background=",
    ]
    assert values("train", "f", "--preset", "small", "--set", "model.ce") == ["model.cell="]
    assert (
        values("train", "f", "--set", "model.dec") == [] == values("train", "f", "--preset", "x", "--set", "model.dec")
    )


def test_choices_and_names():
    assert values("train", "f", "--preset", "thumos") == ["thumos14", "thumos14-published"]
    assert values("extract", "v", "--recipe", "fa") == ["fast", "faithful"]
    assert values("extract", "v", "--weights", "act") == ["activitynet"]
    assert values("extract", "v", "--weights", "rgb=act") == ["rgb=activitynet"]
    assert values("detect", "v", "-f", "json,vt") == ["json,vtt"]
    assert "json,json" not in values("detect", "v", "-f", "json,")
    assert values("labels", "convert", "a.csv", "--to", "s") == ["srt", "svg"]
    assert values("labels", "convert", "a.csv", "--from", "n") == ["nwb", "npy"]
    assert values("train", "f", "--set", "train.preci") == ["train.precision="]
    assert values("detect", "v", "--set", "model.n_h") == ["model.n_heads="]
    assert values("detect", "v", "--set", "train.") == []
    assert values("extract", "v", "--set", "flow_b") == ["flow_backend="]
    assert values("extract", "v", "--set", "model.") == []


def test_names_of_a_label_file(tmp_path):
    segments = [{"label": "lying", "segment": [0, 1]}, {"label": "falling", "segment": [1, 2]}]
    videos = {"a": {"subset": "training", "annotations": segments}, "b": {"subset": "night", "annotations": []}}
    (tmp_path / "labels.json").write_text(json.dumps({"database": videos}))
    labels = ("--labels", str(tmp_path / "labels.json"))
    assert values("train", "f", *labels, "--subset", "") == ["night", "training"]
    assert values("evaluate", "c", "f", *labels, "--subset", "n") == ["night"]
    assert values("labels", "convert", labels[1], "--classes", "lying,f") == ["lying,falling"]
    for content in ("[]", "{", '{"database": []}', '{"database": {"a": 3}}'):
        (tmp_path / "labels.json").write_text(content)
        assert values("train", "f", *labels, "--subset", "t") == ["training", "testing"]


def test_videos_of_a_feature_folder(small_set):
    assert values("info", str(small_set.features), "--video", "scene_0") == [f"scene_0{i}" for i in range(4)]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("detect", "vid"), "file"),
        (("detect", "v.mp4", "-c", "run/"), "file"),
        (("detect", "v.mp4", "-o", "time"), "dir"),
        (("extract", "v", "--recipe", "my_we"), "file"),
        (("train", "feat"), "file"),
        (("compare", "a", "b"), "file"),
        (("info", "x"), "file"),
    ],
)
def test_anything_else_is_a_file(words, kind):
    assert offered(*words) == [(kind, words[-1])]


def test_no_value_brings_torch():
    """As a shell calls it."""
    code = "import sys\nfrom lstr_cli.main import main\ntry: main()\nfinally: assert 'torch' not in sys.modules\n"
    for words in ("lstr extract v --recipe f", "lstr detect v -f js", "lstr train f --set model.kind=mat --set model."):
        typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_LSTR_COMPLETE": "bash_complete"}
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | typed)
        assert run.returncode == 0 and run.stdout, run.stderr
