"""What `lstr learn` reports of its progress: the remaining time, and JSON lines for programs."""

import json

from lstr.labels.check import Finding
from lstr.pipelines.learning.plan import FEATURES, MODEL, PACK, LearnPlan, PlannedStep
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr_cli.learn import follow_in_json

STEPS = (PlannedStep(FEATURES, 60), PlannedStep(MODEL, 30), PlannedStep(PACK, 1))
PLAN = LearnPlan({}, {}, 1, "", STEPS, {}, 1, (("flow",),), "rnn-small", 1)


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
