"""`lstr detect`: a video to a causal timeline of actions."""

import math
import os
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any

import click

from lstr.pipelines.progress import Failed, Finished, Notice
from lstr.settings import parse_seconds
from lstr_cli import console, interruption
from lstr_cli.options import (
    DATA,
    EVENTS,
    LIVE,
    MODEL,
    OF_MODEL,
    OUTPUT,
    Command,
    Quantity,
    option,
    read_pairs,
    set_option,
    weights_option,
)

if TYPE_CHECKING:  # they import torch
    from lstr.pipelines.detection.decision import Ended
    from lstr.pipelines.detection.detect import Detected, DetectEvent
    from lstr_cli.view import View

STALLED = 1  # exit status if a live source sent nothing for too long
AT_LEAST_0 = click.FloatRange(min=0)
STILL_ACTIVE = " (still active at the end)"


@click.command("detect", cls=Command)
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@option(
    "-m --model -c --checkpoint FILE",
    MODEL,
    "Use this model file (.lstr), or this checkpoint.  [default: $LSTR_CHECKPOINT, else the default model]",
    "checkpoint",
)
@option("-o --output DIR", OUTPUT, "Write the timelines into this folder.")
@option(
    "-f --format LIST",
    OUTPUT,
    "Write these formats into DIR, separated by commas.  [default: json,jsonl,npy,html]",
    "formats",
    multiple=True,
)
@option("--events-only", OUTPUT, "Write only events to the JSONL; decisions take tens of MB per day of a camera.")
@option("--json", OUTPUT, "Print the timeline as JSON instead of a table; a list for a folder or several.", "as_json")
@option("--on P", EVENTS, "Start an action at this score.  [default: 0.5]", type=AT_LEAST_0)
@option("--off P", EVENTS, "End an action below this score.  [default: 0.35]", type=AT_LEAST_0)
@option(
    "--min-length S",
    EVENTS,
    "Ignore actions shorter than this many seconds. Delays each start by as much.",
    type=AT_LEAST_0,
)
@option("--merge-gap S", EVENTS, "Join parts of an action this close. Delays each end by as much.", type=AT_LEAST_0)
@option("--start TIME", DATA, "Start at this time, for example 90s or 1:30.", type=Quantity(parse_seconds), default=0.0)
@option("--duration TIME", DATA, "Stop after this much of each source.", type=Quantity(parse_seconds, positive=True))
@option(
    "--name NAME=SOURCE",
    LIVE,
    "Name a live source in files and lines, as in door=rtsp://camera/stream; repeatable.",
    "names",
    multiple=True,
    callback=read_pairs,
)
@weights_option
@set_option(
    "labels embed timeout on_lag clock runtime flow_threads recipe.flow_algorithm recipe.allow_mismatch", model=OF_MODEL
)
def detect(sources, as_json, formats, settings, on, off, min_length, merge_gap, **others):
    """Detect the current action at each quarter second of a video, without looking ahead.

    SOURCE is a video, a folder of videos, a feature folder, a camera (camera:0), an address (rtsp://, http://,
    https://, udp://, rtmp://, srt://, tcp://), or - for a video on standard input. Several live sources are watched
    at once, after the others; Ctrl-C ends them, and their files are written, named by source (or --name) and time of
    the start.

    DIR gets ID.json (segments), ID.jsonl (one line per decision, written as it is made), ID.scores.npy and ID.html; -f
    also takes csv, vtt, eaf (ELAN), activitynet, thumos, png, svg, mp4 (the video with its lanes) and all. Without
    -o the JSONL goes to standard output when that is a pipe, or with -f jsonl. Several sources with HTML pages get
    an index.html too.

    An action is reported the moment its score reaches --on, and its end when the score falls below --off.
    --min-length and --merge-gap delay both, and a line says by how much. Without these options the thresholds of the
    checkpoint apply, which `lstr evaluate --choose-thresholds` chooses.

    \b
    Examples:
      lstr detect game.mp4 -o timeline
      lstr detect game.mp4 -m fall.lstr -o timeline -f json,html
      lstr detect game.mp4 -m run/checkpoint.pt -o timeline
      lstr detect game.mp4 -o timeline -f vtt,eaf,mp4 --min-length 0.5
      lstr detect game.mp4 | jq -c 'select(.event)'
      lstr detect rtsp://camera/stream camera:0 -o timeline --set timeout=2m
      lstr detect --name door=rtsp://camera/stream -o timeline --events-only
    """
    from lstr.pipelines.detection.options import DEFAULT_FORMATS, FORMATS, by_kind

    if not sources and not others["names"]:
        ctx = click.get_current_context()
        raise click.MissingParameter(ctx=ctx, param=ctx.command.params[0], param_type="argument")
    networks: dict[str, Any] = {"device": os.environ.get("LSTR_DEVICE")}  # so that an exported file refuses a GPU
    if weights := others.pop("weights"):
        from lstr.extractors.networks.published import weights_by_stream  # imports torch

        networks["weights"] = {stream: path for stream, path in weights_by_stream(weights).items() if path}
    given = [part.strip() for value in formats for part in value.split(",")]
    formats = tuple(FORMATS if "all" in given else given or DEFAULT_FORMATS)
    for name in (name for name in formats if name not in FORMATS):
        from lstr.pipelines.annotations.format import all_formats

        if name not in {form.name for form in all_formats() if form.detects}:  # of another package
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)} and all.")
    if given and not others["output"] and formats != ("jsonl",):
        files = ", ".join(formats)
        raise click.BadParameter(f"{files} need a folder: add -o DIR, or choose jsonl for standard output.")
    if others["events_only"] and "jsonl" not in formats:
        raise click.UsageError("--events-only needs jsonl among the formats of -f.")
    # reports a wrong path at once; the imports below take longer
    recorded, live = by_kind(sources, others["names"])
    console.say_waiting("loading networks…")
    from lstr.extractors.video.inputs import LiveOptions
    from lstr.pipelines.detection.detect import DetectOptions, detect_sources
    from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
    from lstr_cli.view import Progress, View

    folder = Path(others["output"]) if others["output"] else None
    piped = not as_json and not console.out.is_terminal
    lines = sys.stdout if not folder and (piped or formats == ("jsonl",)) else None
    output = {"folder": folder, "formats": formats, "lines": lines, "events_only": others["events_only"]}
    if "labels" in settings:
        from lstr.pipelines.annotations.label_files import read_label_file  # imports every label format

        output["labels"] = read_label_file(settings.pop("labels"))
    view = View(lines is sys.stdout and console.out.is_terminal)
    how = "runtime flow_threads recipe.flow_algorithm recipe.allow_mismatch"
    chosen = DetectOptions(
        checkpoint=others["checkpoint"],
        networks=settings.build(NetworkOptions, how, **networks),
        settings=settings.take("model"),
        thresholds={"on": on, "off": off, "min_length": min_length, "merge_gap": merge_gap},
        limits=Limits(others["start"], others["duration"]),
        live=settings.build(LiveOptions, "clock on_lag timeout"),
        output=settings.build(OutputOptions, "embed", **output),
        sinks=[partial(Progress, view)],
    )
    ended: list[Any] = []
    with ExitStack() as stack:
        # tables come after the view, because both draw on the terminal; sources that failed have a table too
        is_list = len(recorded) + len(live) > 1 or any(not path.is_file() for path in recorded)  # folder or pattern
        stack.callback(_show_ended, ended, lines is None, as_json, is_list)
        job = stack.enter_context(closing(detect_sources([*recorded, *live], chosen)))
        stack.enter_context(view)
        result = _follow(job, view, stack.enter_context(ThreadPoolExecutor(1, "messages")), ended)
        heard = interruption.accept_signal() if result.left else None
    if result.comparison:
        console.say(result.comparison)
    if result.index:
        console.say(f"index: {result.index}")
    if as_json and result.left and not is_list and not ended:
        console.show_json(None)
    if result.left and heard is not SIGINT:
        raise KeyboardInterrupt  # not a person at the keyboard: the exit code is that of the signal
    if result.left and not ended:
        console.say("interrupted before the first decision.")
    elif result.left:
        console.say("interrupted" + (f"; the files are in {folder}." if folder else "."))
    if result.failures:
        sys.exit(STALLED if result.stalled else console.PARTIAL_FAILURE)


def _show_ended(ended: "list[Ended]", with_tables: bool, as_json: bool, is_list: bool) -> None:
    """Show the results of the sources that ended: as tables, or as JSON, which is a list for several sources."""
    from lstr_cli.view import speed_text

    if as_json and (is_list or ended):
        timelines = [source.timeline for source in ended]
        console.show_json(timelines if is_list else timelines[0])
    with_tables = with_tables and not as_json
    for source in ended:
        timeline, thresholds = source.timeline, source.timeline["thresholds"]
        best: Any = timeline.get("best")  # the highest score of an action
        name = timeline.get("name") or timeline["source"]
        if with_tables and not timeline["segments"] and console.out.is_terminal:  # no rows would be an empty box
            console.show(f"{name}: {timeline['decided']} decisions, no action")
        elif with_tables:
            is_live, rows = "live" in timeline, []
            for found in timeline["segments"]:
                began = [found["start_at"][:19].replace("T", " ")] if is_live else []  # to the second
                label = found["label"] + (STILL_ACTIVE if found.get("still_active") else "")
                rows.append((*began, f"{found['start']:.2f}", f"{found['end']:.2f}", label, f"{found['score']:.2f}"))
            columns = ["began"] * is_live + ["start s", "end s", "action", "score"]
            numbers = (1, 2, 4) if is_live else (0, 1, 3)
            title = f"{name}: {timeline['decided']} decisions, actions: {len(rows)}"
            console.show_table(title, columns, rows, right=numbers)
        if not timeline["segments"] and not best:
            console.say(f"{name}: nothing found, because the model has no action.")
        elif not timeline["segments"]:
            rule, lower = thresholds.get(best["label"], thresholds), math.floor(100 * best["score"]) / 100
            if best["score"] >= rule["on"]:
                why, hint = f"for less than {rule['min_length']:g} s", "try a shorter --min-length."
            elif lower:
                end = f" --off {lower / 2:.2g}" if rule["off"] > lower else ""
                why, hint = f"below its threshold of {rule['on']:g}", f"try --on {lower:g}{end}"
            else:
                why, hint = "which is close to 0", "this source does not resemble the training videos."
            nearest = f"best was {best['label']} with {best['score']:.2f} at {best['time']:.2f} s, {why}."
            console.say(f"{name}: nothing found; {nearest}\nhint: {hint}")
        console.say(f"{source.id}: {speed_text(timeline)}" if len(ended) > 1 else speed_text(timeline))
        if source.page:
            console.say(f"report: {source.page}")


def _follow(
    job: "Generator[DetectEvent, None, None]", view: "View", messages: ThreadPoolExecutor, ended: "list[Ended]"
) -> "Detected":
    """Show what the job reports, add the sources that end to `ended`, and return the result.

    The thread of `messages` prints: a stopped terminal would stop the cameras otherwise.
    """
    from lstr.pipelines.detection.decision import Ended, Opened

    answer = None  # of the job, to an interrupt
    while True:
        try:
            event = answer or next(job)
            answer = None
            match event:
                case Finished(result):
                    return result
                case Notice(text, warning):
                    messages.submit(console.warn if warning else console.say, text)
                case Failed():
                    messages.submit(console.say, f"failed: {event.reason}\nhint: {event.hint}")
                case Ended() if event.timeline:
                    ended.append(event)
                case Opened():
                    messages.submit(view.start)
        except KeyboardInterrupt as interrupted:
            answer = job.throw(interrupted)  # wherever it fell, the job first writes the files of live sources
