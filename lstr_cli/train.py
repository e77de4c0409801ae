"""`lstr train`: features and labels to a checkpoint."""

from typing import TYPE_CHECKING, Any

import click

from lstr_cli import console
from lstr_cli.command import Command
from lstr_cli.next_steps import after_train
from lstr_cli.options import data_settings, device_option, store_settings
from lstr_cli.settings import set_option, setting

if TYPE_CHECKING:  # it brings torch
    from lstr.pipelines.training.train import TrainOptions


@click.command("train", cls=Command)
@click.argument("features", metavar="FEATURES...", nargs=-1, required=True)
@click.option(
    "--labels", required=True, metavar="FILE", help="Labels: JSON, CSV, ELAN, … or a published data_info.json."
)
@click.option("-o", "--output", required=True, metavar="RUN", help="Folder for the checkpoint and the log.")
@click.option(
    "--preset",
    metavar="NAME",
    help="thumos14, tvseries, hacs: the paper's settings. thumos14-published: those of the published code. "
    "lstr-small: LSTR for up to an hour of video. KIND-small, KIND-thumos14: other kinds of model, such as rnn-small "
    "and miniroad-thumos14; see `lstr models KIND`.  [default: lstr-small up to an hour of training video, else "
    "thumos14; for another model.kind, its presets]",
)
@click.option("--config", metavar="FILE", help="Settings of another run: its config.json.")
@set_option()
@click.option("--print-config", is_flag=True, help="Print all settings as JSON, for --config, and train nothing.")
@click.option("--subset", default="training", help="Subset of the labels to train on.")
@data_settings
@store_settings
@click.option("--eval-every", type=click.IntRange(min=1), metavar="EPOCHS", help="Evaluate, and keep best.pt.")
@click.option("--eval-subset", default="validation", help="Subset to evaluate on.")
@setting("readers", type=click.IntRange(min=1), help="Threads that read features ahead.  [default: up to 4]")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run.")
@click.option("--make-default", is_flag=True, help="Let `lstr detect` use this checkpoint where no other is named.")
@device_option
def command(print_config, make_default, rate, offset, feature_name, **options):
    """Train LSTR, or a baseline, on one or several feature folders, or on a store of other people's features.

    RUN gets checkpoint.pt (self-describing), best.pt with --eval-every, config.json, metrics.jsonl, curves.png, events
    for TensorBoard, and resume.pt, from which a run that was stopped anywhere goes on with --resume. Settings choose
    the model: its kind (`lstr models` lists them), each design the paper compares, anticipation. Started by torchrun,
    the same command trains on several GPUs or machines.

    \b
    Examples:
      lstr train features --labels labels.json -o run
      lstr train features --labels labels.json -o run --eval-every 1 --set train.patience=3
      lstr train features --labels labels.json -o run --set model.long_length=512 --set train.precision=bf16
      lstr train data/THUMOS --labels data/data_info.json -o run --eval-every 1 --eval-subset testing
      lstr train i3d/ --labels labels.json -o run --set features.rate=7.5
      torchrun --nproc-per-node 8 --no-python lstr train features --labels labels.json -o run
    """
    from lstr.pipelines.training.train import TrainOptions, planned_settings

    said = {"rate": rate, "offset": offset, "name": feature_name}
    options["settings"] |= {f"features.{name}": text for name, text in said.items() if text}
    chosen = TrainOptions(**options)
    if print_config:
        console.show_json(console.follow(planned_settings(chosen)))
    else:
        _train(chosen, make_default)


def _train(options: "TrainOptions", make_default: bool) -> None:
    """Train, with a line of progress, and one that stays for each evaluation and the end."""
    from lstr.pipelines.training.train import Started, train

    def show(event: Any, bar: console.Bar) -> None:
        if isinstance(event, Started):
            console.say(f"{event.n_videos} videos, {event.n_chunks} chunks, {event.n_classes} classes")
            return
        bar.update(event.stage or "train", event.step, event.steps, event.line())
        if event.evaluation or event.step == event.steps:
            console.say(f"{f'{event.stage}: ' if event.stage else ''}step {event.step}/{event.steps} {event.line()}")

    trained = console.follow(train(options), "steps", show)
    if trained is None:  # another process of the run speaks
        return
    console.say(f"curves: {trained.curves}")
    console.say(f"checkpoint: {trained.checkpoint}")
    if make_default:
        from lstr.pipelines.detection.checkpoint import make_default as leave

        console.say(f"default model: {leave(trained.checkpoint)}")
    features, labels = [str(path) for path in options.features], str(options.labels)
    console.say_next(*after_train(trained.checkpoint, features, labels, trained.held_out))
