"""mmaction2's recogniser and TSN head around one stream's network, trained by mmengine's runner.

Two things of the runner do not work here and are replaced: its wrapper for mixed precision asserts on a CPU, and its
resume reads a pickle that torch refuses. A run can go on from any finished epoch, to the bit on a CPU: samples and
augmentation follow from (seed, epoch), dropout from (seed, step).
"""

import contextlib
import io
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from mmaction.models import TSNHead
from mmaction.registry import MODELS
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from lstr.errors import LstrError
from pipelines.finetune_config import FinetuneConfig
from pipelines.store import replacing
from pipelines.train_config import TrainConfig, learning_rate


@MODELS.register_module()
class Float32TSNHead(TSNHead):
    """TSN's head outside autocast: its accuracy is computed by NumPy, which has no bfloat16."""

    def forward(self, x: torch.Tensor, num_segs: int, **kwargs) -> torch.Tensor:
        """(N · segments, D, h, w) → class scores (N, C) float32."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.float(), num_segs, **kwargs)


class BrainFloatWrapper(OptimWrapper):
    """An optimiser step whose forward pass runs in bfloat16 where that is safe."""

    @contextlib.contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast on the model's device."""
        with super().optim_context(model), torch.autocast(next(model.parameters()).device.type, torch.bfloat16):
            yield


@dataclass(frozen=True)
class Epoch:
    """One finished epoch of a stream. `mAP` of the validation chunks is None where none was due."""

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
    """How far a run has come, as its state says; `weights` are those of the best epoch so far."""

    epoch: int = 0
    step: int = 0
    best: float | None = None
    stale: int = 0
    weights: dict | None = None


def recogniser(config: Mapping, n_classes: int, dropout: float) -> nn.Module:
    """mmaction2's recogniser of a network's config (`extractors.resnet.CONFIGS`), with a head for these classes."""
    head = {**config["cls_head"], "type": Float32TSNHead, "num_classes": n_classes, "dropout_ratio": dropout}
    return MODELS.build({**config, "cls_head": head})


class _Rates(Hook):
    """Rate of a step, its dropout's seed, and the end of a run whose loss is not finite."""

    priority = "VERY_HIGH"

    def __init__(self, config: FinetuneConfig):
        self.config = config
        self.schedule = TrainConfig(lr=config.lr, warmup=config.warmup)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        for group in runner.optim_wrapper.param_groups:
            group["lr"] = learning_rate(runner.iter, runner.max_iters, self.schedule)
        torch.manual_seed(self.config.seed * 1_000_003 + runner.iter)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        if not math.isfinite(float(outputs["loss"])):
            raise LstrError(
                f"The loss of step {runner.iter + 1} is {float(outputs['loss'])}.",
                "lower the rate: --set lr=…; --resume goes on from the last good epoch.",
            )


class _PartialBatchNorm(Hook):
    """All batch norms but the first keep their statistics (TSN, section 3.3)."""

    def before_train_epoch(self, runner) -> None:
        norms = [m for m in runner.model.backbone.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        for norm in norms[1:]:
            norm.eval()
            norm.requires_grad_(False)


class _Epochs(Hook):
    """Evaluates, keeps the best weights, saves the state, and says how an epoch went."""

    def __init__(
        self,
        config: FinetuneConfig,
        state: Path,
        evaluate: Callable[[nn.Module], float] | None,
        say: Callable[[Epoch], None],
    ):
        self.config = config
        self.state = state
        self.evaluate = evaluate
        self.say = say
        self.progress = Progress()

    def before_train(self, runner) -> None:
        """Go on from the state, where there is one."""
        if not self.state.exists():
            return
        content = torch.load(self.state, map_location="cpu", weights_only=True)
        self.progress = Progress(**content["progress"])
        runner.model.load_state_dict(content["model"])
        runner.optim_wrapper.load_state_dict(content["optimiser"])
        loop = runner.train_loop
        loop._epoch, loop._iter = self.progress.epoch, self.progress.step
        loop.stop_training = self._stale()

    def before_train_epoch(self, runner) -> None:
        self.start, self.waiting, self.losses = perf_counter(), 0.0, []
        self.left = self.start

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        self.waiting += perf_counter() - self.left

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        self.losses.append(float(outputs["loss"]))
        self.left = perf_counter()

    def after_train_epoch(self, runner) -> None:
        seconds, progress = perf_counter() - self.start, self.progress
        images = len(self.losses) * self.config.batch_size * self.config.segments
        progress.epoch, progress.step = runner.epoch + 1, runner.iter
        due = progress.epoch % self.config.eval_every == 0 or progress.epoch == runner.max_epochs
        score = self.evaluate(runner.model) if self.evaluate and due else None
        if score is not None:
            if progress.best is None or score > progress.best:
                weights = {name: tensor.cpu().clone() for name, tensor in runner.model.state_dict().items()}
                progress.best, progress.stale, progress.weights = score, 0, weights
            else:
                progress.stale += 1
        self._save(runner)
        lr = runner.optim_wrapper.param_groups[0]["lr"]
        self.say(
            Epoch(
                progress.epoch,
                runner.max_epochs,
                float(np.mean(self.losses)),
                lr,
                images / seconds,
                self.waiting / seconds,
                score,
                progress.best,
            )
        )
        runner.train_loop.stop_training = self._stale()

    def _stale(self) -> bool:
        return 0 < self.config.patience <= self.progress.stale

    def _save(self, runner) -> None:
        with replacing(self.state) as temporary:
            torch.save(
                {
                    "progress": vars(self.progress),
                    "model": runner.model.state_dict(),
                    "optimiser": runner.optim_wrapper.state_dict(),
                },
                temporary,
            )


def train_recogniser(
    model: nn.Module,
    loader: DataLoader,
    config: FinetuneConfig,
    folder: Path,
    evaluate: Callable[[nn.Module], float] | None,
    say: Callable[[Epoch], None],
    partial_bn: bool,
) -> float | None:
    """Train in place, and leave the weights of the best epoch (the last, without validation) in the model.

    `folder`/state.pt is the state a stopped run goes on from. `evaluate` gives the score of a model in evaluation
    mode. Returns the best score. Raises LstrError when the loss is not finite.
    """
    optimiser = torch.optim.SGD(
        model.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    wrapper = BrainFloatWrapper if config.precision == "bf16" else OptimWrapper
    epochs = _Epochs(config, folder / "state.pt", evaluate, say)
    with contextlib.redirect_stdout(io.StringIO()):  # its logger writes to standard output
        runner = Runner(
            model,
            str(folder),
            train_dataloader=loader,
            train_cfg={"by_epoch": True, "max_epochs": config.epochs},
            optim_wrapper=wrapper(optimiser, clip_grad={"max_norm": config.clip} if config.clip else None),
            default_hooks=dict.fromkeys(("runtime_info", "timer", "logger", "param_scheduler", "checkpoint")),
            custom_hooks=[_Rates(config), epochs, *([_PartialBatchNorm()] if partial_bn else [])],
            default_scope="mmaction",
            log_level=logging.ERROR,
            randomness={"seed": config.seed},
        )
        runner.train()
    if epochs.progress.weights:
        model.load_state_dict(epochs.progress.weights)
    model.eval()
    return epochs.progress.best


def make_loader(dataset, sampler, config: FinetuneConfig, readers: int) -> DataLoader:
    """Batches of samples as mmaction2 takes them, read ahead by processes."""
    return DataLoader(
        dataset,
        config.batch_size,
        sampler=sampler,
        num_workers=readers,
        persistent_workers=readers > 0,
        collate_fn=pseudo_collate,
        drop_last=len(sampler) > config.batch_size,  # a batch of one image has no batch-norm statistics
    )
