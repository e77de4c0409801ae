"""What `lstr learn` says of the time that is left: of a step never more than of all."""

import io
import json
import re

from rich.console import Console

from lstr.labels.check import Finding
from lstr.pipelines.learning.plan import FEATURES, MODEL, PACK, LearnPlan, PlannedStep
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr_cli import console
from lstr_cli.learn import RemainingTime, follow, follow_in_json

PLAN = LearnPlan(
    {},
    {},
    1,
    "",
    (PlannedStep(FEATURES, 60), PlannedStep(MODEL, 30), PlannedStep(PACK, 1)),
    {},
    1,
    (("flow",),),
    "rnn-small",
    1,
)


def test_a_step_that_is_slower_than_planned_makes_all_of_it_longer():
    remaining = RemainingTime()
    assert remaining.update(PLAN.progress(FEATURES, 0, 100), 0.0) == (60, 91), "as planned, before anything is known"
    of_step, of_all = remaining.update(PLAN.progress(FEATURES, 45, 100), 270.0)
    assert 270 < of_step < 55 * 6 and of_all == of_step + 31, "ten times as slow"
    assert remaining.update(PLAN.progress(FEATURES, 90, 100), 280.0)[1] > 31
    assert remaining.update(PLAN.progress(MODEL, 0, 10), 290.0) == (30, 31), "the next one as planned"
    for done in range(1, 11):
        of_step, of_all = remaining.update(PLAN.progress(MODEL, done, 10), 290.0 + 50 * done)
        assert of_all >= of_step >= 0
    assert of_step == 0


def test_a_step_that_ends_early_leaves_no_bar(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(console, "_err", Console(file=screen, force_terminal=True, width=100, height=20))
    shown = []
    monkeypatch.setattr(
        console.Bar, "drop", lambda bar, what, drop=console.Bar.drop: (shown.append(what), drop(bar, what))
    )

    def events():
        yield PLAN.progress(FEATURES, 40, 100)
        yield PLAN.progress(MODEL, 1, 10)
        yield Finished("made")

    assert follow(events()) == "made"
    assert [name.split(" ")[0] for name in shown if name] == ["1/3", "2/3"]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "left in all" in text


def test_progress_as_json_lines(capsys):
    def events():
        yield Notice("no GPU")
        yield Notice("two videos", warning=False)
        yield LabelFindings("labels.json", [Finding("warning", "few examples", "", "jump has 1 example")])
        yield Failed("a", "a is damaged.", "repair it.")
        for done in range(11):
            yield PLAN.progress(FEATURES, done, 10)
        yield Finished("model")

    assert follow_in_json(events()) == "model"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[:4] == [
        {"warning": "no GPU"},
        {"notice": "two videos"},
        {"warning": "jump has 1 example"},
        {"warning": "a was skipped: a is damaged."},
    ]
    assert [line["share"] for line in lines[4:]] == [0.0, 1.0], "not each chunk"
    assert lines[4].keys() == {"step", "steps", "name", "share", "seconds_left"} and lines[4]["seconds_left"] == 91
