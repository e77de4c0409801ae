"""`lstr evaluate`: per-frame mAP beside chance and the time prior."""

import click

from lstr_cli.options import device_option, model_settings, set_option


@click.command("evaluate")
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.argument("features", metavar="FEATURES")
@click.option("--labels", required=True, metavar="FILE", help="ActivityNet JSON with subsets and segments.")
@click.option("--subset", help="Subset to score.  [default: testing, else validation]")
@click.option(
    "--mode",
    type=click.Choice(["batch", "stream"]),
    default="batch",
    show_default=True,
    help="Whole windows, or a chunk at a time as detect does; the scores are the same.",
)
@click.option("--skip-missing", is_flag=True, help="Leave out labelled videos that have no features.")
@set_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(checkpoint, features, labels, subset, mode, skip_missing, settings, device, as_json):
    """Score every chunk of a subset: per-frame mAP and mcAP, per class, beside two baselines.

    chance says each class's share of the training chunks everywhere; the time prior says how often a class is on
    at that time of a video. Neither sees the video. A model that anticipates is scored for each chunk ahead too.

    \b
    Examples:
      lstr evaluate run/checkpoint.pt features --labels labels.json
      lstr evaluate run/checkpoint.pt features --labels labels.json --subset validation --json
    """
    from lstr_cli import console
    from pipelines.dataset import read_split
    from pipelines.detect import assumptions_of, load_checkpoint
    from pipelines.evaluate import evaluate

    loaded = load_checkpoint(checkpoint, model_settings(settings), device)
    for text in assumptions_of(loaded):
        console.warn(text)
    split = read_split(features, labels, subset, skip_missing)
    with console.Bar("videos") as bar:
        result = evaluate(loaded, split, bar.update, mode)
    if result["random_weights"]:
        console.warn("the features come from random networks: the figures say what LSTR makes of them, no more.")
    if as_json:
        console.show_json(result)
        return
    systems = [name for name in ("lstr", "chance", "time_prior") if name in result]
    columns = ["class", "chunks", *(f"{name} {key}" for key in ("AP", "cAP") for name in systems)]
    ours = result["lstr"]["per_class"]
    rows = [
        [label, ours[label]["positives"]]
        + [f"{result[s]['per_class'][label][key]:.3f}" for key in ("AP", "cAP") for s in systems]
        for label in sorted(ours, key=lambda label: -ours[label]["AP"])
    ]
    rows.append(["mean", ""] + [f"{result[s][key]:.3f}" for key in ("mAP", "mcAP") for s in systems])
    title = f"{result['videos']} videos, {result['chunks']} chunks"
    console.show_table(title, columns, rows, right=range(1, len(columns)))
    if "anticipation" in result:
        ahead = [(f"{row['seconds']:.2f}", _cell(row["mAP"]), _cell(row["mcAP"])) for row in result["anticipation"]]
        console.show_table("anticipation", ("seconds ahead", "mAP", "mcAP"), ahead, right=(0, 1, 2))


def _cell(value: float | None) -> str:
    return "no chunk" if value is None else f"{value:.3f}"
