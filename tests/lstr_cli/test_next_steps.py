"""The line that says what to type next: it parses, names what is there, and survives a shell."""

import shlex

import click

from lstr_cli.main import cli
from lstr_cli.weights import next_extract


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
    words = next_of(err)
    assert code == 0 and words[-2:] == ["--recipe", "pretrained"]
    words = [{"VIDEOS": small_set.videos, "features": tmp_path / "f"}.get(word, word) for word in words]
    code, out, err = lstr(*words[1:], "--dry-run")
    assert code == 0 and "4 to do" in out, err
    assert next_extract("activitynet")[-4:] == ["--recipe", "activitynet", "--weights", "activitynet"]
    assert next_extract("kinetics")[-2:] == ["--weights", "kinetics"] and "--recipe" not in next_extract("kinetics")


def test_each_command_leads_to_the_next(lstr, small_set, tmp_path, monkeypatch):
    """From features to a timeline by nothing but what is printed; the paths have spaces."""
    monkeypatch.chdir(tmp_path)  # where the folder `timeline` that is printed comes to be
    run = tmp_path / "a run"
    tiny = ("--set", "model.d_model=16", "--set", "train.epochs=1")
    code, _, err = lstr("train", small_set.features, "--labels", small_set.labels, "-o", run, *tiny)
    assert code == 0 and "because there are 0.0 hours of training video" in err
    words = next_of(err)
    assert words[:3] == ["lstr", "evaluate", str(run / "checkpoint.pt")]
    code, _, err = lstr(*words[1:], "--set", "resamples=0")
    assert code == 0 and (run / "evaluation" / "report.html").exists()
    words = next_of(err)
    words[words.index("VIDEO")] = small_set.features
    code, out, err = lstr(*words[1:], "-f", "json", "--duration", "0.5")
    assert code == 0 and "next:" not in err and any((tmp_path / "timeline").iterdir())


def test_extract_leads_to_train(lstr, small_set, tmp_path):
    """The features are there already, so that nothing is computed; with --json a program reads, and no line is said."""
    command = ("extract", small_set.videos, "-o", small_set.features, "--recipe", small_set.recipe, "--workers", "1")
    code, _, err = lstr(*command)
    assert code == 0 and "4 kept" in err
    assert next_of(err) == ["lstr", "train", str(small_set.features), "--labels", "LABELS", "-o", "run"]
    code, _, err = lstr(*command, "--json")
    assert code == 0 and "next:" not in err


def test_converted_labels_are_checked_next(lstr, tmp_path):
    (tmp_path / "l.csv").write_text("video,start,end,label\nv,0.5,1.5,jump\n")
    out = tmp_path / "my labels.json"
    convert = ("labels", "convert", tmp_path / "l.csv", "--to")
    err = lstr(*convert, "activitynet", "--subset", "training", "-o", out)[2]
    assert next_of(err) == ["lstr", "labels", "check", str(out)]
    assert "next:" not in lstr(*convert, "vtt", "-o", tmp_path / "v.vtt")[2]
    assert "next:" not in lstr(*convert, "activitynet")[2]  # which went to standard output
