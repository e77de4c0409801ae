"""`lstr train`: features and labels to a checkpoint."""

from typing import Annotated, Any

import click
from msgspec import Struct

from lstr.settings import Positive
from lstr_cli import console
from lstr_cli.next_steps import after_train
from lstr_cli.options import (
    DATA,
    MODEL,
    OF_DATA,
    OF_FEATURES,
    OUTPUT,
    RUN,
    Command,
    Labels,
    build_from,
    option,
    options,
    set_option,
    take_named,
)


class Train(Struct):
    labels: Labels
    output: Annotated[str, option(OUTPUT, "-o --output RUN", "Write the checkpoint and the log into this folder.")]
    preset: Annotated[
        str | None,
        option(
            MODEL,
            "--preset NAME",
            "Start from these settings. thumos14, tvseries, hacs: the paper's. thumos14-published: those of the "
            "published code. lstr-small: LSTR for up to an hour of video. KIND-small, KIND-thumos14: other kinds of "
            "model, such as rnn-small and miniroad-thumos14; see `lstr models KIND`.  [default: lstr-small up to an "
            "hour of training video, else thumos14; for another model.kind, its presets]",
        ),
    ] = None
    config: Annotated[
        str | None, option(MODEL, "--config FILE", "Start from the settings of another run: its config.json.")
    ] = None
    eval_every: Annotated[
        Positive | None, option(RUN, "--eval-every EPOCHS", "Evaluate after this many epochs, and keep best.pt.")
    ] = None
    eval_subset: Annotated[str, option(DATA, "--eval-subset NAME", "Evaluate on this subset of the labels.")] = (
        "validation"
    )
    resume: Annotated[bool, option(RUN, "--resume", "Continue an interrupted run.")] = False
    print_config: Annotated[
        bool, option(OUTPUT, "--print-config", "Print all settings as JSON, for --config, and train nothing.")
    ] = False
    settings: Annotated[
        dict[str, str],
        set_option(
            f"{OF_DATA} {OF_FEATURES}",
            model="of the model, such as model.kind=rnn",
            train="of its training, such as train.epochs=10",
        ),
    ] = {}


@click.command("train", cls=Command)
@click.argument("features", metavar="FEATURES...", nargs=-1, required=True)
@options(Train)
def command(features, print_config, settings, **others):
    """Train LSTR, or a baseline, on one or several feature folders, or on a store of other people's features.

    RUN gets checkpoint.pt (self-describing), best.pt with --eval-every, config.json, metrics.jsonl, events for
    TensorBoard, and resume.pt, from which a run that was stopped anywhere goes on with --resume. Settings choose
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
    from lstr.pipelines.training.train import TrainOptions, planned_settings, train

    data = take_named(settings, OF_DATA)
    chosen = build_from(TrainOptions, data, features=features, settings=settings, **others)
    if print_config:
        console.show_json(console.follow(planned_settings(chosen)))
        return

    def show(event: Any, bar: console.Bar) -> None:
        bar.update(event.stage or "train", event.step, event.steps, event.line())
        if event.evaluation or event.step == event.steps:
            console.say(f"{f'{event.stage}: ' if event.stage else ''}step {event.step}/{event.steps} {event.line()}")

    trained = console.follow(train(chosen), "steps", show)
    if trained is None:  # another process of the run prints
        return
    console.say(f"checkpoint: {trained.checkpoint}")
    console.say_next(*after_train(trained.checkpoint, list(map(str, features)), str(chosen.labels), trained.held_out))
