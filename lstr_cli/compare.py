"""`lstr compare`: your features beside a reference set."""

import sys
from pathlib import Path

import click

from lstr.errors import few
from lstr_cli import console
from lstr_cli.command import Command

NO_MATCH = 3


@click.command("compare", cls=Command)
@click.argument("reference", metavar="REFERENCE")
@click.argument("mine", metavar="MINE")
@click.option(
    "--min-cosine",
    type=click.FloatRange(-1, 1),
    default=0.95,
    help="Mean cosine from which a video matches.",
)
@click.option("--max-shift", type=click.IntRange(min=0), default=8, help="Largest time shift tried, in chunks.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(reference, mine, min_cosine, max_shift, as_json):
    """Prove your features against a published set before you train on them.

    Both are feature folders (rgb_*/ID.npy, flow_*/ID.npy); videos with the same id are compared, stream by stream:
    lengths in chunks, the time shift that fits best (row k + shift of MINE is most like row k of REFERENCE), the cosine
    of rows at that shift (mean, and the value that 5 % are below), and the ratio of norms. A video matches when
    lengths differ by at most one chunk, no shift is needed, the mean cosine is high enough and the norms are within
    10 %. Leaves with 3 when a video does not match, or none is in both.

    \b
    Examples:
      lstr compare thumos_features features
      lstr compare thumos_features features --json | jq .streams
    """
    from lstr.pipelines.features.compare import as_document, compare, pair_streams, recipe_differences

    reference, mine = Path(reference), Path(mine)
    pairs = pair_streams(reference, mine)
    with console.Bar("arrays") as bar:
        matches = list(compare(pairs, max_shift, min_cosine, bar.update))
    document = as_document(pairs, recipe_differences(reference, mine), matches)
    if as_json:
        console.show_json(document)
    else:
        columns = ["video", "stream", "reference", "mine", "shift", "cosine", "p5", "norms", "verdict"]
        keys = ["id", "stream", "reference_chunks", "chunks", "shift", "cosine", "cosine_p5", "norm_ratio", "reason"]
        rows = [[_cell(row[key]) for key in keys[:-1]] + [row["reason"] or "matches"] for row in document["videos"]]
        console.show_table(f"{mine} beside {reference}", columns, rows, right=range(2, 8))
        keys = ["videos", "matching", "shift", "cosine", "cosine_p5", "norm_ratio"]
        columns = ["stream", "videos", "matching", "median shift", "mean cosine", "lowest p5", "median norms"]
        rows = [[stream, *(_cell(row.get(key)) for key in keys)] for stream, row in document["streams"].items()]
        console.show_table("in all", columns, rows, right=range(1, len(columns)))
    for where, ids in ((reference, document["only_in_reference"]), (mine, document["only_in_mine"])):
        if ids:
            console.say(f"only in {where}: {len(ids)} videos: {few(ids)}")
    if document["recipe_differences"]:
        console.say(f"recipes differ ({'; '.join(document['recipe_differences'])})")
    failed = sum(1 for match in matches if match.reason)
    if failed:
        console.say(
            f"failed: {failed} of {len(matches)} arrays do not match.\n"
            'hint: the documentation, page "Prove your features", names what each difference usually comes from.'
        )
        sys.exit(NO_MATCH)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
