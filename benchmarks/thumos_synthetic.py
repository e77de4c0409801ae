"""LSTR and its baselines on synthetic features over THUMOS'14's real label sequences; writes thumos-synthetic.json.

    python benchmarks/thumos_synthetic.py SHARED/data/thumos14 --rows none            the oracles alone, minutes
    python benchmarks/thumos_synthetic.py SHARED/data/thumos14                        the reduced study, on a CPU
    python benchmarks/thumos_synthetic.py SHARED/data/thumos14 --device cuda -o FILE  every row at full size
    … --rows memory-0 memory-512 rnn --seeds 0 1 2                                    some rows, some seeds

`synthetic_features.py` draws the features of the training videos anew in each epoch; the labels stay. Every tenth
training video is held out: it ends a row early and chooses its weights, and settings are tuned on it. `oracle.py` says
beforehand what can be called from a chunk, from the last seconds, and from all that came before. The record is written
after each row, and a row in it is not run again. Every row takes the same seed's windows in the same order.
"""

import argparse
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from oracle import Oracle
from regularised import plain, regularised_by
from synthetic_features import Generator, read_targets

from lstr.batch import predict
from lstr.config import WindowConfig
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.models.kind import Model
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.evaluation.findings import THUMOS
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.batches import PieceMaker, default_readers, read_ahead
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.ranks import ALONE
from lstr.pipelines.training.sampling import count_steps, draw_windows, epoch_steps
from lstr.pipelines.training.schedule import rates
from lstr.pipelines.training.step import Learner

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
AGAINST_HEART: dict[str, dict[str, str]] = {
    "hide-80": {"train.hide_long": "0.8"},
    "stride-4-s": {"long_stride": "16"},
    "drop-50": {"memory.drop": "0.5"},
    "mean-free": {"memory.mean_free": "true"},
    "queries-1": {"n0": "1", "n1": "1"},
}
"""What keeps a memory of 128 s from learning videos by heart; `memory.x` is of benchmarks/regularised.py."""
AGAINST_HEART = {f"memory-128-{name}": {"long_length": "512", **row} for name, row in AGAINST_HEART.items()}
EVERY = ROWS | AGAINST_HEART
REDUCED = (PROPOSED, "memory-0", "rnn", "memory-8", "memory-128", "integration-average", "encoder-one-stage")

ORACLES: dict[str, int | None] = {"oracle-1": 1, "oracle-8": 8, "oracle-32": 32, "oracle-all": None}
"""Chunks that each oracle looks back on; 32 is all that a model without long memory sees."""
QUOTED = {PROPOSED: ("LSTR", "Kinetics"), "trn": ("TRN", "Kinetics")}
"""Rows for which a figure on real features could be checked: method and features in `pipelines.evaluation.findings`."""
RESAMPLES = 200  # of the test videos, the same for every row, so that rows can be compared pair by pair
HELD_OUT = 10  # every so many-th training video
VALIDATION, TESTING, TRAINED = 1_000_000, 1_000_001, 1_000_002  # the epochs that videos to score are drawn in
NOTHING = torch.zeros(1), torch.ones(1)  # statistics that change no feature
Targets = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """How large a study is. Everything else is the `thumos14` preset: the paper's protocol."""

    width: int = 1024
    rgb: int = 2048
    flow: int = 1024
    epochs: int = 25
    patience: int = 5
    lr: float = 5e-5
    precision: str = "float32"

    def changes(self) -> dict[str, str]:
        """As `resolve` takes them."""
        shape = {"d_model": self.width, "d_feedforward": self.width, "n_heads": max(1, min(16, self.width // 32))}
        train = {"epochs": self.epochs, "lr": self.lr, "precision": self.precision}
        return {f"model.{k}": str(v) for k, v in shape.items()} | {f"train.{k}": str(v) for k, v in train.items()}


# Full size on a GPU in 40 minutes, by arithmetic and not measured: 20 rows of 4,030 steps (403 an epoch) at 12 ms, in
# which Python launches a step of 2 to 3 ms, are 16 minutes, and the test videos of a row may take a minute.
FULL, SMALL = Size(epochs=10, precision="bf16"), Size(width=64, rgb=64, flow=32, epochs=8, patience=4, lr=3e-3)
MINUTES = 40.0  # on a GPU, which is lent


@dataclass(frozen=True)
class Videos:
    """The labels of a study, and the videos that every row is scored on."""

    generator: Generator
    training: Targets
    validation: list[LabelledVideo]
    testing: list[LabelledVideo]

    @property
    def trained(self) -> list[LabelledVideo]:
        """The labels that rows are trained on, with features that no row was trained on."""
        return self.generator.draw(self.training, TRAINED)


def make_videos(published: Path, generator: Generator) -> Videos:
    """All videos of a folder with target_perframe/, every HELD_OUT-th training video held out."""
    found = read_targets(published)
    names = list(found["training"])
    held = {name: found["training"][name] for name in names[HELD_OUT - 1 :: HELD_OUT]}
    trained = {name: rows for name, rows in found["training"].items() if name not in held}
    drawn = generator.draw(held, VALIDATION), generator.draw(found["testing"], TESTING)
    return Videos(generator, trained, *drawn)


def settings(row: str, seed: int, size: Size) -> tuple[WindowConfig, TrainConfig]:
    """Model and training of a row."""
    changes = {name if "." in name else f"model.{name}": value for name, value in EVERY[row].items()}
    return resolve("thumos14", {**size.changes(), "train.seed": str(seed), **plain(changes)}, (size.rgb, size.flow))


def run_row(row: str, seed: int, size: Size, videos: Videos, device: str, readers: int | None) -> dict:
    """Train a row and score the test videos: its entry of the record."""
    model, config = settings(row, seed, size)
    start = perf_counter()
    with regularised_by(EVERY[row]):
        trained, history = train_row(model, config, size.patience, videos, device, readers or default_readers())
        seconds = perf_counter() - start
        scored = [measures(scores_of(trained, which), which) for which in (videos.testing, videos.trained)]
    return {
        "row": row,
        "seed": seed,
        **scored[0],
        "mAP_of_training_labels": scored[1]["mAP"],
        "epochs": history,
        "parameters": sum(p.numel() for p in trained.parameters()),
        "seconds": {"train": round(seconds, 1), "score": round(perf_counter() - start - seconds, 1)},
        "device": device,
    }


def train_row(
    model: WindowConfig, config: TrainConfig, patience: int, videos: Videos, device: str, readers: int
) -> tuple[Model, list[dict]]:
    """The weights of the epoch that is best on the videos held out, and what each epoch came to."""
    learner = Learner(model, config, THUMOS_CLASSES, NOTHING, device, ALONE)
    fresh = videos.generator.draw(videos.training, 0)
    rate = rates(config, count_steps(fresh, model, config), epoch_steps(fresh, model, config))
    history: list[dict] = []
    best, step = copy.deepcopy(learner.model.state_dict()), 0
    for epoch in range(config.epochs):
        fresh = videos.generator.draw(videos.training, epoch)
        drawn = draw_windows(fresh, model, config, epoch)
        jobs = [drawn[at : at + config.batch_size] for at in range(0, len(drawn), config.batch_size)]
        make, losses = PieceMaker(fresh, model, config, learner.outputs, ALONE, learner.device), []
        for batch in read_ahead(jobs, make, readers):
            losses.append(learner.step(batch, step, rate(step))[0])
            step += 1
        scores = scores_of(learner.model.eval(), videos.validation)
        learner.model.train()
        found = measures(scores, videos.validation)["mAP"]
        if found > max((one["validation"] for one in history), default=-1.0):
            best = copy.deepcopy(learner.model.state_dict())
        history.append({"loss": round(float(np.mean(losses)), 4), "validation": found})
        if epoch - int(np.argmax([one["validation"] for one in history])) >= patience:
            break
    learner.model.load_state_dict(best)
    return learner.model.eval(), history


def scores_of(model: Model, videos: list[LabelledVideo]) -> list[np.ndarray]:
    """Scores (L, C) of each video."""
    return [predict(model, video.features[:]).numpy() for video in videos]


def measures(scores: list[np.ndarray], videos: list[LabelledVideo]) -> dict:
    """mAP, mcAP and AP a class, rounded; mAP of each resample of the videos, and the interval they give."""
    targets = [video.targets for video in videos]
    result = metrics.per_frame(np.concatenate(scores), np.concatenate(targets), THUMOS_CLASSES)
    draws = bootstrap.draw(len(videos), RESAMPLES)
    means = bootstrap.resampled_means(scores, targets, THUMOS_CLASSES, draws)
    return {
        "mAP": round(result["mAP"], 5),
        "mcAP": round(result["mcAP"], 5),
        "AP": {name: round(entry["AP"], 5) for name, entry in result["per_class"].items()},
        "interval": [round(edge, 5) for edge in bootstrap.interval(means)],
        "resampled_mAP": [round(float(mean), 5) for mean in means],
    }


def oracles(published: Path, videos: Videos) -> Iterator[tuple[str, dict]]:
    """What each oracle scores on the very videos that the rows are scored on."""
    oracle = Oracle(videos.generator, read_targets(published)["training"])
    evidence = [videos.generator.evidence(video) for video in videos.testing]
    for name, n in ORACLES.items():
        yield name, {"chunks": n, **measures(oracle.scores(evidence, n), videos.testing)}


def begin_record(path: Path, made_of: dict) -> dict:
    """The record to add rows to. Exits where the one at `path` is of something else."""
    if not path.exists():
        return {**about_machine(), **made_of, "oracles": {}, "rows": []}
    record = json.loads(path.read_text())
    other = [name for name, value in made_of.items() if record.get(name) != json.loads(json.dumps(value))]
    if other:
        raise SystemExit(f"{path} was made with another {' and '.join(other)}.\nhint: choose another file with -o.")
    return record


def table(record: dict) -> str:
    """The rows in Markdown: mAP, its interval, and the lead over memory-0, or of an oracle over that of 32 chunks."""
    by_row: dict[str, list[dict]] = {name: [entry] for name, entry in record["oracles"].items()}
    for entry in record["rows"]:
        by_row.setdefault(entry["row"], []).append(entry)
    quoted = {(entry["method"], entry["features"]): entry["value"] for entry in THUMOS["rows"]}
    lines = [
        "| row | mAP | 95 % interval | lead over 8 s | seeds | real features, quoted |",
        "|---|---|---|---|---|---|",
    ]
    for name, entries in by_row.items():
        mean, drawn = np.mean([e["mAP"] for e in entries]), resampled(entries)
        base = by_row.get("oracle-32" if name in ORACLES else "memory-0")
        lead = ""
        if base and base is not entries:
            low, high = bootstrap.interval(drawn - resampled(base))
            lead = f"{mean - np.mean([e['mAP'] for e in base]):+.3f} ({low:+.3f} to {high:+.3f})"
        elsewhere = quoted[QUOTED[name]] / 100 if name in QUOTED else ""
        spread = "{:.3f} to {:.3f}".format(*bootstrap.interval(drawn))
        lines.append(f"| {name} | {mean:.3f} | {spread} | {lead} | {len(entries)} | {elsewhere} |")
    return "\n".join(lines)


def resampled(entries: list[dict]) -> np.ndarray:
    """mAP of each resample, the mean over seeds."""
    return np.mean([e["resampled_mAP"] for e in entries], axis=0)


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
    """Run the oracles and the rows that the record lacks, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("published", type=Path, help="folder with THUMOS'14's target_perframe/")
    groups = {"all": tuple(ROWS), "reduced": REDUCED, "against-heart": tuple(AGAINST_HEART), "none": ()}
    choices = [*EVERY, *groups]
    parser.add_argument("--rows", nargs="+", choices=choices, metavar="ROW", help=", ".join(choices))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="cpu")
    for name, value in asdict(SMALL).items():
        parser.add_argument(f"--{name}", type=type(value), help=f"default: {value}, on cuda {getattr(FULL, name)}")
    parser.add_argument("--minutes", type=float, help=f"begin no row that would end later; default on cuda {MINUTES:g}")
    parser.add_argument("--readers", type=int, help="threads that make features ahead")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("thumos-synthetic.json"))
    options = parser.parse_args(arguments)
    cuda = options.device.startswith("cuda")
    chosen = {name: value for name in asdict(FULL) if (value := getattr(options, name)) is not None}
    size = replace(FULL if cuda else SMALL, **chosen)
    rows = options.rows or ["all" if cuda else "reduced"]
    rows = list(groups.get(rows[0], rows))
    generator = Generator(rgb=size.rgb, flow=size.flow)
    made_of = {
        "what": "synthetic features on THUMOS'14 labels",
        "generator": generator.settings(),
        "size": asdict(size),
    }
    record = begin_record(options.output, made_of)
    videos = make_videos(options.published, generator)
    record["videos"] = [len(videos.training), len(videos.validation), len(videos.testing)]
    record["quoted"] = THUMOS
    if not record["oracles"]:
        record["oracles"] = dict(oracles(options.published, videos))
        write_json(options.output, record)
    until = Until(options.minutes or (MINUTES if cuda else None))
    for seed in options.seeds:
        for row in rows:
            if any((entry["row"], entry["seed"]) == (row, seed) for entry in record["rows"]):
                continue
            if not until.lets_begin():
                print(f"no time for {row} seed {seed}: the same command goes on with it", flush=True)
                continue
            entry = run_row(row, seed, size, videos, options.device, options.readers)
            record["rows"].append(entry)
            record["rows"].sort(key=lambda one: (list(EVERY).index(one["row"]), one["seed"]))
            record["threads"] = torch.get_num_threads()
            write_json(options.output, record)
            until.count()
            print(f"{row} seed {seed}: mAP {entry['mAP']:.3f}", flush=True)
    print(table(record))


if __name__ == "__main__":
    main()
