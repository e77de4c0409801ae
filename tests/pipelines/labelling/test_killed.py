"""A project whose process is killed at random moments: what was acknowledged is there, and it goes on."""

import random
import signal
import subprocess
import sys

import pytest

from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling.project import Project
from tests.support.labelling import action, labels_after
from tests.support.processes import heed_interrupts

LABELLER = """
import random, sys
from pathlib import Path
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import Change, Label

random.seed(int(sys.argv[2]))
with Project(Path(sys.argv[1])) as project:
    (fall,) = project.state.actions
    print("open", flush=True)
    while True:
        key = f"label {random.randrange(200)}"
        before = project.state.get("label", "a", key)
        start = random.randrange(1000) / 8
        after = None if before and random.random() < 0.3 else Label(fall, start, start + 1)
        if before is None and after is None:
            continue
        deed = random.random()
        if deed < 0.15:
            entry = project.turn(f"{random.random()}", "a", random.choice(["undo", "redo"]))
        else:
            entry = project.change(f"{random.random()}", [Change("label", "a", key, before, after)])
        if entry:
            print(entry.revision, flush=True)
"""


@pytest.mark.long
def test_nothing_that_was_acknowledged_is_lost(tmp_path):
    path, moments = tmp_path / "labels.json", random.Random(7)
    with Project(path) as project:
        action(project, "fall")
    lines: list[str] = []
    for kill in range(6):
        words = [sys.executable, "-c", LABELLER, str(path), str(kill)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as labeller:
            assert labeller.stdout.readline() == "open\n"
            acknowledged = 0
            for _ in range(moments.randrange(1, 120)):
                acknowledged = int(labeller.stdout.readline())
            labeller.send_signal(signal.SIGKILL)
            rest = labeller.stdout.read().split("\n")  # what it said before it heard of its end
            acknowledged = max([acknowledged, *(int(text) for text in rest[:-1])])
        journal = path.with_name("labels.json.journal").read_text().splitlines()
        assert journal[: len(lines)] == lines, "what was written once is never written over"
        lines = journal[:-1]  # the last may be cut short
        with Project(path) as again:
            assert again.revision >= acknowledged
            replayed = labels_after(journal)
            assert {key: (label.start, label.end) for key, label in again.state.labels.get("a", {}).items()} == replayed
            again.settle()
        assert len([s for s in read_labels(path).videos["a"].segments if s.label == "fall"]) == len(replayed)
    assert not list(tmp_path.glob(".*tmp-*")), "nor is anything left lying about"
