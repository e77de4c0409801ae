"""mmengine's runner around one stream's recogniser.

Four things of the runner do not work here and are replaced: its wrapper for mixed precision asserts on a CPU, its
resume reads a pickle that torch refuses, it gives a ResNet new weights before the first step, whatever it had, and it
chooses the device itself. Its logger, which writes to standard output, gets no handler. A run can go on from any saved
epoch, to the bit on a CPU: samples and augmentation follow from (seed, epoch), dropout from (seed, step).
"""

import contextlib
import json
import logging
import math
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from uuid import uuid4

import cv2
import numpy as np
import torch
from mmaction.structures import ActionDataSample
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lstr.errors import LstrError
from pipelines.extraction.chunk_cache import CacheError
from pipelines.files.atomic import replacing
from pipelines.files.scratch import scratch
from pipelines.finetuning.config import FinetuneConfig
from pipelines.finetuning.recogniser import make_optimiser
from pipelines.finetuning.samples import Draws
from pipelines.training.config import TrainConfig, learning_rate

SHARE_OF_SAVING = 0.05  # of the time, at most: the state of a ResNet-50 is 280 MB
GRACE = 10  # saves that may come at once, so that a short run leaves every epoch


@dataclass(frozen=True)
class Epoch:
    """One finished epoch of a network. `mAP` of the validation chunks is None where none was due."""

    epoch: int
    epochs: int
    loss: float
    lr: float
    rate: float
    """images a second"""
    waiting: float
    """share of the epoch spent waiting for data"""
    mAP: float | None
    best: float | None


@dataclass
class Progress:
    """How far a network has come. `best_epoch` is that of the highest mAP; 0 where none was measured."""

    epoch: int = 0
    step: int = 0
    best: float | None = None
    best_epoch: int = 0
    stale: int = 0
    """evaluations since the best"""
    seconds: float = 0.0
    """it has taken, evaluations included"""


class BrainFloatWrapper(OptimWrapper):
    """An optimiser step whose forward pass runs in bfloat16 where that is safe."""

    @contextlib.contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast on the model's device."""
        with super().optim_context(model), torch.autocast(next(model.parameters()).device.type, torch.bfloat16):
            yield


class QuietRunner(Runner):
    """Without a word on standard output, and with the weights that the model has."""

    def build_logger(self, *args, **kwargs) -> MMLogger:
        """A logger that writes nowhere; mmengine's own keeps whatever standard output was when it was made."""
        logger = MMLogger.get_instance(self._experiment_name, logger_name="mmengine")
        logger.handlers = [logging.NullHandler()]
        return logger

    def _log_env(self, env_cfg) -> None:
        """Nobody reads it, and asking compilers for their versions takes a second."""

    def _init_model_weights(self) -> None:
        """They are as they should be."""

    def wrap_model(self, model_wrapper_cfg, model: nn.Module) -> nn.Module:
        """It stays on its device; mmengine brings it to a GPU wherever there is one."""
        return model


class EpochLoader:
    """Batches of an epoch after another, read ahead by processes, of the next epoch too: none begins with waiting.

    They are as mmaction2 takes them. Those of epoch `first` (counted from 0) come first. `close` ends the processes.
    """

    def __init__(self, dataset: Dataset, draws: Draws, config: FinetuneConfig, readers: int):
        self.dataset = dataset
        self.draws = draws
        self.config = config
        self.readers = readers
        self.first = 0
        self._batches: Iterator | None = None

    def __len__(self) -> int:
        # the rest of an epoch is no step: a batch of one image has no batch-norm statistics
        return max(1, len(self.draws) // self.config.batch_size)

    def __iter__(self) -> Iterator:
        if self._batches is None:
            self._batches = iter(make_loader(self.dataset, self._keys(), self.readers))
        for _ in range(len(self)):
            images, labels = next(self._batches)
            samples = [ActionDataSample().set_gt_labels(label) for label in labels]
            yield {"inputs": list(images), "data_samples": samples}

    def _keys(self) -> Iterator[list]:
        size = self.config.batch_size
        for epoch in range(self.first, self.config.epochs):
            drawn = self.draws.of(epoch)
            yield from (drawn[at * size : (at + 1) * size] for at in range(len(self)))

    def close(self) -> None:
        """End the processes."""
        self._batches = None


def make_loader(dataset: Dataset, batches: Iterable[list], readers: int) -> DataLoader:
    """Given batches of a data set's keys, made by `readers` processes; 0 for this one.

    A batch is images (N, segments, C, H, W) uint8, one tensor as each takes time to pass on, and N numbers.
    """
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=readers,
        multiprocessing_context="fork" if readers else None,
        worker_init_fn=_begin_reading,
        collate_fn=_together,
    )


def _together(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, tuple[int, ...]]:
    images, numbers = zip(*samples, strict=True)
    return torch.stack(images), numbers


def _begin_reading(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the one who asked ends the others
    cv2.setNumThreads(0)


class _Rates(Hook):
    """Rate of a step, its dropout's seed, and the end of a run whose loss is not finite."""

    priority = "VERY_HIGH"

    def __init__(self, config: FinetuneConfig, state: "State"):
        self.config = config
        self.state = state
        self.schedule = TrainConfig(lr=config.lr, warmup=config.warmup)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        for group in runner.optim_wrapper.param_groups:
            group["lr"] = learning_rate(runner.iter, runner.max_iters, self.schedule)
        torch.manual_seed(self.config.seed * 1_000_003 + runner.iter)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        loss = float(outputs["loss"].detach())
        if not math.isfinite(loss):
            epoch = self.state.saved_epoch
            kept = f"epoch {epoch} is kept in {self.state.path}" if epoch else "no epoch was finished"
            begin = f" and --init {self.state.path}" if epoch else ""
            raise LstrError(
                f"The loss of step {runner.iter + 1} in epoch {runner.epoch + 1} is {loss}; {kept}.",
                f"begin again in another folder with a lower rate: --set lr={self.config.lr / 10:g}{begin}.",
            )


class _PartialBatchNorm(Hook):
    """All batch norms but the first keep their statistics (TSN, section 3.3)."""

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if batch_idx:  # the runner puts the model in training mode between `before_train_epoch` and the first step
            return
        norms = [m for m in runner.model.backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        for norm in norms[1:]:
            norm.eval()
            norm.requires_grad_(False)


class State:
    """The file that a stopped network goes on from; it is also a weights file of its last epoch.

    `card` is what that says of itself (`extractors.networks.model_card`).
    """

    def __init__(self, path: Path, card: str):
        self.path = path
        self.card = card
        self.content = torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
        """What was saved, until a runner has taken it."""
        self.saved_epoch = json.loads(self.content["progress"])["epoch"] if self.content else 0
        self._saves, self._last, self._took = 0, perf_counter(), 0.0

    def save(self, runner: Runner, progress: Progress, best: Mapping | None) -> None:
        """Save an epoch, where enough time has passed since the last that was saved."""
        start = perf_counter()
        if self._saves >= GRACE and start - self._last < self._took / SHARE_OF_SAVING:
            return
        with replacing(self.path) as temporary:
            content = {"state_dict": runner.model.state_dict(), "optimiser": runner.optim_wrapper.state_dict()}
            content |= {"progress": json.dumps(asdict(progress)), "best": best or {}, "lstr": self.card}
            torch.save(content, temporary)
        self.saved_epoch = progress.epoch
        self._saves, self._last = self._saves + 1, perf_counter()
        self._took = self._last - start


class _Epochs(Hook):
    """Evaluates, keeps the best weights, saves the state, and says how an epoch went."""

    def __init__(self, config: FinetuneConfig, state: State, evaluate, say, step):
        self.config = config
        self.state = state
        self.evaluate = evaluate
        self.say = say
        self.step = step
        self.progress = Progress()
        self.best: dict | None = None

    def before_train(self, runner) -> None:
        """Go on from the state, where there is one."""
        content, self.state.content = self.state.content, None
        if content is None:
            return
        self.progress = Progress(**json.loads(content["progress"]))
        self.best = content["best"] or None
        runner.model.load_state_dict(content["state_dict"])
        runner.optim_wrapper.load_state_dict(content["optimiser"])
        loop = runner.train_loop
        loop._epoch, loop._iter = self.progress.epoch, self.progress.step
        loop.dataloader.first = self.progress.epoch
        loop.stop_training = self._stale()

    def before_train_epoch(self, runner) -> None:
        self.start, self.waiting, self.losses, self.images = perf_counter(), 0.0, [], 0
        self.left = self.start

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        self.waiting += perf_counter() - self.left
        self.images += len(data_batch["inputs"]) * self.config.segments

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.losses.append(float(outputs["loss"].detach()))
        self.step(runner.iter + 1, runner.max_iters)
        self.left = perf_counter()

    def after_train_epoch(self, runner) -> None:
        seconds, progress = perf_counter() - self.start, self.progress
        progress.epoch, progress.step = runner.epoch + 1, runner.iter
        due = progress.epoch % self.config.eval_every == 0 or progress.epoch == runner.max_epochs
        score = self.evaluate(runner.model) if self.evaluate and due else None
        if score is not None and (progress.best is None or score > progress.best):
            self.best = {name: tensor.cpu().clone() for name, tensor in runner.model.state_dict().items()}
            progress.best, progress.best_epoch, progress.stale = score, progress.epoch, 0
        elif score is not None:
            progress.stale += 1
        progress.seconds += perf_counter() - self.start
        lr, loss = runner.optim_wrapper.param_groups[0]["lr"], float(np.mean(self.losses))
        rate, waiting = self.images / seconds, self.waiting / seconds
        self.say(Epoch(progress.epoch, runner.max_epochs, loss, lr, rate, waiting, score, progress.best))
        self.state.save(runner, progress, self.best)
        runner.train_loop.stop_training = self._stale()

    def _stale(self) -> bool:
        return 0 < self.config.patience <= self.progress.stale


def train_recogniser(
    model: nn.Module,
    loader: EpochLoader,
    config: FinetuneConfig,
    state: State,
    evaluate: Callable[[nn.Module], float | None] | None,
    say: Callable[[Epoch], None],
    step: Callable[[int, int], None] = lambda done, total: None,
) -> Progress:
    """Train in place, and leave the weights of the best epoch (the last, without validation) in the model.

    A run that `state` was saved of goes on. `evaluate` gives the score of a model, `say` gets each epoch before it is
    saved, `step` the steps done and in all. Raises LstrError when the loss is not finite, CacheError for a damaged
    chunk.
    """
    wrapper = BrainFloatWrapper if config.precision == "bf16" else OptimWrapper
    epochs = _Epochs(config, state, evaluate, say, step)
    try:
        with scratch() as folder, _settings_kept():
            runner = QuietRunner(
                model,
                str(folder),
                train_dataloader=loader,
                train_cfg={"by_epoch": True, "max_epochs": config.epochs},
                optim_wrapper=wrapper(
                    make_optimiser(model, config), clip_grad={"max_norm": config.clip} if config.clip else None
                ),
                default_hooks=dict.fromkeys(("runtime_info", "timer", "logger", "param_scheduler", "checkpoint")),
                custom_hooks=[_Rates(config, state), epochs, *([_PartialBatchNorm()] if config.partial_bn else [])],
                default_scope="mmaction",
                randomness={"seed": config.seed},
                experiment_name=uuid4().hex,  # or a second one of this name would be given the first one's parts
            )
            runner.train()
    except CacheError as error:  # of a reading process, whose traceback is in its text
        raise CacheError(
            str(error).strip().splitlines()[-1].removeprefix(f"{CacheError.__module__}.CacheError: "),
            "run the same command again with --resume, which makes it again.",
        ) from error
    finally:
        loader.close()
    if epochs.best:
        model.load_state_dict(epochs.best)
    model.eval()
    return epochs.progress


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """What the runner sets for the whole process is as before afterwards."""
    threads, method = cv2.getNumThreads(), multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        cv2.setNumThreads(threads)
        multiprocessing.set_start_method(method, force=True)
