"""Feature folders and labels to a checkpoint, by one process or many, resumable from any saved step."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch

from lstr.config import LSTRConfig
from lstr.labels import AMBIGUOUS
from pipelines.datasets.dataset import Split
from pipelines.evaluation.scoring import Scoring, score_split
from pipelines.progress import result_of
from pipelines.provenance import provenance
from pipelines.training.batches import default_readers, make_pieces, read_ahead
from pipelines.training.config import TrainConfig, learning_rate
from pipelines.training.curves import draw_curves
from pipelines.training.log import Interval, Step, TrainLog, summary_of
from pipelines.training.ranks import Ranks
from pipelines.training.run_folder import Position, Saver, begin, restore, settings_of
from pipelines.training.sampling import count_steps, draw_windows, feature_statistics
from pipelines.training.step import Learner, deterministic

ALONE = Ranks()


def train(
    split: Split,
    model_config: LSTRConfig,
    config: TrainConfig,
    run: Path,
    device: str = "cpu",
    resume: bool = False,
    validation: Split | None = None,
    ranks: Ranks = ALONE,
    readers: int | None = None,
    preset: str | None = None,
) -> Iterator[Step]:
    """Train on a split, yielding a Step each logged interval.

    `run` gets checkpoint.pt, resume.pt, config.json, metrics.jsonl, tensorboard/, curves.png at the end, and best.pt
    where `validation` is given. A stopped run goes on with `resume` from its last save, to the bit on a CPU.
    readers: threads that read features ahead. preset: name that the checkpoint records. Raises CheckpointError when
    there is nothing to resume or a run is in the way, LstrError when loss or gradient is not finite or memory runs out.
    """
    settings = settings_of(model_config, config, split, provenance(device, ranks.size), preset)
    state = begin(run, settings, resume, write=ranks.first)
    ranks.of_first(0)  # or one might take what the first has begun for a run in the way
    saver = Saver(run, split, settings)
    classes = split.labels.classes
    split = split.narrowed(model_config)
    if state:
        statistics = state["mean"], state["std"]
    else:
        statistics = feature_statistics(split.videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    ignore = classes.index(AMBIGUOUS) if AMBIGUOUS in classes else None
    with deterministic(config.deterministic):
        learner = Learner(model_config, config, len(classes), ignore, statistics, device, ranks)
        position = restore(state, learner) if state else Position()
        with TrainLog(run, position.step) if ranks.first else nullcontext() as log:
            yield from _steps(learner, split, position, saver, log, validation, readers or default_readers())
    if ranks.first:
        draw_curves(run)


def _steps(
    learner: Learner,
    split: Split,
    position: Position,
    saver: Saver,
    log: TrainLog | None,
    validation: Split | None,
    readers: int,
) -> Iterator[Step]:
    """The loop. Each log line is written before the state that follows it, so that none is lost between the two."""
    config, model, ranks = learner.config, learner.model.config, learner.ranks
    steps = count_steps(split.videos, model, config)
    pin = learner.device.type == "cuda"
    make = partial(make_pieces, split.videos, model=model, train=config, outputs=learner.outputs, ranks=ranks, pin=pin)
    interval = Interval()
    while position.step < steps and not position.is_stale(config):
        epoch = position.epoch + 1
        drawn = draw_windows(split.videos, model, config, position.epoch)
        jobs = [drawn[at : at + config.batch_size] for at in range(0, len(drawn), config.batch_size)]
        left = jobs[position.batch :][: steps - position.step]
        for batch in interval.timed(read_ahead(left, make, readers)):
            lr = learning_rate(position.step, steps, config)
            interval.add(*learner.step(batch, position.step, lr), batch.n_windows)
            position.step += 1
            position.batch += 1
            ended, done = position.batch == len(jobs), position.step == steps
            if not (ended or done or position.step % config.log_every == 0):
                continue
            if ended:
                position.epoch, position.batch = epoch, 0
            sums, evaluation = interval.close(ranks, learner.device), None
            if validation and config.eval_every and (done or (ended and epoch % config.eval_every == 0)):
                if ranks.first:
                    evaluation = _evaluate(learner, saver, position, {"epoch": epoch, **sums}, validation)
                position.stale = int(ranks.of_first(position.stale))
            step = Step(epoch, position.step, steps, lr=lr, evaluation=evaluation, **sums)
            if log:
                log.write(step)
            if ranks.first and (done or position.is_stale(config) or saver.is_due()):
                metrics = {"epoch": epoch, "step": step.step, "loss": step.loss, "validation": evaluation}
                saver.save(learner, position, metrics)
            yield step
            interval.begin()
            if position.is_stale(config):
                break


def _evaluate(learner: Learner, saver: Saver, position: Position, metrics: dict, validation: Split) -> dict:
    """mAP, mcAP and AP a class of the validation videos; best.pt where the metric was never as high."""
    exported = saver.export(learner)
    loaded = saver.loaded(exported, learner.device)
    result = summary_of(result_of(score_split(loaded, validation, Scoring(allow_seen=True))).document)
    value = result[learner.config.metric]
    if value is not None and (position.best is None or value > position.best):
        position.best, position.stale = value, 0
        saver.save_checkpoint("best.pt", exported.cpu(), {**metrics, "step": position.step, "validation": result})
    else:
        position.stale += 1
    return result
