"""`lstr learn`: labelled videos to one model file."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr.settings import parse_rate, parse_seconds
from lstr_cli import console
from lstr_cli.options import (
    DATA,
    EVENTS,
    NETWORKS,
    OF_RUN_AND_RECIPE,
    OUTPUT,
    RUN,
    Command,
    Quantity,
    check_paths,
    list_option,
    option,
    read_lists,
    set_option,
)

if TYPE_CHECKING:  # they import numpy
    from lstr.pipelines.learning.plan import StepProgress

# The share of a step after which its own speed says as much as the plan: the first of it waits for networks
TRUST = 0.05
PROGRESS_SECONDS = 0.25  # between two reports of progress within a step, in JSON


@click.command("learn", cls=Command)
@click.argument("videos", nargs=-1, metavar="VIDEO|DIR|PATTERN...")
@click.argument("labels", metavar="LABELS...")
@option("-o --output MODEL", OUTPUT, "Write the model file here.  [default: named after LABELS, in this folder]")
@option(
    "--time TIME", RUN, "Limit the training time, for example to 15m or 2h.", "seconds", type=Quantity(parse_seconds)
)
@option(
    "--recipe NAME|FILE",
    NETWORKS,
    "Make features by this recipe: pretrained, difference, grey, people, pretrained-people, live (for cameras), fast, "
    "faithful, or a recipe file.  [default: pretrained; pretrained-people after `lstr weights fetch pose`; difference "
    "for a single recording]",
)
@option("--init MODEL|WEIGHTS", NETWORKS, "Start from the networks of an earlier model file, or from weights.")
@option(
    "--false-alarms RATE",
    EVENTS,
    "Choose thresholds for this many false alarms, for example 2/h.",
    type=Quantity(parse_rate),
)
@option("--negatives DIR", DATA, "Add a folder of videos in which no action happens; repeatable.", multiple=True)
@list_option
@option("--dry-run", RUN, "Check the labels, show the plan, and stop.")
@option("--make-default", OUTPUT, "Let `lstr detect` use the model if no other is named.")
@option("--json", OUTPUT, "Print plan or result as one JSON document.", "as_json")
@set_option(
    NAME="a setting of the networks, or of the run, as for `lstr finetune`",
    model="of the model",
    train="of its training",
)
def learn(videos, labels, lists, output, settings, dry_run, make_default, as_json, **others):
    """Train a model file for `lstr detect -m` on videos and the actions that LABELS mark in them.

    LABELS are label files of any format that `lstr labels convert` reads. For a video that is in several files, the
    last one counts, so put corrections last. The steps are always the same: check the labels, compute frames and flow,
    train the feature networks, compute features, train the models, choose thresholds, measure, and write MODEL. A
    plan with the times of this machine comes first. Run the same command again to resume after an interruption.

    All videos are used for training, except test videos by the labels. The result is measured on these, or in
    folds: each video is scored by networks and models that were not trained on it. If the labels call some videos
    training, videos of other subsets than testing and validation are ignored. All parts and the report are in a
    folder next to MODEL (fall.learn for fall.lstr), which you may delete.

    `lstr evaluate OLD.lstr NEW.lstr VIDEOS LABELS` compares the model with an earlier one.

    --set NAME=VALUE changes a setting: model.NAME and train.NAME as for `lstr train`, others as for `lstr finetune`.
    model.kind=KIND is the kind of model on the features (`lstr models` lists all). The default is an RNN for up to an
    hour of training video, else LSTR, with the settings of the preset KIND-small, else with the published ones.

    \b
    Examples:
      lstr learn videos/ fall.csv
      lstr learn videos/ labels.csv -o fall.lstr --time 15m
      lstr learn videos/ labels.csv -o fall.lstr --negatives empty_rooms/
      lstr learn videos/ labels.csv corrected/*.json -o fall.lstr
      lstr learn videos/ labels.csv more.json -o better.lstr --init fall.lstr
      lstr learn videos/ labels.json -o cameras.lstr --recipe live
      lstr learn videos/ labels.json -o both.lstr --recipe fast --dry-run
    """
    from lstr.pipelines.annotations.label_files import divide_paths

    videos, labels = divide_paths([*videos, labels])
    if not videos and not lists:
        raise click.UsageError("Specify a video, a folder, a pattern or a --list, and after it the labels.")
    videos = [*videos, *read_lists(lists)]
    check_paths(videos, labels)
    from lstr.pipelines.learning.plan import LearnOptions

    # fall.lstr from annotations/fall.labels.csv
    output = output or f"{Path(labels[0]).absolute().stem.removesuffix('.labels')}.lstr"
    chosen = settings.build(
        LearnOptions,
        OF_RUN_AND_RECIPE,
        videos=videos,
        labels=labels,
        output=output,
        settings=settings,
        **others,
    )
    if dry_run:
        from lstr.pipelines.learning.preparation import plan

        follow(plan(chosen), as_json)
        return
    from lstr.pipelines.learning.learn import learn

    # a program reads the progress as JSON lines, as the page of `lstr label` does; a person sees a bar
    learnt = (follow_in_json if as_json and not sys.stderr.isatty() else follow)(learn(chosen))
    if make_default:
        from lstr.pipelines.detection.model import make_default as leave

        leave(learnt.model)
    if as_json:
        report = {"report": str(learnt.report)} if learnt.report else {}
        console.show_json({"model": str(learnt.model), **report, **learnt.about})
    else:
        from lstr.pipelines.model_files.card import model_of

        for line in learnt.lines():
            console.show(line)
        if learnt.about["config"].get("kind") == "average":
            console.say(f"{learnt.model} has {model_of(learnt.about)}")
        console.show(f"next: lstr detect VIDEO -m {shlex.quote(str(learnt.model))} -o timeline")
        if learnt.report:
            console.say(f"report: {learnt.report.resolve()}")
    if learnt.failed:
        some = ", ".join(failed.id for failed in learnt.failed[:5])
        console.say(f"{len(learnt.failed)} videos were skipped: {some}")
        sys.exit(console.PARTIAL_FAILURE)


class RemainingTime:
    """How long a training still takes, by its plan and by how fast the current step has been."""

    def __init__(self) -> None:
        # the step, when its first progress came, and how much of it was done then
        self._start: tuple[str, float, int] = ("", 0.0, 0)

    def update(self, event: "StepProgress", now: float) -> tuple[float, float]:
        """Return the seconds that the step and all steps still take, at the moment `now`."""
        if self._start[0] != event.key:
            self._start = (event.key, now, event.done)
        _, start, before = self._start
        planned = of_step = event.seconds * (1 - event.done / max(1, event.total))
        if event.done > before:
            # The plan counts as TRUST of the step, so that the first measured units do not decide alone.
            seconds = now - start + TRUST * event.seconds
            of_step = seconds / (event.done - before + TRUST * event.total) * (event.total - event.done)
        return of_step, max(0.0, event.left - planned) + of_step


def follow(events: Iterator, plan_to_stdout: bool = False) -> Any:
    """Show the events of the job until it is finished; return its result."""
    from lstr.pipelines.learning.plan import STEP_NAMES, StepProgress
    from lstr.pipelines.learning.preparation import Learning

    step, remaining = "", RemainingTime()

    def show(event: Any, bar: console.Bar) -> None:
        nonlocal step
        match event:
            case Learning() if plan_to_stdout:
                console.show_json({**event.plan.to_dict(), "model": str(event.model), "is_resumed": event.is_resumed})
            case Learning(plan=plan):
                steps = enumerate(plan.steps.items(), start=1)
                rows = [(f"{at}", STEP_NAMES[key], console.clock(seconds)) for at, (key, seconds) in steps]
                videos = ", ".join(f"{n} {subset}" for subset, n in plan.videos.items())
                minutes = sum(plan.chunks.values()) / 240
                console.say(f"classes: {plan.n_classes}; videos: {videos}, {minutes:.1f} minutes in all; {plan.split}")
                console.show_table("plan, by the speed of this machine", ("", "step", "time"), rows, (0, 2), False)
                within = f" (may take {console.clock(plan.budget)})" if plan.budget else ""
                epochs = [f"{n} epochs of {plan.draws} images for {stream}" for stream, n in plan.epochs.items() if n]
                epochs += [f"the {stream} network unchanged" for stream, n in plan.epochs.items() if not n]
                size = f"{plan.bytes / 1e6:.0f} MB of disk"
                console.say(f"about {console.clock(plan.seconds)} in all{within}; {', '.join(epochs)}; {size}")
                models = " and ".join("+".join(streams) for streams in plan.models)
                console.say(f"models ({plan.preset}): {models}{', averaged' if len(plan.models) > 1 else ''}")
                begun = "resumes in" if event.is_resumed else "everything is kept in"
                console.say(f"{begun} {event.workspace.path}; after Ctrl-C run the same command again")
            case StepProgress():
                name = f"{event.number}/{event.steps} {STEP_NAMES[event.key]}"
                of_step, of_all = remaining.update(event, monotonic())
                if name != step:
                    bar.drop(step)
                    console.say(f"{name}; about {console.clock(of_all)} left in all")
                    step = name
                if event.total:
                    bar.update(name, event.done, event.total, f"({console.clock(of_all)} in all)", of_step)
            case Failed():
                console.say(f"failed: {event.reason}\nhint: {event.hint}")

    return console.follow(events, "", show)


def follow_in_json(events: Iterator) -> Any:
    """Write the events of the job to standard error, one JSON object per line; return its result."""
    from lstr.labels.check import NOTE
    from lstr.pipelines.learning.plan import STEP_NAMES, StepProgress

    step, last, remaining, result = 0, 0.0, RemainingTime(), None

    def write(**content: Any) -> None:
        sys.stderr.write(json.dumps(content) + "\n")
        sys.stderr.flush()

    with closing(events):  # type: ignore[type-var]  # jobs are generators
        for event in events:
            match event:
                case StepProgress(key, number, steps, done, total):
                    left = remaining.update(event, monotonic())[1]
                    if number != step or done == total or monotonic() - last > PROGRESS_SECONDS:
                        step, last = number, monotonic()
                        share = done / total if total else 0.0
                        write(step=number, steps=steps, name=STEP_NAMES[key], share=share, seconds_left=left)
                case Notice(text, warning):
                    write(**{"warning" if warning else "notice": text})
                case LabelFindings(_, findings):
                    for found in findings:
                        write(**{"notice" if found.severity == NOTE else "warning": found.sentence})
                case Failed(name, reason):
                    write(warning=f"{name} was skipped: {reason}")
                case Finished(result):
                    pass
    return result


@click.command("demo", cls=Command)
@option("-o --output DIR", OUTPUT, "Write everything into this folder.", default="demo")
def demo(output):
    """Draw a small labelled set of videos, learn from most of them, and detect on the others.

    Takes two minutes on two CPU cores and 300 MB of disk, and downloads nothing. It runs `lstr learn` and `lstr detect
    -m`, as on your own videos; its model was trained on rendered figures. Run it again to resume after an interruption.

    \b
    Examples:
      lstr demo
      lstr demo -o /tmp/demo
    """
    from lstr.pipelines.demo import demo as job

    console.say("draws 14 videos, learns from 10 and detects on 4; about two minutes on two cores, 300 MB of disk")
    start = monotonic()
    learnt, index = follow(job(Path(output)))
    rows = [
        (label, f"{one['found']} of {one['labels']}", str(one["false_alarms"]))
        for label, one in learnt.about["metrics"]["events"]["per_class"].items()
    ]
    console.show_table("held-out videos", ("action", "found", "false alarms"), rows, right=(1, 2))
    for line in learnt.lines():
        console.show(line)
    console.show(f"open: {index}")
    console.say(
        f"took {console.clock(monotonic() - start)}; the model, {learnt.model}, was trained on rendered figures"
    )
    console.say("next, with videos of your own: lstr learn VIDEOS LABELS -o my.lstr")
