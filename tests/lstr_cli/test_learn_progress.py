"""What `lstr learn` reports of its progress: the remaining time, and JSON lines for programs."""

import json

from lstr.labels.check import Finding
from lstr.pipelines.learning.plan import FEATURES, MODEL, PACK, LearnPlan, PlannedStep
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr_cli.learn import RemainingTime, follow_in_json

STEPS = (PlannedStep(FEATURES, 60), PlannedStep(MODEL, 30), PlannedStep(PACK, 1))
PLAN = LearnPlan({}, {}, 1, "", STEPS, {}, 1, (("flow",),), "rnn-small", 1)


def test_a_step_that_is_slower_than_planned_makes_all_of_it_longer():
    remaining = RemainingTime()
    assert remaining.update(PLAN.progress(FEATURES, 0, 100), 0.0) == (60, 91)
    of_step, of_all = remaining.update(PLAN.progress(FEATURES, 45, 100), 270.0)
    assert 270 < of_step < 55 * 6 and of_all == of_step + 31
    assert remaining.update(PLAN.progress(MODEL, 0, 10), 290.0) == (30, 31), "the next one as planned"
    for done in range(1, 11):
        of_step, of_all = remaining.update(PLAN.progress(MODEL, done, 10), 290.0 + 50 * done)
        assert of_all >= of_step >= 0
    assert of_step == 0


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
    assert [[*line] for line in lines[:4]] == [["warning"], ["notice"], ["warning"], ["warning"]]
    assert lines[0] == {"warning": "no GPU"} and "a is damaged." in lines[3]["warning"]
    assert [line["share"] for line in lines[4:]] == [0.0, 1.0], "not each chunk"
    assert lines[4].keys() == {"step", "steps", "name", "share", "seconds_left"} and lines[4]["seconds_left"] == 91
