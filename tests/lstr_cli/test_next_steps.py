"""The command to type next, and what features of other people ask for."""

import shlex

import click

from lstr_cli.main import cli


def next_of(err: str) -> list[str]:
    """The command that is printed, which Click parses."""
    (line,) = [line for line in err.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    command, arguments = cli, words[1:]
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    command.make_context("lstr", arguments)
    return words


def test_fetched_weights_lead_to_a_recipe_that_has_them(lstr, small_set, tmp_path):
    """The line for `imagenet` named a recipe that does not exist."""
    code, _, err = lstr("weights", "fetch", "imagenet")
    words = [{"VIDEOS": small_set.videos, "features": tmp_path / "f"}.get(word, word) for word in next_of(err)]
    assert code == 0 and lstr(*words[1:], "--dry-run")[0] == 0


def test_each_command_leads_to_the_next(lstr, small_set, tmp_path, monkeypatch):
    """From labels and features to a timeline by nothing but what is printed; the paths have spaces."""
    monkeypatch.chdir(tmp_path)  # where the folder `timeline` that is printed comes to be
    labels, run = tmp_path / "my labels.json", tmp_path / "a run"
    (tmp_path / "l.csv").write_text("video,start,end,label\nscene_00,0.5,1.5,jump\n")
    _, _, err = lstr("labels", "convert", "l.csv", "--to", "activitynet", "--subset", "training", "-o", labels)
    assert next_of(err) == ["lstr", "labels", "check", str(labels)]
    extract = ("extract", small_set.videos, "-o", small_set.features, "--recipe", small_set.recipe, "--workers", "1")
    words = next_of(lstr(*extract)[2])
    assert words[:3] == ["lstr", "train", str(small_set.features)]
    assert "next:" not in lstr(*extract, "--json")[2], "a program reads"
    words = [{"LABELS": small_set.labels, "run": run}.get(word, word) for word in words]
    code, _, err = lstr(*words[1:], "--set", "model.d_model=16", "--set", "train.epochs=1")
    words = next_of(err)
    assert code == 0 and words[:3] == ["lstr", "evaluate", str(run / "checkpoint.pt")]
    code, _, err = lstr(*words[1:], "--set", "resamples=0")
    assert code == 0 and (run / "evaluation" / "report.html").exists()
    words = next_of(err)
    words[words.index("VIDEO")] = small_set.features
    code, out, err = lstr(*words[1:], "-f", "json", "--duration", "0.5")
    assert code == 0 and "next:" not in err and any((tmp_path / "timeline").iterdir())
