"""Which models use their memory: the cue task (`recall_task.py`) by memory, stride and kind; writes recall.json.

    python benchmarks/recall.py                                  every row that recall.json lacks, and the figure
    python benchmarks/recall.py --rows memory-512 rnn --seeds 0 1 2
    python benchmarks/recall.py --list                           the rows, and which are done

A row is one model, trained on new videos at every step and scored at eight gaps between cue and action. The record is
written after each row, and a row in it is not run again. Every row of a seed sees the same videos. What is not named is
as in the paper's model, but for a width of 64.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import torch
from recall_task import WIDTH, CueTask, accuracy, carries, train_carrying, train_on

from lstr.chunk import FEATURES_PER_SECOND
from lstr.config import WindowConfig
from lstr.kinds import KINDS, change, configure
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.training.config import TrainConfig

HERE = Path(__file__).resolve().parent
RECORD, FIGURE = HERE / "recall.json", HERE.parent / "docs" / "images" / "recall.png"
GAPS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 500.0)  # seconds
SEEING = 136  # seconds of a window that holds the cue up to a gap of 128 s
TRAINING = {"lr": 1e-3, "warmup": 0.1, "batch_size": 16}
SMALL = {"rgb_dim": WIDTH, "flow_dim": WIDTH, "d_model": 64, "n_heads": 4, "d_feedforward": 64}

ONE = CueTask()
TWO = CueTask(cues=2, gaps=(4.0, 128.0))  # in training: the later cue is within 128 s of memory
APART = replace(TWO, gaps=(4.0, 64.0), apart=(16.0, 64.0))  # most often both are


@dataclass(frozen=True)
class Row:
    """One model of the study."""

    about: str
    kind: str = "lstr"
    memory: float = 128.0
    """seconds of long memory, of kinds that have one"""
    model: Mapping[str, object] = field(default_factory=dict)
    task: CueTask = ONE
    steps: int = 800
    carried: bool = False
    """Whether a window of training begins with the state that the one before it left"""

    def config(self) -> WindowConfig:
        """The kind's published settings, with what this row names."""
        sizes = {**SMALL, "long_length": round(self.memory * FEATURES_PER_SECOND), **self.model}
        return change(KINDS[self.kind].published_size, sizes)


def of_kind(kind: str, task: CueTask = ONE) -> Row:
    """A row of a kind as it is trained by default; some take longer than LSTR to find what a cue is for."""
    span = "128 s"
    if not KINDS[kind].uses.long_memory:
        span = f"windows of {Row('', kind).config().work_length / FEATURES_PER_SECOND:g} s"
    return Row(f"{kind}, {span}", kind, task=task, steps=1600)


def in_long_windows(kind: str, title: str, **model: object) -> Row:
    """A row of a recurrent kind that is trained on windows that hold the cue, which takes it longer."""
    model |= {"work_length": SEEING * FEATURES_PER_SECOND}
    return Row(f"{title}, windows of {SEEING} s", kind, model=model, steps=2000)


def with_carried_state(cell: str) -> Row:
    """A row of an RNN whose windows follow each other through a video: a seventeenth of them ends it, so more steps."""
    about = f"rnn ({cell}), windows of 8 s, carried on"
    return Row(about, "rnn", model={"cell": cell}, steps=16_000, carried=True)


LAPLACE = Row("testra, Laplace kernel, 128 s", "testra", model={"decay": 0.97}, steps=1600)
WITH_MEMORY = [name for name, kind in KINDS.items() if kind.uses.long_memory]
ROWS = {
    **{f"memory-{s}": Row(f"{s} s, stride 4" if s else "none", memory=s) for s in (0, 8, 32, 128, 512)},
    **{f"stride-{n}": Row(f"128 s, stride {n}", model={"long_stride": n}) for n in (1, 2, 8, 16)},
    **{kind: of_kind(kind) for kind in KINDS if kind != "lstr"},
    "testra-laplace": LAPLACE,
    **{f"rnn-{cell}-136s": in_long_windows("rnn", f"rnn ({cell})", cell=cell) for cell in ("lstm", "gru")},
    **{f"rnn-{cell}-carried": with_carried_state(cell) for cell in ("lstm", "gru")},
    "miniroad-136s": in_long_windows("miniroad", "miniroad"),
    **{f"two-cues-{kind}": of_kind(kind, TWO) for kind in WITH_MEMORY},
    "two-cues-testra-laplace": replace(LAPLACE, task=TWO),
    "two-cues-lstr-longer": Row("lstr, 128 s, 5,000 steps", task=TWO, steps=5000),
    "two-cues-lstr-apart": Row("lstr, 128 s, cues 16 to 64 s apart", task=APART, steps=1600),
}
ONE_CUE = [name for name, row in ROWS.items() if row.kind != "lstr" and row.task.cues == 1]
PANELS = {
    "LSTR by length of the long memory": [name for name in ROWS if name.startswith("memory-")],
    "LSTR by stride": ["stride-1", "stride-2", "memory-128", "stride-8", "stride-16"],
    "other kinds with a long memory": [name for name in ONE_CUE if KINDS[ROWS[name].kind].uses.long_memory],
    "kinds that carry a state on": [name for name in ONE_CUE if carries(ROWS[name].kind)],
    "kinds of windows": [
        name for name in ONE_CUE if not carries(ROWS[name].kind) and not KINDS[ROWS[name].kind].uses.long_memory
    ],
    "two cues, of which the later counts": [name for name, row in ROWS.items() if row.task.cues == 2],
}


def run_row(row: Row, seed: int, videos: int) -> dict:
    """Train a row's model and score it: its entry of the record."""
    config, task, start = row.config(), row.task, perf_counter()
    train = train_carrying if row.carried else train_on
    model, losses = train(task, config, TrainConfig(**TRAINING, seed=seed, max_steps=row.steps))
    trained = perf_counter()
    found = []
    for gap in GAPS:
        share = accuracy(model, task, gap, videos, seed)
        low, high = interval(share, videos)
        seen = task.sees(config, gap)
        found.append({"gap": gap, "accuracy": share, "interval": [low, high], "in_memory": seen})
    return {
        "about": row.about,
        "steps": row.steps,
        "final_loss": round(float(np.mean(losses[-50:])), 4),
        "gaps": found,
        "videos": videos,
        "seconds": {"train": round(trained - start, 1), "score": round(perf_counter() - trained, 1)},
        "model": changed(config),
    }


@contextmanager
def denormals_as_zeros() -> Iterator[None]:
    """Gradients through long windows of noise come to numbers that small, which take long to compute with."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def changed(config: WindowConfig) -> dict:
    """What a model has otherwise than by default."""
    plain = asdict(configure())
    return {name: value for name, value in asdict(config).items() if value != plain.get(name)}


def interval(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % of a share of n trials (Wilson)."""
    centre, spread = share + z * z / (2 * n), z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return round((centre - spread) / (1 + z * z / n), 4), round((centre + spread) / (1 + z * z / n), 4)


def begin_record(path: Path) -> dict:
    """The record to add rows to. Exits where the one at `path` is of another task."""
    made_of = json.loads(json.dumps({"task": asdict(CueTask()), "training": TRAINING}))
    if not path.exists():
        return {**about_machine(), "threads": torch.get_num_threads(), **made_of, "rows": {}}
    record = json.loads(path.read_text())
    if any(record.get(name) != value for name, value in made_of.items()):
        raise SystemExit(f"{path} is of another task or training.\nhint: choose another file with -o.")
    return record


def draw(record: dict, path: Path) -> None:
    """Accuracy against gap, a line for each seed; hollow where not all of the cue is in the memory."""
    figure, panels = plt.subplots(3, 2, figsize=(11, 11.4), sharex=True, sharey=True)
    for panel, (title, names) in zip(panels.flat, PANELS.items(), strict=True):
        colours = plt.colormaps["tab10" if len(names) <= 10 else "tab20"].colors
        for name, colour in zip(names, colours, strict=False):
            for seed, entry in record["rows"].get(name, {}).items():
                shares = [one["accuracy"] for one in entry["gaps"]]
                label = entry["about"] if seed == min(record["rows"][name]) else None
                panel.plot(GAPS, shares, linewidth=1.4, label=label, color=colour)
                for gap, share, one in zip(GAPS, shares, entry["gaps"], strict=True):
                    face = colour if one["in_memory"] else "white"
                    panel.plot(gap, share, "o", markersize=5, color=colour, markerfacecolor=face)
        panel.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
        panel.set(xscale="log", title=title, ylim=(0.1, 1.04))
        panel.set_xticks(GAPS, [f"{gap:g}" for gap in GAPS])
        panel.minorticks_off()
        panel.grid(alpha=0.2)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7.5, loc="lower left", ncols=2)
    for panel in panels[-1]:
        panel.set_xlabel("seconds from the cue's end to the action")
    for panel in panels[:, 0]:
        panel.set_ylabel("actions called right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing in the record, then draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, help="of every row; default: 800, of other kinds 1,600 and 2,000")
    parser.add_argument("--videos", type=int, default=200, help="scored at each gap")
    parser.add_argument("--list", action="store_true", help="name the rows, and leave")
    parser.add_argument("-o", "--output", type=Path, default=RECORD)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args(arguments)
    record = begin_record(options.output)
    if options.list:
        for name, row in ROWS.items():
            print(f"{name}: {row.about}; seeds done: {' '.join(record['rows'].get(name, {})) or 'none'}")
        return
    for seed in options.seeds:
        for name in options.rows:
            done = record["rows"].setdefault(name, {})
            if str(seed) not in done:
                row = replace(ROWS[name], steps=options.steps or ROWS[name].steps)
                with denormals_as_zeros():
                    done[str(seed)] = entry = run_row(row, seed, options.videos)
                record["rows"] = {row: record["rows"][row] for row in ROWS if record["rows"].get(row)}
                write_json(options.output, record)
                shares = " ".join(f"{one['gap']:g} s {one['accuracy']:.2f}" for one in entry["gaps"])
                print(f"{name}, seed {seed}: {shares} ({sum(entry['seconds'].values()):.0f} s)", flush=True)
    draw(record, options.figure)


if __name__ == "__main__":
    main()
