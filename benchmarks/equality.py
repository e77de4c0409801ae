"""Compare the results of two commits: features, training, finetuning, learning, detection and evaluation.

    python benchmarks/equality.py record TREE -o before.json       about two minutes on two cores
    python benchmarks/equality.py compare before.json after.json

TREE is a checkout. Its code runs through its commands and `import lstr` only, so modules may move between commits. The
comparison is by SHA-256 of arrays, tensors and JSON entries (benchmarks/fingerprints.py), on one machine, with one
torch thread, fixed seeds, and an empty home folder. Choices that depend on the machine are fixed here: precisions, and
the plan of `lstr learn`, which without --time depends only on settings and the number of threads. `compare` lists the
differences and does not explain them.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import av
import numpy as np
from fingerprints import Parts, file_content, lines_parts

FORMAT = "lstr-equality/1"
KINDS = Path(__file__).with_name("equality_kinds.py")
LIBRARIES = ("torch", "torchvision", "numpy", "openvino", "av", "decord", "opencv-contrib-python", "scikit-learn")
NOT_PASSED_ON = ("LSTR_CHECKPOINT", "LSTR_DECODER", "LSTR_DEBUG", "RANK", "WORLD_SIZE", "LOCAL_RANK")
SHARED = Path(__file__).resolve().parents[2] / "shared"
NAMED = 4  # parts that differ are names_text, at most
WHERE = "import lstr, lstr_cli; print(lstr.__file__); print(lstr_cli.__file__)"

VIDEOS = {"fall-14": "training", "fall-16": "training", "fall-18": "training", "fall-15": "testing"}
"""About two seconds each, by subset"""
SHORTEST = "fall-16"
"""The shortest of them"""
CLASSES = ("falling", "lying")
FEATURE_VIDEOS = {f"video-{n}": subset for n, subset in enumerate(["training"] * 4 + ["validation", "testing"])}
WIDTHS = {"rgb_kinetics_resnet50": 48, "flow_kinetics_bninception": 24}
CHUNKS = 72  # of a video of features, 18 s


@dataclass(frozen=True)
class Job:
    """A command and the results that are compared."""

    name: str
    words: str
    """The command line, run in a folder with the inputs; `python FILE …` for a script"""
    results: str = ""
    """Patterns of the files that are compared"""
    apart: str = ""
    """Which files make separate items: each `suffix`, each `folder`, or empty for one item"""
    piped: str = ""
    """File for standard input"""
    lines: bool = False
    """Whether standard output is JSON lines to compare"""
    document: str = ""
    """File for standard output, which is compared"""


SMALL = "--set model.d_model=32 --set model.n_heads=4 --set model.d_feedforward=32 --set train.batch_size=4"
LEARNING = "--set train.epochs=6 --set train.lr=0.003 --eval-every 2"
TRAINED = {
    "lstr": "--preset lstr-small --set model.long_length=64 --set model.anticipation=2",
    "rnn": "--preset small",  # earlier name of rnn-small, which both commits accept
    "testra": "--preset testra-thumos14 --set model.long_length=32 --set model.n0=4 --set model.n1=4",
    "miniroad": "--preset miniroad-thumos14 --set model.work_length=16",
}
TINY = "--set epochs=1 --set draws=48 --set precision=float32"
EVENTS = "--on 0.34 --off 0.335 --min-length 0.5"
LABELLED = "features --labels features.json"


def jobs() -> list[Job]:
    """Return all jobs, ordered so that each finds its inputs."""
    training = [
        Job(
            f"train {kind}",
            f"train {LABELLED} -o run-{kind} {words} {SMALL} {LEARNING} --set train.seed=5",
            f"run-{kind}/checkpoint.pt run-{kind}/best.pt run-{kind}/metrics.jsonl",
        )
        for kind, words in TRAINED.items()
    ]
    best = "evaluate run-lstr/checkpoint.pt"
    return [
        Job("features faithful", f"extract videos/{SHORTEST}.mp4 -o faithful --recipe faithful", "faithful/*/*.npy"),
        Job("features smallest", "extract videos -o small --recipe smallest", "small/*/*.npy small/recipe.json"),
        Job(
            "features fast, bf16, torch",
            f"extract videos/{SHORTEST}.mp4 -o fast --recipe fast --set recipe.precision=bf16 --set runtime=torch",
            "fast/*/*.npy fast/recipe.json",
        ),
        *training,
        Job(
            "every kind",
            f"python {KINDS} features features.json kinds",
            "kinds/*/checkpoint.pt kinds/*/evaluation.json kinds/*/stream.npy",
            apart="folder",
        ),
        Job(
            "finetune",
            f"finetune videos --labels videos.json -o weights --recipe own.json --set seed=3 {TINY}",
            "weights/*.pth weights/recipe.json",
            apart="suffix",
        ),
        Job(
            "features of finetuned networks",
            f"extract videos/{SHORTEST}.mp4 -o finetuned --recipe weights",
            "finetuned/*/*.npy",
        ),
        Job(
            "learn",
            f"learn videos videos.json -o live.lstr --recipe smallest --set seed=3 {TINY} --set train.epochs=2",
            "live.lstr live.learn/features/*/*.npy live.learn/run/checkpoint.pt live.learn/report/*.csv",
            apart="suffix",
        ),
        Job(
            "detect files",
            f"detect videos -m live.lstr -o timeline -f all --set labels=videos.json {EVENTS}",
            "timeline/*",
            apart="suffix",
        ),
        Job("detect pipe", f"detect - -m live.lstr --set on_lag=wait {EVENTS}", piped="pipe.mkv", lines=True),
        Job("detect features", "detect features -m run-lstr/checkpoint.pt -o scores -f json,jsonl,npy", "scores/*"),
        Job(
            "evaluate batch",
            f"{best} {LABELLED} --json -o report",
            "report/**/*",
            apart="suffix",
            document="batch.json",
        ),
        Job("evaluate stream", f"{best} {LABELLED} --json --set mode=stream", document="stream.json"),
        Job(
            "evaluate, choose thresholds",
            f"{best} {LABELLED} --subset validation --choose-thresholds --json",
            "run-lstr/checkpoint.pt",
            document="chosen.json",
        ),
    ]


def write_videos(output: Path) -> str:
    """Write videos/ID.mp4, videos.json, pipe.mkv and the recipe own.json; return `real` or `drawn`.

    The real videos are from UR Fall below $LSTR_SHARED/data. Both sets have labels of two classes.
    """
    real = Path(os.environ.get("LSTR_SHARED", SHARED)) / "data" / "urfall"
    (output / "videos").mkdir(parents=True)
    if real.is_dir():
        entries = json.loads((real / "labels.json").read_text())["database"]
        for video in VIDEOS:
            shutil.copyfile(real / "videos" / f"{video}.mp4", output / "videos" / f"{video}.mp4")
    else:
        entries = {}
        for number, video in enumerate(VIDEOS):
            draw_video(output / "videos" / f"{video}.mp4", number)
            segments = ((CLASSES[0], [0.5, 1.25]), (CLASSES[1], [1.25, 2.0]))
            annotations = [{"label": label, "segment": segment} for label, segment in segments]
            entries[video] = {"duration": 2.0, "annotations": annotations}
    database = {video: {**entries[video], "subset": subset} for video, subset in VIDEOS.items()}
    (output / "videos.json").write_text(json.dumps({"database": database}))
    (output / "own.json").write_text(json.dumps({"based_on": "fast", "precision": "float32"}))
    remux(output / "videos" / "fall-15.mp4", output / "pipe.mkv")
    return "real" if real.is_dir() else "drawn"


def draw_video(path: Path, seed: int, seconds: float = 2.0) -> None:
    """Write a video of a grey square that falls over noise and then stays on the ground."""
    random = np.random.default_rng(seed)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        stream.codec_context.thread_count = 1  # several may write other bytes
        for number in range(round(30 * seconds)):
            image = random.integers(0, 60, (120, 160, 3), np.uint8)
            top = int(np.clip((number - 15) * 3, 0, 80))
            image[top : top + 30, 40 + 10 * seed : 70 + 10 * seed] = 200
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def remux(source: Path, output: Path) -> None:
    """Copy the packets into Matroska, which can be read from a pipe."""
    with av.open(str(source)) as read, av.open(str(output), "w", format="matroska") as written:
        stream = written.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(read.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                written.mux(packet)


def write_features(output: Path) -> None:
    """Write features/FOLDER/ID.npy in a foreign layout, and features.json with their labels."""
    random = np.random.default_rng(29)
    directions = {name: random.standard_normal((1 + len(CLASSES), width)) for name, width in WIDTHS.items()}
    database = {}
    for video, subset in FEATURE_VIDEOS.items():
        columns, annotations, start = np.zeros(CHUNKS, int), [], 0
        while (start := start + int(random.integers(4, 12))) < CHUNKS - 12:
            stop, column = start + int(random.integers(4, 12)), int(random.integers(1, 1 + len(CLASSES)))
            columns[start:stop] = column
            annotations.append({"label": CLASSES[column - 1], "segment": [start / 4, stop / 4]})
            start = stop
        for name, rows in directions.items():
            features = rows[columns] + random.standard_normal((CHUNKS, WIDTHS[name]))
            (output / "features" / name).mkdir(parents=True, exist_ok=True)
            np.save(output / "features" / name / f"{video}.npy", features.astype(np.float32))
        database[video] = {"subset": subset, "duration": CHUNKS / 4, "annotations": annotations}
    (output / "features.json").write_text(json.dumps({"database": database}))


def environment(tree: Path, work: Path) -> dict[str, str]:
    """Return the environment of a command: the code of a tree, one torch thread, no GPU, and a separate home."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    fixed = {"CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "120"}
    return {**kept, **threads, **fixed, "PYTHONPATH": str(tree), "LSTR_HOME": str(work / "home")}


def check_tree(tree: Path, work: Path) -> None:
    """Raise SystemExit if Python would import lstr from another folder than the tree."""
    words = [sys.executable, "-P", "-c", WHERE]
    result = subprocess.run(words, env=environment(tree, work), cwd=work, capture_output=True, text=True)
    found = [Path(line).resolve() for line in result.stdout.split()]
    if result.returncode or not all(path.is_relative_to(tree) for path in found):
        raise SystemExit(f"{tree} is not a checkout of lstr: {result.stderr or result.stdout}")


def run(job: Job, tree: Path, work: Path) -> tuple[dict[str, Parts], str]:
    """Run a job; return its items as {name: parts}, and the reason if it failed, else an empty string."""
    words = job.words.split()
    command = ["-P", *(words[1:] if words[0] == "python" else ["-m", "lstr_cli", *words])]
    with ExitStack() as stack:
        source = stack.enter_context((work / job.piped).open("rb")) if job.piped else subprocess.DEVNULL
        done = subprocess.run(
            [sys.executable, *command], env=environment(tree, work), cwd=work, stdin=source, capture_output=True
        )
    folders = {str(work): "WORK", str(tree): "TREE"}
    if done.returncode:
        reason = " ".join(done.stderr.decode(errors="replace").strip().splitlines()[-3:])
        return result_items(job, work, folders), f"exit code {done.returncode}: {reason}"
    items: dict[str, Parts] = {}
    if job.lines:
        items[job.name] = lines_parts(done.stdout.decode(), folders)
    if job.document:
        (work / job.document).write_bytes(done.stdout)
        items |= {f"{job.name}, printed": file_content(work / job.document, folders)[""]}
    items |= result_items(job, work, folders)
    return items, "" if items else f"it left no {job.results}"


def result_items(job: Job, work: Path, folders: Mapping[str, str]) -> dict[str, Parts]:
    """Return the items in the result files of a job."""
    items: dict[str, Parts] = {}
    found = {path for pattern in job.results.split() for path in work.glob(pattern) if path.is_file()}
    for path in sorted(found):
        group = {"suffix": "".join(path.suffixes), "folder": path.parent.name}.get(job.apart, "")
        for sort, parts in file_content(path, folders).items():
            item = items.setdefault(" ".join(filter(None, (job.name, group, sort))), {})
            item |= {f"{path.relative_to(work)} {name}".strip(): part for name, part in parts.items()}
    return items


def record(tree: Path, work: Path, only: str = "") -> dict[str, Any]:
    """Run all jobs, or those with `only` in their name, in the folder `work`; return the record."""
    start = perf_counter()
    check_tree(tree, work)
    inputs = write_videos(work)
    write_features(work)
    items: dict[str, Parts] = {}
    failed: dict[str, str] = {}
    for job in jobs():
        if only in job.name:
            before = perf_counter()
            left, reason = run(job, tree, work)
            items |= left
            if reason:
                failed[job.name] = reason
            print(f"{job.name}: {reason or f'{perf_counter() - before:.1f} s'}", flush=True)
    return {
        "format": FORMAT,
        "about": {"inputs": inputs, **environment_versions()},
        "tree": str(tree),
        "commit": commit(tree),
        "seconds": round(perf_counter() - start),
        "failed": failed,
        "items": items,
    }


def environment_versions() -> dict[str, Any]:
    """Return the machine and versions that results may depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    versions = {name: version(name) for name in LIBRARIES}
    return {"machine": f"{platform.machine()} {processor}", "python": platform.python_version(), **versions}


def commit(tree: Path) -> str:
    """Return the commit of a checkout, with a + if files differ from it."""
    result = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=tree, capture_output=True, text=True)
    return result.stdout.strip()


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return one line per item, and whether all are equal; a job that failed in either record is not equal."""
    lines = [f"before: {before['commit']}, after: {after['commit']}"]
    for name, value in before["about"].items():
        if after["about"].get(name) != value:
            lines.append(f"note: {name} was {value} and is {after['about'].get(name)}, so results may differ by it.")
    equal = True
    for when, one in (("before", before), ("after", after)):
        for job, reason in one["failed"].items():
            lines.append(f"failed   {job}, {when}: {reason}")
            equal = False
    for name in dict.fromkeys([*before["items"], *after["items"]]):
        old, new = before["items"].get(name), after["items"].get(name)
        if old == new:
            lines.append(f"equal    {name} ({count_text(old or {})})")
            continue
        equal = False
        if old is None or new is None:
            lines.append(f"differs  {name}: only {'after' if old is None else 'before'}")
        else:
            lines.append(f"differs  {name}: {difference(old, new)}")
    return lines, equal


def count_text(parts: Parts) -> str:
    """Return a count such as "3 parts"."""
    return f"{len(parts)} part{'s' * (len(parts) != 1)}"


def difference(old: Parts, new: Parts) -> str:
    """Return which parts differ, are gone or are new."""
    kept = [name for name in old if name in new]
    result = {
        f"of {count_text(old)} differ": [name for name in kept if old[name] != new[name]],
        "gone": [name for name in old if name not in new],
        "new": [name for name in new if name not in old],
    }
    return "; ".join(f"{len(names)} {what}{names_text(names)}" for what, names in result.items() if names)


def names_text(names: Iterable[str]) -> str:
    """Return the first names, such as " (a, b, …)"; empty for parts without names."""
    known = [name for name in names if name]
    shown = [*known[:NAMED], *(["…"] if len(known) > NAMED else [])]
    return f" ({', '.join(shown)})" if shown else ""


def read_record(path: Path) -> dict[str, Any]:
    """Return a record. Raise SystemExit for any other file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SystemExit(f"{path} is not a record of benchmarks/equality.py.")
    return content


def main(words: Sequence[str] | None = None) -> int:
    """Record or compare; return 1 if a job failed or an item differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run everything with the code of a checkout")
    recording.add_argument("tree", type=Path)
    recording.add_argument("-o", "--output", type=Path, required=True)
    recording.add_argument("--work", type=Path, help="new folder that is kept; a temporary one by default")
    recording.add_argument("--only", default="", help="jobs whose name contains this; each needs those before it")
    comparing = commands.add_parser("compare", help="say what differs; exit code 1 where anything does")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args(words)
    if options.command == "compare":
        lines, equal = compare(read_record(options.before), read_record(options.after))
        print(*lines, sep="\n")
        return 0 if equal else 1
    with ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lstr-equality-")))
        work.mkdir(parents=True, exist_ok=not options.work)
        result = record(options.tree.resolve(), work.resolve(), options.only)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{len(result['items'])} items in {result['seconds']} s: {options.output}")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
