"""Compare with the published LSTR code on the same synthetic videos and weights; writes published-parity.json.

    git clone https://github.com/amazon-science/long-short-term-transformer THEIRS
    pip install -e '.[parity]'                              what the published code imports: yacs and tqdm
    python benchmarks/published_parity.py THEIRS            a small model, less than a minute
    python benchmarks/published_parity.py THEIRS --size full   the published size, 15 minutes

The published functions run unchanged: loader, network, both kinds of inference, loss, optimiser, scheduler and metrics.
Both sides read the same random features in the published layout. Training uses a dropout of 0, because the two draw it
differently. This repository contains none of that code, and no test needs it.
"""

import argparse
import copy
import json
import logging
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from lstr import checkpoint
from lstr.batch import predict
from lstr.chunk import FEATURES_PER_SECOND
from lstr.files.content import write_json
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics.per_frame import per_frame, published_per_stage
from lstr.pipelines.features.dataset import LabelledVideo, Split, read_dataset
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.config import rates, resolve
from lstr.pipelines.training.model_run import Learner
from lstr.windows import indices as memory
from lstr.windows.windows import gather

RECORD = Path(__file__).with_name("published-parity.json")
YAML = "configs/THUMOS/LSTR/lstr_long_512_work_8_kinetics_1x.yaml"
PACKAGE = "rekognition_online_action_detection"
STREAMS = {"rgb_kinetics_resnet50": 2048, "flow_kinetics_bninception": 1024}
NOTHING = torch.zeros(1), torch.ones(1)  # statistics that change no feature


@dataclass(frozen=True)
class Size:
    """The size of model and videos."""

    width: int = 64
    heads: int = 4
    memory: int = 64
    """seconds"""
    training: tuple[int, ...] = (900, 33, 640, 250, 500, 31, 320, 800, 410, 700, 280, 560)
    """chunks of each video"""
    testing: tuple[int, ...] = (760, 32)


SIZES = {"small": Size(), "full": Size(width=1024, heads=16, memory=512, testing=(2330, 32))}


def draw_videos(folder: Path, size: Size) -> Path:
    """Write random features and targets in the published layout; return data_info.json.

    Each class occurs in a test video.
    """
    random = np.random.default_rng(0)
    sets: dict[str, list[str]] = {}
    for key, lengths in (("train_session_set", size.training), ("test_session_set", size.testing)):
        sets[key] = [f"{key[:5].strip('_')}_{i}" for i in range(len(lengths))]
        for video, length in zip(sets[key], lengths, strict=True):
            runs = random.integers(3, 20, length)
            on = np.repeat(np.where(random.random(length) < 0.4, 0, random.integers(1, 22, length)), runs)[:length]
            targets = np.eye(22, dtype=np.int64)[on]
            targets[targets[:, 5] == 1, 8] = 1  # CliffDiving is Diving too
            arrays = {name: random.standard_normal((length, d)) for name, d in STREAMS.items()}
            for name, array in {**arrays, "target_perframe": targets}.items():
                (folder / name).mkdir(exist_ok=True)
                np.save(folder / name / f"{video}.npy", array if name == "target_perframe" else array.astype("f4"))
    entry = {"data_root": str(folder), "class_names": list(THUMOS_CLASSES), "num_classes": 22, "ignore_index": 21}
    info = folder / "data_info.json"
    write_json(info, {"THUMOS": {**entry, "metrics": "AP", "fps": FEATURES_PER_SECOND, **sets}})
    return info


class Theirs:
    """The published code: its configuration and functions."""

    def __init__(self, source: Path, info: Path, size: Size):
        sys.path.insert(0, str(source / "src"))
        from importlib import import_module

        self.part = lambda name: import_module(f"{PACKAGE}.{name}")
        cfg = self.part("config.defaults").get_cfg()
        cfg.merge_from_file(str(source / YAML))
        wanted = {"FEATURE_HEAD.LINEAR_OUT_FEATURES": size.width, "LSTR.DIM_FEEDFORWARD": size.width}
        wanted |= {"LSTR.NUM_HEADS": size.heads, "LSTR.LONG_MEMORY_SECONDS": size.memory, "LSTR.DROPOUT": 0.0}
        options = [part for name, value in wanted.items() for part in (f"MODEL.{name}", value)]
        options += ["DATA.DATA_INFO", str(info), "DATA_LOADER.NUM_WORKERS", 0, "DATA_LOADER.PIN_MEMORY", False]
        cfg.merge_from_list([*options, "MODEL.CHECKPOINT", str(info.parent / "theirs.pth")])
        self.part("utils.parser").assert_and_infer_cfg(cfg, SimpleNamespace(gpu="", config_file="a/b.yaml"))
        self.cfg = cfg
        self.quiet = logging.getLogger("theirs")

    def model(self) -> torch.nn.Module:
        """Return a network with new weights, and write them to its checkpoint file."""
        torch.manual_seed(0)
        model = self.part("models").build_model(self.cfg, "cpu")
        torch.save({"epoch": 0, "model_state_dict": model.state_dict()}, self.cfg.MODEL.CHECKPOINT)
        return model

    def batch_scores(self, model: torch.nn.Module) -> dict[str, np.ndarray]:
        """Return probabilities (L, 22) of each test video by batch evaluation."""
        inference = self.part("engines.base_inferences.perframe_det_batch_inference")
        inference.do_perframe_det_batch_inference(self.cfg, model, "cpu", self.quiet)
        with Path(self.cfg.MODEL.CHECKPOINT).with_suffix(".pkl").open("rb") as file:  # written by the line above
            return pickle.load(file)["perframe_pred_scores"]

    def stream_scores(self, model: Any, video: str) -> np.ndarray:
        """Return probabilities (L, 22) of a test video by streaming, as passed to the metric."""
        cfg, step, found = self.cfg.clone(), model.stream_inference, []
        cfg.DATA.TEST_SESSION_SET = [video]

        def record(*inputs: Any) -> torch.Tensor:
            logits = step(*inputs)
            found.append(logits[0] if not found else logits[0, -1:])
            return logits

        model.stream_inference = record
        self.part("engines.lstr.lstr_inference").do_lstr_stream_inference(cfg, model, "cpu", self.quiet)
        return torch.cat(found).softmax(-1).numpy()

    def metric(self, name: str, what: str, scores: np.ndarray, targets: np.ndarray) -> Any:
        """Return AP or cAP, by `perframe` or `perstage`."""
        return self.part("evaluation").compute_result[name](self.cfg, targets, scores, metrics=what)


def compare_inference(theirs: Theirs, test: Split, size: Size) -> Iterator[tuple[str, float, str]]:
    """Yield the largest differences in probability of batch evaluation and of streaming."""
    model, theirs_by_grid = theirs.model(), {}
    shape = {"n_heads": size.heads, "long_length": size.memory * FEATURES_PER_SECOND}
    for grid, wanted in (("sliding", "batch evaluation"), ("fixed", "stream")):
        ours = checkpoint.load(theirs.cfg.MODEL.CHECKPOINT, {**shape, "grid": grid}).model
        scores = {video.id: predict(ours, video.features[:]).numpy() for video in test.videos}
        if grid == "sliding":
            found = theirs.batch_scores(model)
        else:
            found = {video: theirs.stream_scores(model, video) for video in [max(scores, key=lambda v: len(scores[v]))]}
        theirs_by_grid[grid] = found
        chunks = sum(map(len, found.values()))
        differences = [float(np.abs(found[video] - scores[video]).max()) for video in found]
        yield f"probabilities, {wanted}", max(differences), f"{chunks} chunks"
    apart = [np.abs(rows - theirs_by_grid["sliding"][video]).max() for video, rows in theirs_by_grid["fixed"].items()]
    yield "for scale: their stream from their batch evaluation", float(max(apart)), f"{chunks} chunks"


def compare_training(theirs: Theirs, train: Split, size: Size, steps: int) -> Iterator[tuple[str, float, str]]:
    """Yield differences of windows, features, learning rates, losses and weights in the first steps."""
    shape = {"d_model": size.width, "d_feedforward": size.width, "n_heads": size.heads, "dropout": 0}
    shape |= {"long_length": size.memory * FEATURES_PER_SECOND}
    model, config = resolve("thumos14-published", {f"model.{k}": str(v) for k, v in shape.items()}, train.dims)
    np.random.seed(0)
    data = theirs.part("datasets").build_dataset(theirs.cfg, "train")
    network, places = theirs.model().train(), {video.id: v for v, video in enumerate(train.videos)}
    lacking = _window_difference(data, train.videos, model)
    yield "windows of an epoch that one side lacks", lacking, f"{len(data)} windows"
    per_epoch = -(-len(data) // config.batch_size)
    training, again = (TheirTraining(theirs, one, per_epoch) for one in (network, _nudged(network)))
    learner = Learner(train.videos, THUMOS_CLASSES, model, config)
    learner.model.load_state_dict(
        checkpoint.load(theirs.cfg.MODEL.CHECKPOINT, _stated_settings(model)).model.state_dict()
    )
    rate = rates(config, config.epochs * per_epoch, per_epoch)
    gaps = dict.fromkeys(("features and masks of a batch", "rates (relative)", "losses"), 0.0)
    losses: list[float] = []
    random, order = np.random.default_rng(0), []
    for step in range(steps):
        if not order:
            data.shuffle()
            order = np.split(random.permutation(len(data)), range(config.batch_size, len(data), config.batch_size))
        chosen = order.pop(0)
        rgb, flow, hidden, target = torch.utils.data.default_collate([data[int(i)] for i in chosen])
        drawn = [(places[data.inputs[i][0]], data.inputs[i][2] - 1) for i in chosen]
        seen = _gathered(train.videos, drawn, model)
        theirs_seen = torch.cat([rgb, flow], -1)
        theirs_seen[:, : hidden.shape[1]].masked_fill_(hidden[..., None] != 0, 0)  # no slot of theirs attends to these
        pairs = ((theirs_seen, seen[0]), (hidden == 0, seen[1]))
        _widen(gaps, "features and masks of a batch", *(float((a.float() - b.float()).abs().max()) for a, b in pairs))
        lr = training.optimiser.param_groups[0]["lr"]
        loss = training.step(target, rgb, flow, hidden)
        again.step(target, rgb, flow, hidden)
        ours, *_ = learner.step(learner.make_batch(drawn), step, rate(step))
        _widen(gaps, "rates (relative)", abs(rate(step) / lr - 1))
        _widen(gaps, "losses", abs(ours - loss))
        losses.append(ours)
    for name, value in gaps.items():
        yield name, value, f"{steps} steps"
    yield "for scale: how far the loss fell", losses[0] - losses[-1], f"{steps} steps"
    many = f"{sum(p.numel() for p in network.parameters()):,} numbers"
    yield "weights after the last step", _largest_difference(network, learner.model), many
    yield "for scale: theirs after a change by one rounding", _largest_difference(network, again.network), many


class TheirTraining:
    """A published network with its optimiser, scheduler and loss."""

    def __init__(self, theirs: Theirs, network: torch.nn.Module, per_epoch: int):
        self.network = network
        self.optimiser = theirs.part("optimizers").build_optimizer(theirs.cfg, network)
        self.scheduler = theirs.part("optimizers").build_scheduler(theirs.cfg, self.optimiser, per_epoch)
        self.criterion = theirs.part("criterions").build_criterion(theirs.cfg, "cpu")["MCE"]

    def step(self, target: torch.Tensor, *inputs: torch.Tensor) -> float:
        """Train on one batch; return the loss."""
        loss = self.criterion(self.network(*inputs).reshape(-1, 22), target.reshape(-1, 22))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.scheduler.step()
        return loss.item()


@torch.no_grad()
def _nudged(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy with each weight moved by the smallest step of float32."""
    moved = copy.deepcopy(network)
    for tensor in moved.parameters():
        tensor.copy_(tensor.nextafter(torch.full_like(tensor, torch.inf)))
    return moved


def _largest_difference(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """Return the largest difference between the weights of two networks with the same names."""
    others = dict(other.named_parameters())
    return max(float((tensor - others[name]).detach().abs().max()) for name, tensor in one.named_parameters())


def _window_difference(data: Any, videos: list[LabelledVideo], model: Any) -> float:
    """Return how many windows only one of the two loaders has, from the same offsets."""
    np.random.seed(0)
    lengths, ours = {video.id: len(video.features) for video in videos}, set()
    for video in data.sessions:
        offset = int(np.random.randint(model.work_length))  # drawn as their loader draws them
        ours |= {(video, int(end)) for end in memory.window_ends(lengths[video], offset, model, tails=False)}
    return float(len(ours ^ {(one[0], one[2] - 1) for one in data.inputs}))


def _gathered(videos: list[LabelledVideo], drawn: list[tuple[int, int]], model: Any) -> tuple[torch.Tensor, ...]:
    windows = [gather(videos[v].features, [end], model, stretched=True) for v, end in drawn]
    rows = torch.cat([torch.cat([one.long, one.work], 1) for one in windows])
    return rows, torch.cat([one.long_mask for one in windows])


def _widen(gaps: dict[str, float], name: str, *values: float) -> None:
    gaps[name] = max(gaps[name], *values)


def _stated_settings(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in ("n_heads", "long_length", "dropout")}


def compare_metrics(theirs: Theirs) -> Iterator[tuple[str, float, str]]:
    """Yield the largest differences of a class on random scores with ambiguous chunks."""
    random = np.random.default_rng(1)
    on = np.repeat(random.integers(0, 22, 600), random.integers(2, 16, 600))
    targets, scores = np.eye(22)[on], random.random((len(on), 22))
    ours = per_frame(scores, targets, THUMOS_CLASSES)["per_class"]
    for what in ("AP", "cAP"):
        found = theirs.metric("perframe", what, scores, targets)["per_class_AP"]
        yield f"{what} of a class", max(abs(found[name] - ours[name][what]) for name in found), f"{len(on)} chunks"
    stages = theirs.metric("perstage", "cAP", scores, targets).values()
    apart = []
    for theirs_of, row in zip(stages, published_per_stage(scores, targets, THUMOS_CLASSES), strict=True):
        apart += [abs(theirs_of["per_class_AP"][name] - one["cAP"]) for name, one in row["per_class"].items()]
    yield "cAP of a class in a tenth of its actions", max(apart), f"{len(apart)} values"


def revision(source: Path) -> str:
    """Return the commit of a checkout, or `unknown`."""
    done = subprocess.run(["git", "-C", str(source), "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Compare, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("theirs", type=Path, help="a checkout of amazon-science/long-short-term-transformer")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    options = parser.parse_args()
    if not (options.theirs / "src" / PACKAGE).is_dir():
        raise SystemExit(f"{options.theirs} has no src/{PACKAGE}.\nhint: clone the repository that --help names.")
    size = SIZES[options.size]
    with tempfile.TemporaryDirectory() as folder:
        info = draw_videos(Path(folder), size)
        theirs = Theirs(options.theirs.resolve(), info, size)
        dataset = read_dataset(folder, info)
        train, test = dataset.split("training"), dataset.split("testing")
        rows = []
        for part in (
            compare_metrics(theirs),
            compare_inference(theirs, test, size),
            compare_training(theirs, train, size, options.steps),
        ):
            for what, difference, of in part:
                rows.append({"what": what, "largest_difference": difference, "of": of})
                print(f"| {what} | {difference:.1e} | {of} |", flush=True)
    record = json.loads(options.output.read_text()) if options.output.exists() else {"sizes": {}}
    record |= {**about_machine(), "their_commit": revision(options.theirs)}
    record["sizes"][options.size] = {"steps": options.steps, "rows": rows}
    write_json(options.output, record)


if __name__ == "__main__":
    main()
