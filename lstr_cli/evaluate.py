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
@click.option(
    "--calibrate", is_flag=True, help="Write thresholds for `lstr detect` into CHECKPOINT, from the validation subset."
)
@click.option("--skip-missing", is_flag=True, help="Leave out labelled videos that have no features.")
@set_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(checkpoint, features, labels, subset, mode, calibrate, skip_missing, settings, device, as_json):
    """Score every chunk of a subset: per-frame mAP and mcAP, per class, beside two baselines.

    chance says each class's share of the training chunks everywhere; the time prior says how often a class is on
    at that time of a video. Neither sees the video. A model that anticipates is scored for each chunk ahead too.

    \b
    Examples:
      lstr evaluate run/checkpoint.pt features --labels labels.json
      lstr evaluate run/checkpoint.pt features --labels labels.json --subset validation --json
      lstr evaluate run/checkpoint.pt features --labels labels.json --calibrate
    """
    from lstr_cli import console
    from pipelines.dataset import read_split
    from pipelines.detect import assumptions_of, load_checkpoint
    from pipelines.evaluate import evaluate

    loaded = load_checkpoint(checkpoint, model_settings(settings), device)
    for text in assumptions_of(loaded):
        console.warn(text)
    split = read_split(features, labels, subset or ("validation" if calibrate else None), skip_missing)
    if calibrate:
        return _calibrate(console, loaded, split, subset, as_json)
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


def _calibrate(console, loaded, split, subset: str | None, as_json: bool) -> None:
    from pipelines.calibrate import calibrate_checkpoint

    if subset == "testing":
        console.warn("thresholds chosen on the testing videos fit them: what is detected there is held out no more.")
    with console.Bar("videos") as bar:
        path, said = calibrate_checkpoint(loaded, split, bar.update)
    if as_json:
        console.show_json({"checkpoint": str(path), "thresholds": said})
    else:
        rows = [(label, *(f"{v[key]:.3f}" for key in ("on", "off", "F1", "before"))) for label, v in said.items()]
        columns = ("class", "on", "off", "F1", "F1 by default thresholds")
        console.show_table(f"thresholds in {path}", columns, rows, right=(1, 2, 3, 4))


def _cell(value: float | None) -> str:
    return "no chunk" if value is None else f"{value:.3f}"
