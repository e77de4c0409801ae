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
@click.option("--config", metavar="FILE", help="Settings of another run: its config.json.")
@set_option
@click.option("--print-config", is_flag=True, help="Print all settings as JSON, for --config, and train nothing.")
@click.option("--subset", default="training", show_default=True, help="Subset of the labels to train on.")
@data_options
@click.option("--max-steps", type=click.IntRange(min=1), help="End after so many steps, the schedule too.")
@click.option("--eval-every", type=click.IntRange(min=1), metavar="EPOCHS", help="Evaluate, and keep best.pt.")
@click.option("--eval-subset", default="validation", show_default=True, help="Subset to evaluate on.")
@click.option("--patience", type=click.IntRange(min=1), help="End after so many evaluations without a better one.")
@click.option("--seed", type=click.IntRange(min=0), help="Of weights, windows and dropout.")
@click.option("--deterministic", is_flag=True, help="Only algorithms that give the same bits each time.")
@click.option("--readers", type=click.IntRange(min=1), help="Threads that read features ahead.  [default: up to 4]")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run.")
@click.option("--make-default", is_flag=True, help="Let `lstr detect` use this checkpoint when none is given.")
@device_option
def command(
    features,
    labels,
    output,
    preset,
    config,
    settings,
    print_config,
    subset,
    dataset,
    rgb,
    flow,
    skip_missing,
    max_steps,
    eval_every,
    eval_subset,
    patience,
    seed,
    deterministic,
    readers,
    resume,
    make_default,
    device,
):
    """Train LSTR, or a baseline, on one or several feature folders.

    RUN gets checkpoint.pt (self-describing), best.pt with --eval-every, config.json, metrics.jsonl, curves.png, events
    for TensorBoard, and resume.pt, from which a run that was stopped anywhere goes on with --resume. Settings choose
    the model: its kind (lstr, rnn, trn, lfb), each design the paper compares, anticipation. Started by torchrun, the
    same command trains on several GPUs or machines.

    \b
    Examples:
      lstr train features --labels labels.json -o run --preset small
      lstr train features --labels labels.json -o run --eval-every 1 --patience 3
      lstr train features --labels labels.json -o run --set model.long_length=512 --set train.precision=bf16
      lstr train data/THUMOS --labels data/data_info.json -o run --eval-every 1 --eval-subset testing
      torchrun --nproc-per-node 8 --no-python lstr train features --labels labels.json -o run
    """
    from extractors.twostream import default_device
    from lstr_cli import console
    from lstr_cli.labels import table_of
    from pipelines.datasets.dataset import read_dataset, stop_at_errors
    from pipelines.datasets.seen_videos import seen_in, seen_phrase
    from pipelines.provenance import make_reproducible, provenance
    from pipelines.training.config import read_config, resolve
    from pipelines.training.ranks import join_ranks
    from pipelines.training.run_folder import settings_of

    given = {"max_steps": max_steps, "eval_every": eval_every, "patience": patience, "seed": seed}
    changes = {f"train.{name}": str(value) for name, value in given.items() if value is not None} | settings
    if deterministic:
        make_reproducible()
        changes["train.deterministic"] = "true"
    file = read_config(config) if config else None
    preset = file["preset"] or preset if file else preset
    data = read_dataset(features, labels, (rgb, flow), dataset, lenient=True, skip_missing=skip_missing)
    with join_ranks(device or default_device()) as (ranks, device):
        say = console.say if ranks.first else lambda text: None
        findings = data.check((subset, eval_subset) if eval_every else (subset,), skip_missing)
        if findings and ranks.first:
            console.say_table(f"{labels}:", *table_of(findings))
        stop_at_errors(findings, labels)
        split = data.split(subset, skip_missing)
        model, training = resolve(preset, changes, split.dims, file)
        validation = data.split(eval_subset, skip_missing, "--eval-subset") if training.eval_every else None
        if print_config:
            if ranks.first:
                console.show_json(settings_of(model, training, split, provenance(device, ranks.size), preset))
            return
        if split.folder.recipe and split.folder.recipe.is_random and ranks.first:
            console.warn(f"the features come from random {split.folder.recipe.random_streams} networks.")
        seen = seen_in(split, model)
        if seen and ranks.first:
            console.warn(
                f"the {seen_phrase(seen, len(split.videos), 'training videos')}: no new video has features as good; "
                "with `lstr finetune --folds` each video gets those of networks that have not seen it."
            )
        seen = seen_in(validation, model) if validation else {}
        if seen and ranks.first:
            console.warn(
                f"the {seen_phrase(seen, len(validation.videos), f'{eval_subset} videos')}: "
                "best.pt and --patience go by scores that new videos would not have."
            )
        if not all(split.dims):
            say(f"the features are of one stream, {'rgb' if split.dims[0] else 'flow'}: the model takes no other.")
        say(f"{len(split.videos)} videos, {split.n_chunks} chunks, {len(split.labels.classes)} classes")
        run = Path(output)
        _show(split, model, training, run, device, resume, validation, ranks, readers, preset, say)
        if not ranks.first:
            return
        best = run / "best.pt"
        chosen = best if validation and best.exists() else run / "checkpoint.pt"
        console.say(f"curves: {run / 'curves.png'}")
        console.say(f"checkpoint: {chosen}")
        if make_default:
            from pipelines.detection.checkpoint import leave_default

            console.say(f"default checkpoint: {leave_default(chosen)}")


def _show(split, model, config, run, device, resume, validation, ranks, readers, preset, say):
    """Train, with a line of progress, and one that stays for each evaluation and the end."""
    from lstr_cli import console
    from pipelines.training.train import train

    step = None
    with console.Bar("steps") as bar:
        for step in train(split, model, config, run, device, resume, validation, ranks, readers, preset):
            if not ranks.first:
                continue
            note = f"{step.epoch}/{config.epochs} loss {step.loss:.3f} lr {step.lr:.1e} {step.rate:.1f}/s"
            bar.update("train", step.step, step.steps, f"epoch {note}")
            if step.evaluation or step.step == step.steps:
                means = ((name, step.evaluation[name]) for name in ("mAP", "mcAP") if step.evaluation)
                scores = "".join(f" {name} {'none' if mean is None else f'{mean:.4f}'}" for name, mean in means)
                say(f"step {step.step}/{step.steps} epoch {note}{scores}")
    if step and step.step < step.steps:
        say(f"ended early: {config.patience} evaluations without a better {config.metric}.")
