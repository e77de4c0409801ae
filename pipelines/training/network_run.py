"""The training of one feature network from initial weights to trained ones.

A training resumes from any saved epoch, to the bit on a CPU: samples and augmentation follow from (seed, epoch),
dropout and mixup from (seed, step).

On several processes each takes its share of a batch, gradients are averaged by the sizes of the shares, and each share
is normalised by its own statistics, as one process would normalise a batch of that size: batch norm over all processes
exists on GPUs alone. Running statistics, which differ for that, are averaged over the processes after each epoch.
"""

import hashlib
import json
import math
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from lstr.errors import CacheError, ConfigError, LabelsError
from lstr.extractors.flow.workers import DIFFERENCE
from lstr.extractors.networks.manifest import fit_name
from lstr.extractors.networks.weights_file import ModelCard, network_file
from lstr.extractors.networks.weights_folder import write_network
from lstr.extractors.streams import STREAMS
from lstr.files.content import write_json
from lstr.labels.label_set import BACKGROUND, Labels, targets
from lstr.metrics import per_frame as metrics
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.progress import Progress
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import learning_rate
from lstr.pipelines.training.network_samples import Images, SampleSet, samples_of, single_chunks
from lstr.pipelines.training.recogniser import NetworksToTrain, Recogniser, batch_norms, make_optimiser, recogniser
from lstr.pipelines.training.run import NETWORK_STATES, Position, Run, RunFolder, Step, keep_freed_memory
from lstr.pipelines.training.training_videos import Pair
from lstr.pipelines.training.window_samples import read_ahead

WARMUP_SHARE = 0.05  # of all steps, in which the rate rises where no number of steps is set
MAX_GRADIENT_NORM = 20.0  # published TSN
EVALUATION_EPOCHS = 2  # epochs between two evaluations
LATE_SHARE = 0.1  # of all steps, that a run may be behind its time limit before the rate follows the time
SCORED_IMAGES = 32  # at a time
MIN_PROBABILITY = 1e-7  # so that one error is no infinite loss
MAX_LOADERS = 12  # threads that read samples ahead
PACE_SHARE = 0.1  # of the steps, after which their time is compared with the plan; the first steps are slower
MIN_RESERVE = 1.2  # of the planned time of the work that follows


@dataclass(frozen=True)
class TimeLimit:
    """Maximum training time in seconds, of all networks of a job or of one.

    It includes the time of the work that follows, which takes `later` seconds by the plan. If a network takes longer
    than the `planned` seconds of its stream, the machine has become slower. The threads of a training wait for each
    other, so that other work slows down less, about by the square root: next to two and ten other processes on two
    cores, trainings took 2.8 and 15 times as long as planned, and the work that followed 1.3 and 3.9 times.
    """

    seconds: float
    later: float = 0.0
    planned: Mapping[str, float] = field(default_factory=dict)

    def spent(self, stream: str, seconds: float, share: float) -> float:
        """Return the share of a network's limit that has passed, after some seconds and a share of the steps."""
        pace = seconds / (share * self.planned.get(stream, math.inf)) if share >= PACE_SHARE else 1.0
        return seconds / max(0.001, self.seconds - max(MIN_RESERVE, math.sqrt(pace)) * self.later)


@dataclass(frozen=True)
class NetworkFiles:
    """One network of a finetuning, and its files."""

    folder: Path
    stream: str
    fold: int | None  # the fold that it never sees; None for the network of all videos

    @property
    def name(self) -> str:
        """The name for people, and in the log."""
        return f"{self.stream} without fold {self.fold}" if self.fold else self.stream

    @property
    def run(self) -> RunFolder:
        """The network's part of the run: its state and its lines of the log."""
        file = f"{self.stream}{f'_fold_{self.fold}' if self.fold else ''}.pth"
        return RunFolder(self.folder, f"{NETWORK_STATES}/{file}", self.name)

    @property
    def result_file(self) -> Path:
        """Its entry of finetune.json, until all networks are finished."""
        return (self.folder / self.run.state).with_suffix(".json")

    def is_finished(self) -> bool:
        """Return whether it is trained and written."""
        return network_file(self.folder, self.stream, self.fold).is_file() and self.result_file.is_file()


@dataclass(frozen=True)
class Training:
    """All inputs that define the trained networks."""

    networks: NetworksToTrain
    labels: Labels
    videos: Mapping[str, CachedVideo]  # by id: all that any pair learns from or is chosen by
    pairs: list[Pair]  # of all videos, then without each fold
    folds: Mapping[str, int]
    limit: TimeLimit | None = None  # of all networks together

    def sha256(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the SHA-256 of video files by id."""
        return {i: self.videos[i].record["sha256"] for i in ids}

    def settings(self, device: str) -> dict:
        """Return the content of config.json: what must be the same to resume a run, and where it was made."""
        preset, initial = self.networks.preset, self.networks.initial
        streams = {}
        for stream, config in self.networks.configs.items():
            part = asdict(preset.parts[stream])
            part.pop("follows")  # its size is that of these videos
            streams[stream] = {**config.to_dict(), "init": initial[stream].sha256, **part}
        videos = {}
        for video_id, sha256 in self.sha256(sorted(self.videos)).items():
            segments = [(s.label, s.start, s.end) for s in self.labels.videos[video_id].segments]
            labels = hashlib.sha256(json.dumps(segments).encode()).hexdigest()[:16]
            subset = "training" if video_id in self.pairs[0].training else "validation"
            videos[video_id] = {"sha256": sha256, "labels": labels, "part": subset}
        return {
            "streams": streams,
            "recipe": {n: v for n, v in asdict(preset).items() if n not in STREAMS},
            "folds": len(self.pairs) - 1,
            "classes": self.labels.classes,
            "videos": videos,
            "made_by": provenance(device, ranks.world_size()),
        }


def train_network(
    training: Training, network: NetworkFiles, device: str = "cpu", limit: TimeLimit | None = None
) -> Generator[Progress | Step, None, None]:
    """Train a network, and write it with the weights of its best epoch (the last, without validation).

    A network without epochs is written as it begins. Yields Progress after each step, a Step after each epoch.

    Args:
        limit: the maximum training time, after which the network ends; it learns for one epoch at least.

    Raises LabelsError if its videos show no action, ConfigError for fewer samples than processes, LstrError for a loss
    that is not finite, and CacheError for a damaged chunk.
    """
    stream, networks = network.stream, training.networks
    config, preset, initial = networks.configs[stream], networks.preset.parts[stream], networks.initial[stream]
    pair = training.pairs[network.fold or 0]
    model = recogniser(stream, preset, len(training.labels.classes), config, initial)
    model.to(device=device).to(memory_format=torch.channels_last)
    seen = {**initial.seen, **(training.sha256(sorted({*pair.training, *pair.validation})) if config.epochs else {})}
    name, classes = fit_name(network.folder), training.labels.classes
    card = ModelCard(name, stream, preset.network, classes, seen, None, network.fold, initial.origin)
    at = Position()
    if config.epochs:
        run = NetworkRun(training, network, model, card, limit)
        yield from run.train()
        at = run.position
    if ranks.is_first():
        result = {"mAP": at.best, "epoch": at.best_epoch or at.epoch, "epochs": at.epoch}
        write_json(network.result_file, {**result, "seconds": round(at.seconds, 2)})
        write_network(network.folder, model.state_dict(), replace(card, mAP=at.best))
        (network.folder / network.run.state).unlink(missing_ok=True)
    ranks.wait_for_all()


class NetworkRun(Run):
    """A recogniser in training with its samples, and the videos that choose its epoch, if any.

    Args:
        card: what its state, which is also a weights file of its last epoch, says about itself.
        limit: maximum training time; None without a limit.

    Raises LabelsError and ConfigError as `train_network`.
    """

    model: Recogniser
    free_saves = 10

    def __init__(
        self, training: Training, network: NetworkFiles, model: Recogniser, card: ModelCard, limit: TimeLimit | None
    ):
        pair = training.pairs[network.fold or 0]
        self.config, self.labels, self.limit = training.networks.configs[network.stream], training.labels, limit
        self.name = self.stage = network.name
        self.stream, self.folder, self.card = network.stream, network.run, card
        classes = self.labels.classes
        self.validation = {i: training.videos[i] for i in pair.validation}
        videos = {i: training.videos[i] for i in pair.training}
        samples = samples_of({i: (self.labels.videos[i], len(chunks)) for i, chunks in videos.items()}, classes)
        if all(classes[sample.label] == BACKGROUND for sample in samples):
            sentence = f"All labelled actions are outside the {len(videos)} training videos."
            raise LabelsError(sentence, "write times in seconds from the start of each video.")
        samples = single_chunks(samples) if self.config.samples == "chunks" else samples
        is_directed = training.networks.preset.algorithm != DIFFERENCE
        self.data = SampleSet(samples, videos, self.stream, self.config, is_directed)
        if self.data.batch_size < ranks.world_size():
            raise ConfigError(
                f"A step has {self.data.batch_size} samples, fewer than the {ranks.world_size()} processes.",
                f"set batch_size and draws to {ranks.world_size()} or more.",
            )
        optimiser = make_optimiser(model, self.config)
        self.kept = batch_norms(model)[1:] if self.config.partial_bn else []
        for norm in self.kept:
            norm.requires_grad_(False)
        super().__init__(model, optimiser, MAX_GRADIENT_NORM, unused=False)
        cores = (os.cpu_count() or 1) // ranks.world_size()
        # on a CPU few, for the network needs the cores
        self.loaders = max(1, cores // 4 if self.device.type == "cpu" else min(MAX_LOADERS, cores - 1))
        self.best: dict[str, torch.Tensor] = {}
        self.epochs, self.steps = self.config.epochs, self.config.epochs * self.data.n_batches
        self.eval_every = EVALUATION_EPOCHS if self.validation else 0
        self._batches: Iterator[Images] = iter(())
        if state := self.folder.read_state():
            model.load_state_dict(state["state_dict"])
            optimiser.load_state_dict(state["optimiser"])
            self.best, self.position = state["best"], state["position"]
        self.saved_epoch, self.first_step, self.started = self.position.epoch, self.position.step, perf_counter()

    def train(self) -> Iterator[Progress | Step]:
        """Train all epochs that are left, as far as the time allows, and load the weights of the best; as above."""
        # of all remaining epochs, so that none begins with waiting
        size, share = self.data.batch_size, slice(ranks.rank(), None, ranks.world_size())
        drawn = (self.data.draw_epoch(epoch) for epoch in range(self.position.epoch, self.epochs))
        keys = (keys[at * size : (at + 1) * size][share] for keys in drawn for at in range(self.data.n_batches))
        try:
            with (
                keep_freed_memory(self.device.type),
                closing(read_ahead(keys, self.data.batch, self.loaders)) as self._batches,
            ):
                yield from self.train_steps(self.folder.log if ranks.is_first() else None)
        except CacheError as error:
            hint = "run the same command again, `lstr finetune` with --resume, to compute it again."
            raise CacheError(str(error), hint) from error
        if self.best:
            self.model.load_state_dict(self.best)
        self.model.eval()

    def spent(self) -> float:
        """Return the share of the time limit that has passed, the same on all processes."""
        if not (limit := self.limit):
            return 0.0
        share = (self.position.step - self.first_step) / self.steps
        return ranks.from_first(lambda: limit.spent(self.stream, perf_counter() - self.started, share))

    def is_late(self) -> bool:
        """Return whether the time limit is reached; never before the end of the first epoch."""
        return self.position.step >= self.first_step + self.data.n_batches and self.spent() >= 1

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, or of a later one if time runs out, so that it still falls to 0."""
        config, steps = self.config, self.steps
        warmup = min(1.0, config.warmup_steps / steps) if config.warmup_steps else WARMUP_SHARE
        left, taken = steps - self.first_step, step - self.first_step
        # without time for more than one epoch, the rate falls within it
        by_time = self.first_step + min(self.spent(), taken / self.data.n_batches) * left
        at = min(steps, round(by_time)) if by_time > step + LATE_SHARE * steps else step
        return learning_rate(at, steps, config.lr, warmup)

    def batches(self) -> tuple[int, Iterator[Images]]:
        """Return the number of batches per epoch, and the batches of the next epoch; only complete epochs are saved."""
        self.model.train()
        for norm in self.kept:  # all batch norms but the first keep their statistics (TSN, section 3.3)
            norm.eval()
        return self.data.n_batches, islice(self._batches, self.data.n_batches)

    def step(self, batch: Images, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step; return this process's part of the loss, the gradient's norm, and the images of all processes.

        Raises LstrError if the loss is not finite.
        """
        config, (images, labels) = self.config, batch
        if self.device.type == "cuda":
            images = images.pin_memory().to(self.device, non_blocking=True)

        def compute() -> torch.Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                loss = self.joined(*self.model.prepare(images, torch.tensor(labels)))
            return loss * (len(labels) / self.data.batch_size)  # this process's part of a mean of samples

        # the first process keeps the seeds of earlier versions, so that their runs end in the same bits
        seed = config.seed * 1_000_003 + number if ranks.is_first() else ranks.step_seed(config.seed, number)
        state, kept, begin = self.folder.path / self.folder.state, "no epoch was finished", ""
        if self.saved_epoch:
            kept, begin = f"epoch {self.saved_epoch} is kept in {state}", f" and --init {state}"
        hint = f"start over in another folder with a lower rate: --set lr={config.lr / 10:g}{begin}."
        loss, norm = self.optimise([compute], number, lr, seed, (f"; {kept}", hint))
        if (number + 1) % self.data.n_batches == 0:
            statistics = ((norm.running_mean, norm.running_var) for norm in batch_norms(self.model))
            ranks.average([statistic for pair in statistics for statistic in pair if statistic is not None])
        return loss, norm, self.data.batch_size * config.segments

    def evaluate(self, epoch: int, values: dict) -> dict | None:
        """Return mAP and loss of the validation chunks, and keep the best weights; None if no chunk shows an action.

        Each chunk is seen in one centre crop. The loss is the mean cross entropy of the chunks with the classes that
        they show.
        """
        ids, classes, view, model = self.validation, self.labels.classes, self.config.view, self.model
        truth = np.concatenate([targets(self.labels.videos[i], classes, len(video)) for i, video in ids.items()])
        places = [(video, chunk) for video in ids.values() for chunk in range(len(video))]
        jobs = (places[at : at + SCORED_IMAGES] for at in range(0, len(places), SCORED_IMAGES))

        def read(chunks: Sequence[tuple[CachedVideo, int]]) -> torch.Tensor:
            """Return images (n, 1, C, *config.input_size)."""
            images = (view.fitted(video.picture(chunk, self.stream)) for video, chunk in chunks)
            cropped = np.stack([view.of(image) for image in images])  # (n, 1, *config.input_size, C)
            return torch.from_numpy(cropped.transpose(0, 1, 4, 2, 3).copy())

        was_training, rows = model.training, []
        model.eval()
        with torch.inference_mode():
            for images in read_ahead(jobs, read, self.loaders):
                pixels = model.scaled(images).flatten(0, 1).contiguous(memory_format=torch.channels_last)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                    logits = model.cls_head(model.backbone(pixels), 1)
                rows.append(logits.float().softmax(1).cpu().numpy())
        model.train(was_training)
        scores = np.concatenate(rows)  # (N, C) probabilities
        score = float(metrics.per_frame(scores, truth, classes)["mAP"])
        if math.isnan(score):
            return None
        if self.position.judge(score, epoch):
            self.best = {name: tensor.cpu().clone() for name, tensor in model.state_dict().items()}
        shown = truth.sum(1) > 0
        shares = truth[shown] / truth[shown].sum(1, keepdims=True)
        return {"mAP": score, "loss": float(-(shares * np.log(scores[shown] + MIN_PROBABILITY)).sum(1).mean())}

    def save(self, step: Step) -> None:
        """Save the state."""
        state = {"state_dict": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "best": self.best}
        self.folder.save_state(self.position, {**state, "lstr": self.card.to_json()})
        self.saved_epoch = self.position.epoch
