"""`lstr demo`: everything, end to end, on videos made on the spot."""

from pathlib import Path

import click

from lstr_cli.headings import Command


@click.command("demo", cls=Command)
@click.option("-o", "--output", default="demo", show_default=True, metavar="DIR", help="Folder for all it makes.")
def command(output):
    """Render a small labelled set of MP4 files, extract, train, evaluate on held-out files, and detect on one.

    Takes a few minutes on two CPU cores and downloads nothing. Leaves its checkpoint as the default one, so that
    `lstr detect VIDEO` works from then on. Run it again to go on after an interruption.

    \b
    Examples:
      lstr demo
      lstr demo -o /tmp/demo
    """
    from lstr_cli import console
    from pipelines.demo.demo import demo

    made = console.follow(demo(Path(output)))
    console.warn("the feature networks carry random weights: these figures show that the chain works, no more.")
    models = ("lstr", "time_prior", "chance")
    rows = [(name, *(f"{made.metrics[name][mean]:.3f}" for mean in ("mAP", "mcAP"))) for name in models]
    console.show_table("held-out videos, per-frame", ("", "mAP", "mcAP"), rows, right=(1, 2))
    console.show_table("time", ("part", "seconds"), [(k, f"{v:.0f}") for k, v in made.seconds.items()], right=(1,))
    console.show(f"report: {made.report}")
    console.show(f"default checkpoint: {made.checkpoint}")
    console.show(f"next: lstr detect {made.video} -o timeline")
