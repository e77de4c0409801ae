"""`lstr label`: a page to label videos in."""

import webbrowser
from contextlib import suppress
from pathlib import Path

import click

from lstr_cli import console, interruption
from lstr_cli.options import DATA, OUTPUT, RUN, Command, option


@click.command("label", cls=Command)
@click.argument("videos", nargs=-1, required=True, metavar="VIDEO|DIR|PATTERN...")
@option("-o --output FILE", OUTPUT, "Write the labels here.  [default: labels.json next to the videos]")
@option("--labels FILE", DATA, "Start with labels of any format; repeatable.", multiple=True)
@option(
    "-m --model -c --checkpoint FILE",
    DATA,
    "Propose the detections and near misses of a model file (.lstr) or checkpoint.",
    "model",
)
@option("--port N", RUN, "Serve the page on this port.  [default: 8420, or a free one]", type=click.IntRange(1, 65535))
@option("--no-browser", RUN, "Print the address without opening a browser.")
def label(videos, output, labels, model, port, no_browser):
    """Label videos on a page in the browser; the file is ready for `lstr learn`.

    The page is served to this machine only, until Ctrl-C. Each change is saved at once; the same command resumes. An
    action has a key that starts it at the cursor and stops it there; the image is the exact frame at that time.

    A button on the page runs `lstr learn` and shows its progress and result. The model then proposes labels.

    Time without labels is not used as background until you mark the video as complete, or the stretch as empty.

    With a model, its detections and near misses are proposals: shift R shows each in turn, the least sure first, and
    one key accepts, corrects or rejects it. The model searches the videos while you label. Open proposals are not
    used for training.

    \b
    Examples:
      lstr label videos
      lstr label videos -o monday.json --no-browser
      lstr label videos --labels events.csv -o labels.json
      lstr label new_videos -m my.lstr
    """
    from lstr.pipelines.labelling.label import label

    served = label(videos, output and Path(output), labels, port=port, model=model and Path(model), notify=console.say)
    labelling = None
    try:
        with served as labelling:
            click.echo(labelling.server.address)  # with its token, which console.show would hide
            console.say(f"labels: {labelling.project.path}; Ctrl-C ends it")
            if not no_browser:
                with suppress(webbrowser.Error):
                    webbrowser.open(labelling.server.address)
            labelling.server.wait()
    except KeyboardInterrupt:  # the usual end
        if labelling is None:  # before the page was served
            raise
        interruption.accept_signal()
    if labelling.project.path.exists():  # it does once there is a label
        console.say_next("lstr", "learn", *videos, labelling.project.path)
