"""The training of one feature network from initial weights to trained ones.

A training resumes from any saved epoch, to the bit on a CPU: samples and augmentation follow from (seed, epoch),
dropout and mixup from (seed, step).

On several processes each takes its share of a batch, gradients are averaged by the sizes of the shares, and each share
is normalised by its own statistics, as one process would normalise a batch of that size: batch norm over all processes
exists on GPUs alone. Running statistics, which differ for that, are averaged over the processes after each epoch.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from time import perf_counter

import numpy as np
import torch

from lstr.errors import CacheError, ConfigError, LstrError
from lstr.labels.label_set import Labels, targets
from lstr.metrics import per_frame as metrics
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.progress import Progress
from lstr.pipelines.training.loop import Run, StepPlan, kept_memory, learning_rate, train_steps
from lstr.pipelines.training.network_config import FinetuneConfig
from lstr.pipelines.training.network_samples import Images, SampleSet
from lstr.pipelines.training.ranks import Ranks, step_seed
from lstr.pipelines.training.recogniser import Recogniser, batch_norms, make_optimiser
from lstr.pipelines.training.run_folder import Position, RunFolder, RunLog, Step
from lstr.pipelines.training.window_samples import read_ahead

LATE = 0.1  # of all steps, that a run may be behind its time limit before the rate follows the time
SCORED = 32  # images at a time
LEAST = 1e-7  # probability, so that one error is no infinite loss


class NetworkRun(Run):
    """A recogniser in training with its samples.

    Args:
        card: what its state, which is also a weights file of its last epoch, says about itself
            (`lstr.extractors.networks.weights_file`).
        validation: the videos that choose its epoch.
        seconds: maximum training time; None without a limit.
    """

    model: Recogniser
    free_saves = 10

    def __init__(
        self,
        folder: RunFolder,
        stream: str,
        card: str,
        model: Recogniser,
        data: SampleSet,
        loaders: int,
        ranks: Ranks,
        validation: Mapping[str, CachedVideo],
        labels: Labels,
        seconds: float | None = None,
    ):
        self.config, self.data, self.loaders = data.config, data, loaders
        if data.batch_size < ranks.size:
            sentence = f"A step has {data.batch_size} samples, and there are {ranks.size} processes."
            raise ConfigError(sentence, f"use a batch_size, and draws, of {ranks.size} or more.")
        self.folder, self.name, self.stream, self.card = folder, folder.stage, stream, card
        self.validation, self.labels, self.seconds = validation, labels, seconds
        optimiser = make_optimiser(model, self.config)
        self.kept = batch_norms(model)[1:] if self.config.partial_bn else []
        for norm in self.kept:
            norm.requires_grad_(False)
        super().__init__(model, optimiser, self.config.clip, ranks, unused=False)
        self.best: dict[str, torch.Tensor] = {}
        self.best_mAP: float | None = None
        self.position = Position()
        if state := folder.read_state():
            model.load_state_dict(state["state_dict"])
            optimiser.load_state_dict(state["optimiser"])
            self.best, self.best_mAP = state["best"], state["best_mAP"]
            self.position = Position(**json.loads(state["position"]))
        self.saved_epoch, self.first_step, self.started = self.position.epoch, self.position.step, perf_counter()
        self._batches: Iterator[Images] = iter(())

    def train(self) -> Iterator[Progress | Step]:
        """Train in place, and leave the weights of the best epoch (the last, without validation) in the model.

        Yields Progress after each step, a Step after each epoch. Raises LstrError if the loss is not finite,
        CacheError for a damaged chunk.
        """
        config, steps = self.config, self.config.epochs * self.data.n_batches
        warmup = min(1.0, config.warmup_steps / steps) if config.warmup_steps else config.warmup

        def spent() -> float:
            """Return the share of the time limit that has passed, the same on all processes."""
            return self.ranks.of_first((perf_counter() - self.started) / self.seconds) if self.seconds else 0.0

        def rate(step: int) -> float:
            by_time = self.first_step + spent() * (steps - self.first_step)
            # of a later step if time runs out, so that the rate still falls to 0
            at = min(steps, round(by_time)) if by_time > step + LATE * steps else step
            return learning_rate(at, steps, config.lr, warmup)

        plan = StepPlan(
            config.epochs,
            steps,
            rate,
            eval_every=config.eval_every if self.validation else 0,
            patience=config.patience,
            is_late=lambda: self.position.step > self.first_step and spent() >= 1,  # never before its rate has fallen
        )
        # of all remaining epochs, so that none begins with waiting
        epochs = range(self.position.epoch, config.epochs)
        keys = (self.ranks.share(keys) for number in epochs for keys in self.data.epoch(number))
        log = RunLog(self.folder) if self.ranks.first else None
        try:
            with (
                kept_memory(self.device.type),
                closing(read_ahead(keys, self.data.batch, self.loaders)) as self._batches,
            ):
                for event in train_steps(self, plan, self.position, log):
                    yield replace(event, stage=self.name) if isinstance(event, Step) else event
        except CacheError as error:
            hint = "run the same command again with --resume, which makes it again."
            raise CacheError(str(error), hint) from error
        if self.best:
            self.model.load_state_dict(self.best)
        self.model.eval()

    def batches(self, position: Position, most: int) -> tuple[int, Iterator[Images]]:
        """Return the number of batches of an epoch, and those of the next one; epochs are saved whole."""
        self.model.train()
        for norm in self.kept:  # all batch norms but the first keep their statistics (TSN, section 3.3)
            norm.eval()
        return self.data.n_batches, islice(self._batches, self.data.n_batches)

    def step(self, batch: Images, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step; return this process's part of the loss, the gradient's norm, and the images of all processes.

        Raises LstrError if the loss is not finite.
        """
        config, ranks, (images, labels) = self.config, self.ranks, batch
        if self.device.type == "cuda":
            images = images.pin_memory().to(self.device, non_blocking=True)

        def compute() -> torch.Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                loss = self.joined(*self.model.prepare(images, torch.tensor(labels)))
            return loss * (len(labels) / self.data.batch_size)  # this process's part of a mean of samples

        first_seed = config.seed * 1_000_003 + number
        seed = first_seed if ranks.first else step_seed(config.seed, number, ranks.rank)
        loss, norm = self.optimise([compute], number, lr, seed)
        if (number + 1) % self.data.n_batches == 0:
            statistics = ((norm.running_mean, norm.running_var) for norm in batch_norms(self.model))
            ranks.average([statistic for pair in statistics for statistic in pair if statistic is not None])
        return loss, norm, self.data.batch_size * config.segments

    def divergence(self, problem: str) -> LstrError:
        """Return the error for a loss or gradient that is not finite."""
        path = self.folder.path / self.folder.state
        kept, begin = "no epoch was finished", ""
        if self.saved_epoch:
            kept, begin = f"epoch {self.saved_epoch} is kept in {path}", f" and --init {path}"
        lower = f"--set lr={self.config.lr / 10:g}{begin}"
        return LstrError(f"{problem}; {kept}.", f"start over in another folder with a lower rate: {lower}.")

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict | None:
        """Return mAP and loss of the validation chunks, and keep the best weights; None if no chunk shows an action."""
        config, ids, classes = self.config, self.validation, self.labels.classes
        truth = np.concatenate([targets(self.labels.videos[i], classes, len(video)) for i, video in ids.items()])
        scores = chunk_scores(self.model, list(ids.values()), self.stream, config, self.loaders)
        score, loss = float(metrics.per_frame(scores, truth, classes)["mAP"]), loss_of(scores, truth)
        if math.isnan(score):
            return None
        if position.judge(score if config.chosen_by == "mAP" else -loss, epoch):
            self.best = {name: tensor.cpu().clone() for name, tensor in self.model.state_dict().items()}
            self.best_mAP = score
        return {"mAP": score, "loss": loss}

    def save(self, step: Step, position: Position) -> None:
        """Save the state."""
        state = {"state_dict": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "best": self.best}
        self.folder.save_state(position, {**state, "best_mAP": self.best_mAP, "lstr": self.card})
        self.saved_epoch = position.epoch


def loss_of(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean cross entropy of chunks' class probabilities (N, C) with the classes that they show (N, C)."""
    shown = truth.sum(1) > 0
    shares = truth[shown] / truth[shown].sum(1, keepdims=True)
    return float(-(shares * np.log(scores[shown] + LEAST)).sum(1).mean())


@torch.inference_mode()
def chunk_scores(
    model: Recogniser, videos: Sequence[CachedVideo], stream: str, config: FinetuneConfig, loaders: int
) -> np.ndarray:
    """Return class probabilities (N, C) of all chunks of videos, each seen in one centre crop, in evaluation mode."""
    was_training, device, view = model.training, next(model.parameters()).device, config.view
    model.eval()
    places = [(video, chunk) for video in videos for chunk in range(len(video))]

    def read(some: Sequence[tuple[CachedVideo, int]]) -> torch.Tensor:
        """(n, 1, C, *config.size)"""
        images = (view.fitted(video.picture(chunk, stream)) for video, chunk in some)
        cropped = np.stack([view.of(image) for image in images])  # (n, 1, *config.size, C)
        return torch.from_numpy(cropped.transpose(0, 1, 4, 2, 3).copy())

    scores = []
    for images in read_ahead((places[at : at + SCORED] for at in range(0, len(places), SCORED)), read, loaders):
        pixels = model.scaled(images).flatten(0, 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            features = model.backbone(pixels.contiguous(memory_format=torch.channels_last))
            logits = model.cls_head(features, 1)
        scores.append(logits.float().softmax(1).cpu().numpy())
    model.train(was_training)
    return np.concatenate(scores)
