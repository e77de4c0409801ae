"""`lstr evaluate`: per-frame mAP beside chance and the time prior, of one checkpoint or of several side by side."""

import click

from lstr_cli.options import data_options, device_option, mismatch_option, model_settings, set_option


@click.command("evaluate")
@click.argument("paths", metavar="CHECKPOINT... FEATURES...", nargs=-1, required=True)
@click.option("--labels", required=True, metavar="FILE", help="ActivityNet JSON, or a data_info.json.")
@click.option("-o", "--output", metavar="DIR", help="Write report.html, JSON, CSV and figures there.")
@click.option("--subset", help="Subset to score.  [default: testing, else validation]")
@click.option(
    "--mode",
    type=click.Choice(["batch", "stream"]),
    default="batch",
    show_default=True,
    help="Many windows at once, or a chunk at a time as detect does; the scores are the same.",
)
@click.option("--published", is_flag=True, help="Score the videos and chunks that the published evaluation scores.")
@click.option(
    "--resamples",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Resamples of the videos for confidence intervals; 0 leaves them out.",
)
@click.option(
    "--benchmark",
    type=click.Choice(["thumos14", "tvseries"]),
    help="Data set whose quoted results stand beside.  [default: that of the preset or classes]",
)
@click.option(
    "--calibrate", is_flag=True, help="Write thresholds for `lstr detect` into CHECKPOINT, from the validation subset."
)
@data_options
@mismatch_option
@click.option(
    "--allow-seen", is_flag=True, help="Score videos too that the feature networks have seen; the result is marked."
)
@set_option
@device_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    paths,
    labels,
    output,
    subset,
    mode,
    published,
    resamples,
    benchmark,
    calibrate,
    dataset,
    rgb,
    flow,
    skip_missing,
    allow_mismatch,
    allow_seen,
    settings,
    device,
    as_json,
):
    """Score every chunk of a subset: per-frame mAP and mcAP, per class, beside two baselines.

    chance says each class's share of the training chunks everywhere; the time prior says how often a class is on
    at that time of a video. Neither sees the video. Also scored: each tenth of the actions, their starts, the delay
    until they are known, and each chunk ahead of a model that anticipates. Several checkpoints are compared on the
    same resamples of the videos. Several feature folders of one recipe are read as one; they come last. Videos that
    the networks of their features were trained on are refused.

    \b
    Examples:
      lstr evaluate run/checkpoint.pt features --labels labels.json
      lstr evaluate run/checkpoint.pt features --labels labels.json -o evaluation
      lstr evaluate run/checkpoint.pt features --labels labels.json --calibrate
      lstr evaluate a.pt b.pt c.pt features --labels labels.json --subset validation --json
      lstr evaluate run/checkpoint.pt disk1/features disk2/features --labels labels.json
    """
    from pathlib import Path

    from lstr_cli import console
    from pipelines.datasets.dataset import read_dataset
    from pipelines.detection.checkpoint import assumptions_of, load_checkpoint
    from pipelines.evaluation.analysis import analyse, compare, resample
    from pipelines.evaluation.evaluate import check_fit, score_and_evaluate
    from pipelines.evaluation.published_results import quoted_for
    from pipelines.evaluation.report import Judged, names_of, result_of, write_report

    checkpoints, features = _sorted(paths)
    data = read_dataset(features, labels, (rgb, flow), dataset, skip_missing=skip_missing)
    split = data.split(subset or ("validation" if calibrate else None), skip_missing)
    all_loaded = [load_checkpoint(checkpoint, model_settings(settings), device) for checkpoint in checkpoints]
    misfits = []
    for loaded in all_loaded:  # a misfit is told before the first is scored
        misfits += check_fit(loaded, split, allow_mismatch, allow_seen, published and not calibrate)
        for text in assumptions_of(loaded):
            console.warn(text)
    if calibrate:
        _calibrate(console, all_loaded, split, subset, misfits, as_json)
        return
    evaluations, documents, resampled = [], [], []
    for loaded in all_loaded:
        with console.Bar("videos") as bar:
            given = (loaded, split, bar.update, mode, published, allow_mismatch, allow_seen)
            evaluations.append(score_and_evaluate(*given))
        resampled.append(resample(evaluations[-1], resamples))
        documents.append(analyse(evaluations[-1], resampled[-1]))
    comparison = compare(documents, resampled)
    names = names_of([Path(checkpoint).absolute() for checkpoint in checkpoints])
    judged = [Judged(*parts) for parts in zip(names, evaluations, documents, strict=True)]
    quoted = quoted_for(evaluations[0].loaded, benchmark)
    warnings = [*misfits]
    if any(document["random_weights"] for document in documents):
        warnings.append("the features come from random networks: the figures say what LSTR makes of them, no more.")
    for text in warnings:
        console.warn(text)
    page = write_report(Path(output), judged, comparison, quoted, warnings) if output else None
    if as_json:
        console.show_json(result_of(judged, comparison, quoted))
        return
    from lstr_cli.evaluation_tables import show

    show(judged, comparison, quoted)
    if page:
        console.say(f"report: {page.resolve()}")


def _sorted(paths: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Checkpoints and feature folders: the last path is a folder, and so are the directories just before it."""
    from pathlib import Path

    first = len(paths) - 1
    while first and Path(paths[first - 1]).is_dir():
        first -= 1
    if not first:
        raise click.UsageError("Give a checkpoint file, as run/checkpoint.pt, and then a feature folder.")
    return list(paths[:first]), list(paths[first:])


def _calibrate(console, all_loaded, split, subset: str | None, warnings: list[str], as_json: bool) -> None:
    from pipelines.datasets.seen_videos import seen_in
    from pipelines.evaluation.thresholds import calibrate_checkpoint

    for text in warnings:
        console.warn(text)
    if subset == "testing":
        console.warn("thresholds chosen on the testing videos fit them: what is detected there is held out no more.")
    documents = []
    for loaded in all_loaded:
        with console.Bar("videos") as bar:
            path, said = calibrate_checkpoint(loaded, split, bar.update)
        seen = seen_in(split, loaded.config)
        documents.append({"checkpoint": str(path), "thresholds": said, **({"seen": seen} if seen else {})})
    if as_json:
        console.show_json(documents[0] if len(documents) == 1 else {"checkpoints": documents})
        return
    for document in documents:
        said = document["thresholds"]
        rows = [(label, *(f"{v[key]:.3f}" for key in ("on", "off", "F1", "before"))) for label, v in said.items()]
        columns = ("class", "on", "off", "F1", "F1 by default thresholds")
        console.show_table(f"thresholds in {document['checkpoint']}", columns, rows, right=(1, 2, 3, 4))
