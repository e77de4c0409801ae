"""LSTR and its baselines on synthetic features over THUMOS'14's real label sequences; writes thumos-synthetic.json.

    python benchmarks/thumos_synthetic.py SHARED/data/thumos14 --work WORK                  the reduced study, on a CPU
    python benchmarks/thumos_synthetic.py SHARED/data/thumos14 --work WORK --device cuda    every row at full size
    … --rows memory-0 memory-512 rnn --seeds 0 1 2                                          some rows, some seeds
    … --device cuda --epochs 25 --precision float32                                         as the paper, hours

Training, features from disk and whole-video evaluation are the project's own; `synthetic_features.py` makes the
features. The record is written after each row, and a row in it is not run again; a row that was stopped goes on from
its last save, from which its seconds then count. Every row takes the same seed's windows in the same order.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from held_out import running_mean
from synthetic_features import Generator, write_features

from lstr import bootstrap, metrics
from lstr.checkpoint import load
from lstr.config import LSTRConfig
from pipelines.datasets.dataset import LabelledVideo, Split, read_dataset
from pipelines.evaluation.published_results import THUMOS
from pipelines.evaluation.scoring import score_split
from pipelines.files.json_files import write_json
from pipelines.progress import result_of
from pipelines.provenance import about_machine
from pipelines.training.config import TrainConfig, resolve
from pipelines.training.run import Task, train_model

PROPOSED = "memory-512"  # the paper's model
ROWS: dict[str, dict[str, str]] = {
    "memory-0": {"long_length": "0"},
    "memory-8": {"long_length": "32"},
    "memory-32": {"long_length": "128"},
    "memory-128": {"long_length": "512"},
    PROPOSED: {},
    "encoder-one-stage": {"encoder": "one-stage"},
    "encoder-stage2-self-attention": {"encoder": "stage2-self-attention"},
    "encoder-self-attention": {"encoder": "self-attention"},
    "encoder-projection": {"encoder": "projection"},
    "encoder-none": {"encoder": "none"},
    "encoder-joined": {"encoder": "joined"},
    "integration-average": {"integration": "average"},
    "integration-concatenation": {"integration": "concatenation"},
    "integration-mlp": {"integration": "mlp"},
    "stride-1": {"long_stride": "1"},
    "stride-16": {"long_stride": "16"},
    "stride-64": {"long_stride": "64"},
    "rnn": {"kind": "rnn"},
    "trn": {"kind": "trn"},
    "lfb": {"kind": "lfb"},
}
"""What each row changes of the paper's model: 512 s at stride 4, two-stage encoder, cross-attention."""
REDUCED = (PROPOSED, "memory-0", "rnn", "memory-8", "memory-128", "integration-average", "encoder-one-stage")

QUOTED = {PROPOSED: ("LSTR", "Kinetics"), "trn": ("TRN", "Kinetics")}
"""Rows for which a figure on real features could be checked: method and features in published_results."""

RESAMPLES = 200  # of the test videos, the same for every row, so that rows can be compared pair by pair
RIDGE = 1e3  # penalty of the linear classifiers, on features of unit variance
EVERY = 4  # training chunks the linear classifiers see, of neighbours that are almost alike


@dataclass(frozen=True)
class Size:
    """How large a study is. Everything else is the `thumos14` preset: the paper's protocol."""

    width: int = 1024
    epochs: int = 25
    lr: float = 5e-5
    precision: str = "float32"

    def changes(self) -> dict[str, str]:
        """As `resolve` takes them."""
        shape = {"d_model": self.width, "d_feedforward": self.width, "n_heads": max(1, min(16, self.width // 32))}
        train = {"epochs": self.epochs, "lr": self.lr, "precision": self.precision}
        return {f"model.{k}": str(v) for k, v in shape.items()} | {f"train.{k}": str(v) for k, v in train.items()}


# Full size on a GPU in 40 minutes, by arithmetic and not measured: 20 rows of 4,030 steps (403 an epoch) at 12 ms, in
# which Python launches a step of 2 to 3 ms, are 16 minutes, and the test videos of a row may take a minute.
FULL, SMALL = Size(epochs=10, precision="bf16"), Size(width=128, epochs=2, lr=1e-3, precision="bf16")
MINUTES = 40.0  # on a GPU, which is lent


def settings(row: str, seed: int, size: Size, dims: tuple[int, int]) -> tuple[LSTRConfig, TrainConfig]:
    """Model and training of a row."""
    changes = {f"model.{name}": value for name, value in ROWS[row].items()}
    return resolve("thumos14", {**size.changes(), "train.seed": str(seed), **changes}, dims)


def run_row(
    row: str, seed: int, size: Size, splits: tuple[Split, Split], work: Path, device: str, readers: int | None
) -> dict:
    """Train a row and score the test videos: its entry of the record."""
    training, testing = splits
    model, config = settings(row, seed, size, training.dims)
    run = work / f"{row}-{seed}"
    start, steps = perf_counter(), []
    resume = (run / "resume.pt").exists()
    for step in train_model(Task(training, model, config), run, device, resume, readers):
        steps.append(step)
        if sys.stderr.isatty():
            print(f"  {row}: step {step.step} of {step.steps}, loss {step.loss:.3f} ", end="\r", file=sys.stderr)
    seconds = perf_counter() - start
    loaded = load(run / "checkpoint.pt")
    loaded.model.to(device)
    result = result_of(score_split(loaded, testing))
    return {
        "row": row,
        "seed": seed,
        **measures(result.document["lstr"]),
        **intervals(result.scores, testing),
        "final_loss": float(np.mean([step.loss for step in steps[-10:]])) if steps else None,
        "parameters": sum(p.numel() for p in loaded.model.parameters()),
        "steps": steps[-1].steps if steps else None,
        "seconds": {"train": round(seconds, 1), "evaluate": result.document["seconds"]},
        "waiting": round(float(np.mean([step.waiting for step in steps])), 4) if steps else None,
        "device": device,
        "model": asdict(model),
    }


def measures(result: dict) -> dict:
    """mAP, mcAP and AP a class, rounded to what a table shows and a little more."""
    per_class = {name: round(entry["AP"], 5) for name, entry in result["per_class"].items()}
    return {"mAP": round(result["mAP"], 5), "mcAP": round(result["mcAP"], 5), "AP": per_class}


def intervals(scores: list[np.ndarray], split: Split) -> dict:
    """mAP of each resample of the test videos, and the interval they give."""
    draws = bootstrap.draw(len(split.videos), RESAMPLES)
    targets = [video.targets for video in split.videos]
    means = bootstrap.resampled_means(scores, targets, split.labels.classes, draws)
    return {
        "interval": [round(edge, 5) for edge in bootstrap.interval(means)],
        "resampled_mAP": [round(float(mean), 5) for mean in means],
    }


def ridge_scores(training: list[LabelledVideo], testing: list[LabelledVideo], n: int, skip: int) -> list[np.ndarray]:
    """Ridge regression of targets on the mean of the last n chunks, those of class `skip` left out: (L, C) a video."""
    width, classes = training[0].features[:1].shape[1] + 1, training[0].targets.shape[1]
    inner, outer = np.zeros((width, width)), np.zeros((width, classes))
    for video in training:
        seen = np.flatnonzero(video.targets[:, skip] == 0)[::EVERY]
        rows = with_ones(running_mean(video.features[:], n).astype(np.float32))[seen]
        inner += rows.T @ rows
        outer += rows.T @ video.targets[seen].astype(np.float32)
    weights = np.linalg.solve(inner + RIDGE * np.eye(width), outer).astype(np.float32)
    return [with_ones(running_mean(video.features[:], n).astype(np.float32)) @ weights for video in testing]


def with_ones(rows: np.ndarray) -> np.ndarray:
    """Rows (L, D + 1) for a model with a constant."""
    return np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)


def baselines(training: Split, testing: Split) -> dict:
    """What needs no memory: the class prior, and linear classifiers on one chunk and on the mean of the last ones."""
    counted = [video.targets for video in training.videos]
    classes = testing.labels.classes
    truth = np.concatenate([video.targets for video in testing.videos])
    systems = {"chance": [metrics.chance(counted, len(video.targets)) for video in testing.videos]}
    for name, n in (("ridge-1-chunk", 1), ("ridge-8-chunks", 8), ("ridge-32-chunks", 32)):
        systems[name] = ridge_scores(training.videos, testing.videos, n, classes.index("Ambiguous"))
    return {
        name: {
            **measures(metrics.per_frame(np.concatenate(scores), truth, classes)),
            **(intervals(scores, testing) if name != "chance" else {}),
        }
        for name, scores in systems.items()
    }


def begin_record(path: Path, made_of: dict) -> dict:
    """The record to add rows to. Exits where the one at `path` is of something else."""
    if not path.exists():
        return {**about_machine(), **made_of, "baselines": {}, "rows": []}
    record = json.loads(path.read_text())
    other = [name for name, value in made_of.items() if record.get(name) != json.loads(json.dumps(value))]
    if other:
        raise SystemExit(f"{path} was made with another {' and '.join(other)}.\nhint: choose another file with -o.")
    return record


def table(record: dict) -> str:
    """The rows in Markdown: mAP with its interval, and the difference to the paper's model on the same resamples."""
    by_row: dict[str, list[dict]] = {}
    for entry in record["rows"]:
        by_row.setdefault(entry["row"], []).append(entry)
    reference = by_row.get(PROPOSED)
    quoted = {(entry["method"], entry["features"]): entry["value"] for entry in THUMOS["rows"]}
    lines = [
        "| row | mAP | 95 % interval | against memory-512 | seeds | real features, quoted |",
        "|---|---|---|---|---|---|",
    ]
    for name, entry in record["baselines"].items():
        by_row[name] = [entry]
    for name, entries in by_row.items():
        mean, drawn = np.mean([e["mAP"] for e in entries]), resampled(entries)
        spread, difference = "", ""
        if drawn is not None:
            spread = "{:.3f} to {:.3f}".format(*bootstrap.interval(drawn))
            if reference and name != PROPOSED:
                low, high = bootstrap.interval(drawn - resampled(reference))
                difference = f"{mean - np.mean([e['mAP'] for e in reference]):+.3f} ({low:+.3f} to {high:+.3f})"
        elsewhere = quoted[QUOTED[name]] / 100 if name in QUOTED else ""
        lines.append(f"| {name} | {mean:.3f} | {spread} | {difference} | {len(entries)} | {elsewhere} |")
    return "\n".join(lines)


def resampled(entries: list[dict]) -> np.ndarray | None:
    """mAP of each resample, the mean over seeds."""
    return np.mean([e["resampled_mAP"] for e in entries], axis=0) if "resampled_mAP" in entries[0] else None


class Until:
    """The time that a study has: a row begins only where one as long as the longest so far would end in time."""

    def __init__(self, minutes: float | None):
        self.end = None if minutes is None else perf_counter() + 60 * minutes
        self.longest, self.begun = 0.0, 0.0

    def lets_begin(self) -> bool:
        """Whether a row may begin now."""
        self.begun = perf_counter()
        return self.end is None or self.begun + self.longest < self.end

    def count(self) -> None:
        """The row that began last has ended."""
        self.longest = max(self.longest, perf_counter() - self.begun)


def main(arguments: list[str] | None = None) -> None:
    """Make the features that are missing, run what is missing in the record, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("published", type=Path, help="folder with THUMOS'14's target_perframe/")
    parser.add_argument("--work", type=Path, required=True, help="folder for features (2.6 GB) and runs")
    parser.add_argument("--rows", nargs="+", choices=[*ROWS, "all", "reduced"], metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="cpu")
    for name, kind in (("width", int), ("epochs", int), ("lr", float), ("precision", str)):
        parser.add_argument(
            f"--{name}", type=kind, help=f"default: {getattr(SMALL, name)}, on cuda {getattr(FULL, name)}"
        )
    parser.add_argument("--minutes", type=float, help=f"begin no row that would end later; default on cuda {MINUTES:g}")
    parser.add_argument("--readers", type=int, help="threads that read features ahead")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("thumos-synthetic.json"))
    options = parser.parse_args(arguments)
    cuda = options.device.startswith("cuda")
    chosen = {name: value for name in asdict(FULL) if (value := getattr(options, name)) is not None}
    size = Size(**asdict(FULL if cuda else SMALL) | chosen)
    rows = options.rows or ["all" if cuda else "reduced"]
    rows = list(ROWS) if "all" in rows else list(REDUCED) if rows == ["reduced"] else rows
    generator = Generator()
    made_of = {"what": "synthetic features on THUMOS'14 labels", "generator": asdict(generator), "size": asdict(size)}
    record = begin_record(options.output, made_of)
    info = write_features(options.work / "features", options.published, generator)
    dataset = read_dataset(options.work / "features", info)
    splits = dataset.split("training"), dataset.split("testing")
    record["videos"] = [len(split.videos) for split in splits]
    record["chunks"] = [split.n_chunks for split in splits]
    record["quoted"] = THUMOS
    until = Until(options.minutes or (MINUTES if cuda else None))
    for seed in options.seeds:
        for row in rows:
            if any((entry["row"], entry["seed"]) == (row, seed) for entry in record["rows"]):
                continue
            if not until.lets_begin():
                print(f"no time for {row} seed {seed}: the same command goes on with it", flush=True)
                continue
            runs = options.work / "runs" / f"{size.width}-{size.epochs}-{size.lr}-{size.precision}"
            record["rows"].append(run_row(row, seed, size, splits, runs, options.device, options.readers))
            record["threads"] = torch.get_num_threads()
            write_json(options.output, record)
            until.count()
            print(f"{row} seed {seed}: mAP {record['rows'][-1]['mAP']:.3f}", flush=True)
    if not record["baselines"]:
        record["baselines"] = baselines(*splits)
    write_json(options.output, record)
    print(table(record))


if __name__ == "__main__":
    main()
