"""Progress of a job over many files, watched and piped."""

import io
import re

from rich.console import Console

from lstr_cli import console


def test_piped_lines_tell_of_all_and_of_what_is_in_hand(monkeypatch, capsys):
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with console.JobBar("chunks", {"a": 10, "b": 20}, lambda rate: "fast" if rate > 0 else "slow") as bar:
        bar.update("a", 5, 10)
        bar.update("b", 2, 20)
        bar.finish("a")
        bar.finish("b")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "all: 5/30 chunks fast: a 5/10"
    assert told[1].startswith("all: 7/30 chunks fast: a 5/10; b 2/20, 0:")
    assert told[2].startswith("all: 12/30 chunks fast: b 2/20, 0:")
    assert told[3].startswith("all: 30/30 chunks fast")


def test_times_say_what_they_are_and_no_bar_stays(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(console, "_err", Console(file=screen, force_terminal=True, width=100, height=20))
    with console.Bar("steps") as bar:
        bar.update("train", 1, 10, "(0:20:00 in all)", 70.0)
        bar._rich.refresh()
        bar.update("other", 1, 10)
        bar.drop("train")
        assert [task.description for task in bar._rich.tasks] == ["other"]
    assert not bar._rich.tasks, "the last one is over with the command"
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "0:01:10 left" in text and "(0:20:00 in all)" in text
    assert not re.search(r"\d:\d\d:\d\d(?! left| in all)", text)
