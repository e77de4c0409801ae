"""`lstr detect`: a video to a causal timeline of actions."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import click

from lstr_cli.command import Command
from lstr_cli.options import (
    device_option,
    events_options,
    gather,
    live_settings,
    networks_options,
    stretch_options,
    workers_option,
)
from lstr_cli.quantities import Size
from lstr_cli.settings import model_set_option, setting

SOME_FAILED, STALLED = 3, 1


def _formats(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if ctx.resilient_parsing:  # a shell completes something
        return values
    from lstr.pipelines.detection.outputs import DEFAULT, FORMATS

    names = [part.strip() for value in values for part in value.split(",")]
    chosen = tuple(FORMATS if "all" in names else names or DEFAULT)
    for name in chosen:
        if name not in FORMATS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)} and all.")
    if values and not ctx.params.get("output") and chosen != ("jsonl",):
        raise click.BadParameter(f"{', '.join(chosen)} are files; add -o DIR. Only jsonl goes to standard output.")
    return chosen


def _output_options(command):
    """What a detection leaves behind, as the command's argument `written`, a dict."""
    gathered = gather(command, "written", ("output", "formats", "labels", "embed"))
    for option in (
        setting(
            "embed",
            type=Size(),
            default=0,
            metavar="SIZE",
            help="Put videos of at most SIZE, as in 20MB, into their HTML pages, so that the page alone can be sent.",
        ),
        click.option("--labels", metavar="FILE", help="Draw these labels beside the detections in the HTML page."),
        click.option(
            "-f",
            "--format",
            "formats",
            metavar="LIST",
            multiple=True,
            callback=_formats,
            help="What DIR gets, with commas between.  [default: json,jsonl,npy,html]",
        ),
        click.option("-o", "--output", metavar="DIR", is_eager=True, help="Folder for the timelines."),
    ):
        gathered = option(gathered)
    return gathered


def _model_options(command):
    """Which model decides, as the command's argument `model`, a dict; its networks have options of their own."""
    gathered = gather(command, "model", ("checkpoint", "settings", "device", "model_precision", "at_once"))
    precision = setting(
        "model_precision",
        type=click.Choice(["float32", "bf16", "int8"]),
        default="float32",
        show_default=True,
        help="Of the model's linear layers; bf16 (kinds lstr, miniroad, testra, cmert, mat) and int8 (miniroad) are "
        "faster and a little off.",
    )
    at_once = workers_option(
        "Videos that are decided at once, at most, with the same networks and threads; their results are the same, and "
        "come in the order of the videos.  [default: what suits the machine, 4 at most]",
        "at_once",
    )
    return at_once(precision(model_set_option(device_option(gathered))))


@click.command("detect", cls=Command)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "-m",
    "--model",
    "-c",
    "--checkpoint",
    "checkpoint",
    metavar="FILE",
    help="Model file (.lstr), which holds all that is needed, or a checkpoint.  [default: $LSTR_CHECKPOINT, else the "
    "default model]",
)
@_output_options
@networks_options
@stretch_options
@live_settings
@events_options()
@_model_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON timeline per source instead of a table.")
def command(sources, model, written, networks, events, stretch, live, as_json):
    """Say which action is happening at each quarter second of a video, without looking ahead.

    SOURCE is a video, a folder of videos, a feature folder, a camera (camera:0), an address (rtsp://, http://,
    https://, udp://, rtmp://, srt://, tcp://), or - for a video on standard input. Several live sources are watched
    at once, after the others; Ctrl-C ends them, and their files are written.

    DIR gets ID.json (segments), ID.jsonl (one line per decision, written as it is made), ID.scores.npy and ID.html; -f
    also takes csv, tsv, vtt, srt, ass, eaf (ELAN), labelstudio, activitynet, thumos, audacity, png, svg, mp4 (the
    video with its lanes) and all. Without -o the JSONL goes to standard output when that is a pipe, or with -f jsonl.
    Several sources with HTML pages get an index.html too.

    An action is reported the moment its score reaches --on, and its end when the score falls below --off;
    --min-length and --merge-gap delay both, and a line says by how much. Without these options the checkpoint's
    thresholds hold, where `lstr evaluate --choose-thresholds` has chosen them.

    \b
    Examples:
      lstr detect game.mp4 -o timeline
      lstr detect game.mp4 -m fall.lstr -o timeline -f json,html
      lstr detect game.mp4 -m run/checkpoint.pt -o timeline
      lstr detect game.mp4 -o timeline -f vtt,eaf,mp4 --min-length 0.5
      lstr detect game.mp4 | jq -c 'select(.event)'
      lstr detect rtsp://camera/stream camera:0 -o timeline --set timeout=2m
    """
    from lstr.pipelines.detection.paths import by_kind
    from lstr_cli import console

    weights = _by_stream(networks.pop("weights"))
    by_kind(sources)  # a path with a mistake is named at once; torch alone takes seconds to import
    console.say_waiting("loading networks…")
    from lstr.extractors.video.live_reader import LiveOptions
    from lstr.pipelines.annotations.label_file import read_label_file
    from lstr.pipelines.detection.files import OutputOptions
    from lstr.pipelines.detection.job import DetectOptions, detect_sources
    from lstr.pipelines.detection.networks import NetworkOptions
    from lstr.pipelines.detection.sources import Limits
    from lstr_cli.view import Progress, View, speed_text

    folder = Path(written["output"]) if written["output"] else None
    piped = not as_json and not console.is_terminal()
    lines = sys.stdout if not folder and (piped or written["formats"] == ("jsonl",)) else None
    labels = read_label_file(written["labels"]) if written["labels"] else None
    view = View(ascii_only=not console.takes_unicode())
    screen = console.Screen(view, lines is sys.stdout and console.is_terminal())
    options = DetectOptions(
        model["checkpoint"],
        settings=model["settings"],
        device=model["device"],
        model_precision=model["model_precision"],
        at_once=model["at_once"],
        networks=NetworkOptions(**weights, **networks),
        thresholds=events,
        limits=Limits(**stretch),
        on_gap=live.pop("on_gap"),
        live=LiveOptions(**live),
        output=OutputOptions(folder, written["formats"], lines, labels, written["embed"]),
        sinks=[partial(Progress, view, screen.update)],
    )
    with closing(detect_sources(sources, options)) as job, screen, ThreadPoolExecutor(1, "messages") as messages:
        ended, result = _follow(job, screen, messages)
    # tables wait until the view is gone, for both draw on the terminal
    for source in ended:
        if as_json:
            console.show_json(source.timeline)
        elif lines is None:
            _show(console, source.timeline)
        if not source.timeline["segments"]:
            _say_nothing_found(console, source.timeline)
        console.say(speed_text(source.timeline, source.id if len(ended) > 1 else ""))
        if source.page:
            console.say(f"report: {source.page}")
    if result.index:
        console.say(f"index: {result.index}")
    if result.failures:
        sys.exit(STALLED if result.stalled else SOME_FAILED)


def _by_stream(weights: tuple[str, ...]) -> dict[str, str | None]:
    """Named weights as options of the networks."""
    if not weights:
        return {}
    from lstr.pipelines.weights.published import weights_by_stream  # brings torch

    return {f"{stream}_weights": path for stream, path in weights_by_stream(weights).items()}


def _follow(job, screen, messages) -> tuple[list, object]:
    """Show what the job reports; the sources that ended, and its result.

    The thread of `messages` says them: a terminal that is stopped would stop the cameras.
    """
    from lstr.pipelines.detection.events import Ended, Opened
    from lstr.pipelines.progress import Failed, Finished, Notice
    from lstr_cli import console

    ended = []
    while True:
        try:
            event = next(job)
            if isinstance(event, Finished):
                return ended, event.result
            if isinstance(event, Notice):
                messages.submit(console.warn if event.warning else console.say, event.text)
                continue
            if isinstance(event, Failed):
                messages.submit(console.say, f"failed: {event.reason}\nhint: {event.hint}")
            if isinstance(event, Ended):
                ended.append(event)
            if isinstance(event, Opened):
                messages.submit(screen.start)
        except KeyboardInterrupt as interrupted:
            # wherever it fell, the files of live sources are written before it goes on
            job.throw(interrupted)


def _say_nothing_found(console, timeline: dict) -> None:
    """What came nearest to an action in a source, and how to see it."""
    best, thresholds = timeline.get("best"), timeline["thresholds"]
    if not best:
        console.say(f"{timeline['source']}: nothing found, for the model knows no action.")
        return
    rule = thresholds.get(best["label"], thresholds)
    lower = math.floor(100 * best["score"]) / 100
    if best["score"] >= rule["on"]:
        why, hint = f"for less than {rule['min_length']:g} s", "try a shorter --min-length."
    elif lower:
        why, hint = f"below its threshold of {rule['on']:g}", f"try --on {lower:g}"
    else:
        why, hint = "which is next to nothing", "nothing here resembles what the model has learnt."
    nearest = f"best was {best['label']} with {best['score']:.2f} at {best['time']:.2f} s, {why}."
    console.say(f"{timeline['source']}: nothing found; {nearest}\nhint: {hint}")


def _show(console, timeline: dict) -> None:
    if not timeline["segments"] and console.is_terminal():  # a table without rows is an empty box
        console.show(f"{timeline['source']}: {timeline['decided']} decisions, no action")
        return
    rows = [(f"{s['start']:.2f}", f"{s['end']:.2f}", s["label"], f"{s['score']:.2f}") for s in timeline["segments"]]
    title = f"{timeline['source']}: {timeline['decided']} decisions, actions: {len(rows)}"
    console.show_table(title, ("start s", "end s", "action", "score"), rows, right=(0, 1, 3))
