"""One stream's recogniser on its way from first weights to trained ones.

A run can go on from any saved epoch, to the bit on a CPU: samples and augmentation follow from (seed, epoch), dropout
and mixup from (seed, step).

On several processes each takes its share of a batch, gradients are averaged by the sizes of the shares, and each share
is normalised by its own statistics, as one process would normalise a batch of that size: batch norm over all processes
exists on GPUs alone. Running statistics, which differ for that, are averaged over the processes after each epoch.
"""

import math
from collections.abc import Callable, Iterator
from time import perf_counter

import torch

from lstr.errors import ConfigError, LstrError
from lstr.pipelines.extraction.chunk_cache import CacheError
from lstr.pipelines.finetuning.config import FinetuneConfig
from lstr.pipelines.finetuning.loader import EpochLoader, Images
from lstr.pipelines.finetuning.recogniser import Recogniser, batch_norms, make_optimiser
from lstr.pipelines.finetuning.run_folder import Epoch, EpochLog, State
from lstr.pipelines.progress import Progress
from lstr.pipelines.training.log import Step
from lstr.pipelines.training.loop import Plan, Position, train_steps
from lstr.pipelines.training.ranks import Ranks, distributed_model, lost_others, step_seed
from lstr.pipelines.training.schedule import learning_rate

LATE = 0.1  # of all steps, that a run may be behind its time before the rate goes by time


class NetworkRun:
    """A recogniser, its optimiser and its files, as the loop trains it (`lstr.pipelines.training.loop.Run`)."""

    def __init__(
        self,
        state: State,
        model: Recogniser,
        config: FinetuneConfig,
        loader: EpochLoader,
        evaluate: Callable[[Recogniser], float | None] | None,
        ranks: Ranks,
        seconds: float | None = None,
    ):
        if loader.n_samples < ranks.size:
            sentence = f"A step has {loader.n_samples} samples, and there are {ranks.size} processes."
            raise ConfigError(sentence, f"use a batch_size, and draws, of {ranks.size} or more.")
        self.name, self.state, self.model, self.config = state.network.name, state, model, config
        self.loader, self.score, self.ranks = loader, evaluate, ranks
        self.device = next(model.parameters()).device
        self.optimiser = make_optimiser(model, config)
        self.kept = batch_norms(model)[1:] if config.partial_bn else []
        for norm in self.kept:
            norm.requires_grad_(False)
        self.joined = distributed_model(model, ranks, unused=False)
        self.best: dict[str, torch.Tensor] = {}
        self.position = state.restore(self)
        self.log = EpochLog(state.network, self.position.epoch) if ranks.first else None
        self.seconds = seconds
        self._since = perf_counter()

    def plan(self) -> Plan:
        """Its steps, and when it is evaluated."""
        config, steps = self.config, self.config.epochs * len(self.loader)
        return Plan(
            steps,
            lambda step: learning_rate(self._hurried(step, steps), steps, config.lr, config.warmup),
            eval_every=config.eval_every if self.score else 0,
            patience=config.patience,
            is_late=lambda: self._spent() >= 1,
        )

    def _spent(self) -> float:
        """The share of its time that has passed, the same on all processes; 0 without a bound."""
        if not self.seconds:
            return 0.0
        return self.ranks.of_first((self.position.seconds + perf_counter() - self._since) / self.seconds)

    def _hurried(self, step: int, steps: int) -> int:
        """The step that the learning rate is of: a later one where time runs out, so that the rate still falls to 0."""
        by_time = self._spent()
        return min(steps, round(by_time * steps)) if by_time > step / steps + LATE else step

    def n_batches(self, epoch: int) -> int:
        """How many batches each epoch has."""
        return len(self.loader)

    def batches(self, epoch: int, first: int, most: int) -> Iterator[Images]:
        """The batches of the next epoch; the loader knows which it is, and an epoch is saved whole."""
        self.model.train()
        for norm in self.kept:  # all batch norms but the first keep their statistics (TSN, section 3.3)
            norm.eval()
        return self.loader.epoch()

    def step(self, batch: Images, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step: this process's part of the loss, the norm of the gradient, and the images of all processes.

        Raises LstrError when the loss is not finite.
        """
        config, ranks = self.config, self.ranks
        images, labels = batch
        if images.device != self.device:
            images = images.pin_memory().to(self.device, non_blocking=True)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        first = config.seed * 1_000_003 + number
        torch.manual_seed(first if ranks.first else step_seed(config.seed, number, ranks.rank))
        with lost_others(ranks):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                loss = self.joined(*self.model.prepare(images, torch.tensor(labels)))
            value = loss.item()
            self._refuse(value, number)
            share = len(labels) / self.loader.n_samples
            (loss * (share * ranks.size)).backward()  # gradients are averaged over processes; this is a mean of samples
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip or math.inf).item()
            self.optimiser.step()
            self.optimiser.zero_grad()
        if (number + 1) % len(self.loader) == 0:
            statistics = ((norm.running_mean, norm.running_var) for norm in batch_norms(self.model))
            ranks.average([statistic for pair in statistics for statistic in pair if statistic is not None])
        return value * share, norm, self.loader.n_samples * config.segments

    def _refuse(self, loss: float, number: int) -> None:
        if math.isfinite(loss):
            return
        epoch, path = self.state.saved_epoch, self.state.path
        kept = f"epoch {epoch} is kept in {path}" if epoch else "no epoch was finished"
        begin = f" and [[init={path}]]" if epoch else ""
        raise LstrError(
            f"The loss of step {number + 1} in epoch {number // len(self.loader) + 1} is {loss}; {kept}.",
            f"begin again in another folder with a lower rate: [[settings.lr={self.config.lr / 10:g}]]{begin}.",
        )

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict | None:
        """The mAP of the validation chunks; the best weights are kept. None where no chunk shows an action."""
        score = self.score(self.model) if self.score else None
        if score is None:
            return None
        if position.judge(score):
            self.best = {name: tensor.cpu().clone() for name, tensor in self.model.state_dict().items()}
            self.position.best_epoch = epoch
        return {"mAP": score}

    def keep(self, step: Step, position: Position, last: bool) -> None:
        """Log an epoch, then save it where enough time has passed since the last that was saved."""
        assert self.log is not None, "rank 0 has the log"
        now = perf_counter()
        self.position.seconds += now - self._since
        self._since = now
        self.log.write(self.epoch(step))
        self.state.save(self)

    def epoch(self, step: Step) -> Epoch:
        """A logged interval as the event of its epoch."""
        network, score = self.state.network, step.evaluation["mAP"] if step.evaluation else None
        numbers = step.loss, step.lr, step.rate, step.waiting, score, self.position.best
        return Epoch(network.stream, network.fold, step.epoch, self.config.epochs, *numbers)


def train_network(run: NetworkRun) -> Iterator[Progress | Epoch]:
    """Train in place, and leave the weights of the best epoch (the last, without validation) in the model.

    Yields Progress after each step, an Epoch after each epoch. A run goes on from its state. Raises LstrError when the
    loss is not finite, CacheError for a damaged chunk.
    """
    try:
        run.loader.begin(run.position.epoch)
        for event in train_steps(run, run.plan(), run.position):
            yield run.epoch(event) if isinstance(event, Step) else event
    except CacheError as error:  # of a reading process, whose traceback is in its text
        raise CacheError(
            str(error).strip().splitlines()[-1].removeprefix(f"{CacheError.__module__}.CacheError: "),
            "run the same command again with [[resume=true]], which makes it again.",
        ) from error
    finally:
        run.loader.close()
    if run.best:
        run.model.load_state_dict(run.best)
    run.model.eval()
