"""`lstr detect`: a video to a causal timeline of actions."""

import sys
from contextlib import closing
from pathlib import Path

import click

from lstr_cli.options import (
    Size,
    algorithm_option,
    device_option,
    events_options,
    live_options,
    mismatch_option,
    model_settings,
    set_option,
    stretch_options,
    weights_options,
    workers_option,
)

SOME_FAILED, STALLED = 3, 1


def _formats(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    from pipelines.detection.outputs import DEFAULT, FORMATS

    names = [part.strip() for value in values for part in value.split(",")]
    chosen = tuple(FORMATS if "all" in names else names or DEFAULT)
    for name in chosen:
        if name not in FORMATS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)} and all.")
    if values and not ctx.params.get("output") and chosen != ("jsonl",):
        raise click.BadParameter(f"{', '.join(chosen)} are files; add -o DIR. Only jsonl goes to standard output.")
    return chosen


@click.command("detect")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("-c", "--checkpoint", metavar="FILE", help="Checkpoint; else $LSTR_CHECKPOINT, else the default one.")
@click.option("-o", "--output", metavar="DIR", is_eager=True, help="Folder for the timelines.")
@click.option(
    "-f",
    "--format",
    "formats",
    metavar="LIST",
    multiple=True,
    callback=_formats,
    help="What DIR gets, with commas between.  [default: json,jsonl,npy,html]",
)
@click.option("--labels", metavar="FILE", help="Draw these labels beside the detections in the HTML page.")
@click.option(
    "--embed",
    type=Size(),
    default=0,
    metavar="SIZE",
    help="Put videos of at most SIZE, as in 20MB, into their HTML pages, so that the page alone can be sent.",
)
@weights_options
@algorithm_option
@mismatch_option
@workers_option
@click.option(
    "--precision",
    type=click.Choice(["float32", "bf16"]),
    default="float32",
    show_default=True,
    help="Of LSTR's linear layers; bf16 is faster and a little off.",
)
@stretch_options
@live_options
@events_options
@set_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON timeline a source instead of a table.")
def command(
    sources,
    checkpoint,
    output,
    formats,
    labels,
    embed,
    rgb_weights,
    flow_weights,
    algorithm,
    allow_mismatch,
    workers,
    flow_backend,
    precision,
    settings,
    device,
    as_json,
    events,
    stretch,
    live,
):
    """Say which action is happening at each quarter second of a video, without looking ahead.

    SOURCE is a video, a folder of videos, a feature folder, a camera (camera:0), an address (rtsp://, http://,
    https://, udp://, rtmp://, srt://, tcp://), or - for a video on standard input. Several live sources are watched
    at once, after the others; Ctrl-C ends them, and what they gave is written.

    DIR gets ID.json (segments), ID.jsonl (a line a decision, written as it is made), ID.scores.npy and ID.html; -f
    also takes csv, tsv, vtt, srt, ass, eaf (ELAN), labelstudio, activitynet, thumos, audacity, png, svg, mp4 (the
    video with its lanes) and all. Without -o the JSONL goes to standard output when that is a pipe, or with -f jsonl.
    Several sources with HTML pages get an index.html too.

    An action is told the moment its score reaches --on, and its end when the score falls below --off; --min-length
    and --merge-gap delay both, and by how much is said. Without these options the checkpoint's thresholds
    hold, where `lstr evaluate --calibrate` has set them.

    \b
    Examples:
      lstr detect game.mp4 -o timeline
      lstr detect game.mp4 -c run/checkpoint.pt -o timeline -f json,html
      lstr detect game.mp4 -o timeline -f vtt,eaf,mp4 --min-length 0.5
      lstr detect game.mp4 | jq -c 'select(.event)'
      lstr detect rtsp://camera/stream camera:0 -o timeline --timeout 2m
    """
    from extractors.errors import ExtractorError
    from extractors.video.live_input import parse_live
    from lstr.labels import read_labels
    from lstr.timeline import changed, thresholds_of
    from lstr_cli import console
    from lstr_cli.live_sources import watch
    from lstr_cli.view import View
    from pipelines.detection.detect import load_checkpoint, run, truth_of, warnings_of
    from pipelines.detection.sources import Limits, NetworkOptions, open_sources
    from pipelines.detection.status import Status
    from pipelines.reports.fonts import illegible_warning
    from pipelines.reports.index_page import write_index

    loaded = load_checkpoint(checkpoint, model_settings(settings), device)
    for text in warnings_of(loaded):
        console.warn(text)
    thresholds = thresholds_of(loaded, events)
    late = changed({}, events).delays()
    if any(late.values()):
        console.say(f"What has started is told {late['started']:g} s later, what has ended {late['ended']:g} s later.")
    truth = read_labels(labels) if labels else None
    folder = Path(output) if output else None
    if folder and {"mp4", "png"} & {*formats} and (text := illegible_warning(loaded.classes)):
        console.warn(text)
    piped = not as_json and not console.is_terminal()
    lines = sys.stdout if not folder and (piped or formats == ("jsonl",)) else None
    failed, finished, code = [], [], SOME_FAILED
    if sources.count("-") > 1:
        raise click.BadArgumentUsage("Standard input can be read once.")
    limits = Limits(**stretch)
    parsed = [(given, parse_live(given)) for given in sources]
    recorded = [given for given, one in parsed if one is None]
    inputs = [one for _, one in parsed if one]
    networks = NetworkOptions(rgb_weights, flow_weights, workers, flow_backend, device, algorithm, allow_mismatch)
    opened = open_sources(recorded, loaded, networks, limits)
    warned = set()
    view = View(ascii_only=not console.takes_unicode())
    with closing(opened), console.Screen(view, lines is sys.stdout and console.is_terminal()) as screen:
        for source in opened:
            try:
                if isinstance(source, ExtractorError):
                    raise source
                for text in source.warnings:
                    if text not in warned:
                        console.warn(text)
                    warned.add(text)
                drawn = truth_of(truth, source.id)
                status = Status(source.id, source.n_chunks)
                decisions = run(source, loaded, folder, formats, lines, drawn, precision, thresholds, embed, status)
                if folder and "mp4" in formats and source.video is None and not finished:
                    console.warn(f"{source.origin} has no pictures to draw on, so there is no mp4 of it.")
                with view.watching(status, loaded.classes) as watched:
                    finished.append((source.id, _follow(decisions, watched, screen)))
            except ExtractorError as error:
                if error.exit_code != SOME_FAILED:
                    raise
                failed.append(str(error))
                console.say(f"failed: {error}\nhint: {error.hint}")
        opened.close()  # its networks make room for those of the live sources
        if inputs:
            options = (limits, live, precision, thresholds)
            outputs = (folder, formats, lines, truth, warnings_of(loaded), embed)
            ended, errors = watch(inputs, loaded, networks, options, outputs, view, screen)
            finished += ended
            failed += [str(error) for error in errors]
            code = STALLED if any(error.exit_code == STALLED for error in errors) else SOME_FAILED
    # tables wait until the view is gone, for both draw on the terminal
    for source_id, timeline in finished:
        if as_json:
            console.show_json(timeline)
        elif lines is None:
            _show(console, timeline)
        speed = timeline["speed"]
        console.say(f"{speed['decisions_per_second']} decisions a second, {speed['realtime_factor']} × real time")
        if folder and "html" in formats:
            console.say(f"report: {folder / f'{source_id}.html'}")
    if folder and "html" in formats and finished and len(finished) + len(failed) > 1:
        drawn = {video_id: truth_of(truth, video_id) for video_id, _ in finished}
        console.say(f"index: {write_index(folder, dict(finished), truth=drawn, failed=failed)}")
    if failed:
        sys.exit(code)


def _follow(decisions, watched, screen) -> dict:
    """Run a source to its end, showing each decision; its timeline."""
    while True:
        try:
            watched.push(next(decisions))
        except StopIteration as ended:
            return ended.value
        screen.update(watched)


def _show(console, timeline: dict) -> None:
    rows = [(f"{s['start']:.2f}", f"{s['end']:.2f}", s["label"], f"{s['score']:.2f}") for s in timeline["segments"]]
    title = f"{timeline['source']}: {timeline['decided']} decisions, actions: {len(rows)}"
    console.show_table(title, ("start s", "end s", "action", "score"), rows, right=(0, 1, 3))
