"""`lstr demo`: everything, end to end, on videos made on the spot."""

from pathlib import Path

import click


@click.command("demo")
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
    from pipelines.demo.demo import run

    with console.Bar("") as bar:
        result = run(Path(output), bar.update, console.say)
    console.warn("the feature networks carry random weights: these figures show that the chain works, no more.")
    rows = [(name, f"{result['metrics'][name]['mAP']:.3f}", f"{result['metrics'][name]['mcAP']:.3f}")
            for name in ("lstr", "time_prior", "chance")]  # fmt: skip
    console.show_table("held-out videos, per-frame", ("", "mAP", "mcAP"), rows, right=(1, 2))
    console.show_table(
        "time", ("stage", "seconds"), [(k, f"{v:.0f}") for k, v in result["seconds"].items()], right=(1,)
    )
    console.show(f"report: {result['report']}")
    console.show(f"default checkpoint: {result['checkpoint']}")
    console.show(f"next: lstr detect {result['video']} -o timeline")
