"""`lstr train`: features and labels to a checkpoint."""

from pathlib import Path

import click

from lstr_cli.options import data_options, device_option, set_option


@click.command("train")
@click.argument("features", metavar="FEATURES...", nargs=-1, required=True)
@click.option("--labels", required=True, metavar="FILE", help="ActivityNet JSON, or a published data_info.json.")
@click.option("-o", "--output", required=True, metavar="RUN", help="Folder for the checkpoint and the log.")
@click.option(
    "--preset",
    type=click.Choice(["thumos14", "tvseries", "hacs", "thumos14-published", "tvseries-published", "small"]),
    default="thumos14",
    show_default=True,
    help="The paper's settings, those of the published code, or small for a few dozen short videos.",
)
@set_option
@click.option("--subset", default="training", show_default=True, help="Subset of the labels to train on.")
@data_options
@click.option("--resume", is_flag=True, help="Go on with an interrupted run.")
@click.option("--make-default", is_flag=True, help="Let `lstr detect` use this checkpoint when none is given.")
@device_option
def command(
    features,
    labels,
    output,
    preset,
    settings,
    subset,
    dataset,
    rgb,
    flow,
    skip_missing,
    resume,
    make_default,
    device,
):
    """Train LSTR, or a baseline, on one or several feature folders.

    RUN gets checkpoint.pt (self-describing, replaced after each epoch), metrics.jsonl, config.json and resume.pt.
    Settings choose the model: its kind (lstr, rnn, trn, lfb), each design the paper compares, anticipation.

    \b
    Examples:
      lstr train features --labels labels.json -o run --preset small
      lstr train features --labels labels.json -o run --set model.long_length=512 --set train.epochs=10
      lstr train features --labels labels.json -o trn --preset small --set model.kind=trn
      lstr train features --labels labels.json -o rgb --preset small --set model.flow_dim=0
    """
    from extractors.twostream import default_device
    from lstr_cli import console
    from lstr_cli.labels import table_of
    from pipelines.dataset import read_dataset, stop_at_errors
    from pipelines.detect import leave_default
    from pipelines.train import train
    from pipelines.train_config import resolve

    data = read_dataset(features, labels, (rgb, flow), dataset, lenient=True, skip_missing=skip_missing)
    findings = data.check(subset, skip_missing)
    if findings:
        console.say_table(f"{labels}:", *table_of(findings))
    stop_at_errors(findings, labels)
    split = data.split(subset, skip_missing)
    model, config = resolve(preset, settings, split.dims)
    run = Path(output)
    if split.folder.recipe and split.folder.recipe.is_random:
        console.warn(f"the features come from random {split.folder.recipe.random_streams} networks.")
    console.say(f"{len(split.videos)} videos, {split.n_chunks} chunks, {len(split.labels.classes)} classes")
    with console.Bar("steps") as bar:
        for step in train(split, model, config, run, device or default_device(), resume):
            line = f"epoch {step.epoch}/{config.epochs} step {step.step}/{step.steps} loss {step.loss:.4f}"
            line += f" lr {step.lr:.2e} {step.rate:.1f} windows/s"
            bar.update("train", step.step, step.steps, f"loss {step.loss:.3f}")
            console.say(line)
    console.say(f"checkpoint: {run / 'checkpoint.pt'}")
    if make_default:
        console.say(f"default checkpoint: {leave_default(run / 'checkpoint.pt')}")
