"""Accuracy against speed of feature recipes on two small public sets: benchmarks/frontier.json and its figure.

A point is a recipe, and perhaps settings of how its networks are trained. `lstr learn` makes a model file of it from
the training videos of each fold, and that model scores the fold's own videos, which neither networks nor model have
seen. The scores of all folds are pooled before the metrics; the intervals resample the videos for all points together.
The record has the command of each point: one command makes it. What these are held against, TV-L1 with BN-Inception,
was measured before on the same folds (finetuned.json).

Speed is that of `lstr detect -m` from a file of 320×240 to decisions, the points taking turns; what it takes to start,
by the same command on the first second, is taken off.

    python benchmarks/frontier.py learn SHARED/data --work WORK [--points live ...] [--sets ut_interaction]
    python benchmarks/frontier.py time SHARED/data --work WORK      on a quiet machine
    python benchmarks/frontier.py write SHARED/data --work WORK     frontier.json and docs/images/frontier.png
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from time import perf_counter, process_time

import cv2
import matplotlib.pyplot as plt
import numpy as np
from finetuned import folds_of, write_labels

from lstr.batch import predict
from lstr.extractors.flow.workers import ALGORITHMS, DIFFERENCE, make_flow
from lstr.extractors.video.file_reader import FrameReader, read_chunks
from lstr.extractors.video.probe import probe
from lstr.labels.label_set import read_labels, targets
from lstr.metrics import bootstrap
from lstr.metrics import per_frame as metrics
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.reports.palette import DETECTION, EMPHASIS, TRUTH

HERE = Path(__file__).resolve().parent
BEFORE = HERE / "finetuned.json"
RECORD, FIGURE = HERE / "frontier.json", HERE.parent / "docs" / "images" / "frontier.png"
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}
REFERENCE = "tvl1-bninception"
CHOSEN = "smallest"
TO_THE_LEFT = (
    "dis-192",
    "difference-bninception",
    "rgb-shufflenetv2",
)  # of their points, whose labels would meet others
RESAMPLES = 1000
SMALL_SIDE = 160  # pixels of a frame's longer side
ROUNDS = 2  # turns of each point
CLIP = "ut_interaction/videos/seq01.mp4"  # 320×240, 30 FPS


@dataclass(frozen=True)
class Point:
    """A recipe by name, or what a recipe file says; and settings of the networks' training."""

    about: str
    recipe: Mapping[str, object] | str
    settings: Mapping[str, str] = field(default_factory=dict)

    def options(self, name: str, work: Path) -> list[str]:
        """Of `lstr learn`."""
        recipe = self.recipe
        if not isinstance(recipe, str):
            write_json(work / f"{name}.json", dict(recipe))
            recipe = str(work / f"{name}.json")
        settings = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return ["--recipe", recipe, "--set", "seed=0", *settings]


def of_flow(network: str, algorithm: str, long_side: int, side: int = 64) -> dict[str, object]:
    """A recipe of flow alone."""
    precision = "fast" if network in ("bninception", "resnet18") else "float32"
    shared = {"based_on": "kinetics", "rgb": None, "precision": precision, "flow_algorithm": algorithm}
    sizes = {"long_side": long_side, "short_side": side, "crop": side}
    return {**shared, **sizes, "flow": {"network": network, "crops": 1}}


def of_rgb(network: str, side: int = 64) -> dict[str, object]:
    """A recipe of RGB alone."""
    shared = {"long_side": 160, "short_side": side, "crop": side, "precision": "float32"}
    return {"based_on": "kinetics", "rgb": {"network": network}, "flow": None} | shared


POINTS = {
    REFERENCE: Point("TV-L1 at 320 pixels, BN-Inception: flow as published", of_flow("bninception", "tvl1", 320)),
    "dis-bninception": Point("DIS medium at 320 pixels, BN-Inception", of_flow("bninception", "dis", 320)),
    "tvl1-shufflenetv2": Point("TV-L1 at 320 pixels, ShuffleNetV2", of_flow("shufflenetv2", "tvl1", 320)),
    "tvl1-160": Point("TV-L1 at 160 pixels, ShuffleNetV2", of_flow("shufflenetv2", "tvl1", 160)),
    "farneback-160": Point("Farnebäck at 160 pixels, ShuffleNetV2", of_flow("shufflenetv2", "farneback", 160)),
    CHOSEN: Point(
        "the recipe `smallest`: no flow but RGB differences, ShuffleNetV2 on an image and its mirror image", "smallest"
    ),
    "difference-bninception": Point(
        "no flow but RGB differences, BN-Inception", of_flow("bninception", "difference", 160)
    ),
    "dis-192": Point(
        "DIS medium at 192 pixels, ShuffleNetV2 on an image and its mirror image",
        of_flow("shufflenetv2", "dis", 192) | {"flow": {"network": "shufflenetv2", "crops": 2}},
    ),
    "dis-160": Point("DIS medium at 160 pixels, ShuffleNetV2", of_flow("shufflenetv2", "dis", 160), {"epochs": "45"}),
    "fast-160": Point("DIS fast at 160 pixels, ShuffleNetV2", of_flow("shufflenetv2", "dis-fast", 160)),
    "ultrafast-160": Point("DIS ultrafast at 160 pixels, ShuffleNetV2", of_flow("shufflenetv2", "dis-ultrafast", 160)),
    "ultrafast-128": Point("DIS ultrafast at 128 pixels, ShuffleNetV2", of_flow("shufflenetv2", "dis-ultrafast", 128)),
    "dis-160-48": Point("as dis-160, images of 48 pixels", of_flow("shufflenetv2", "dis", 160, 48)),
    "dis-160-96": Point("as dis-160, images of 96 pixels", of_flow("shufflenetv2", "dis", 160, 96)),
    "dis-160-mobilenetv3": Point("as dis-160, MobileNetV3", of_flow("mobilenetv3", "dis", 160)),
    "dis-160-resnet18": Point("as dis-160, ResNet-18", of_flow("resnet18", "dis", 160)),
    "rgb-shufflenetv2": Point("RGB alone, ShuffleNetV2", of_rgb("shufflenetv2")),
}


def lstr(work: Path, *words: object) -> tuple[float, float]:
    """Run a command of lstr; the seconds it took, and the processor's."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    command = [sys.executable, "-m", "lstr_cli", *map(str, words)]
    done = subprocess.run(command, env=os.environ | {"LSTR_HOME": str(work / "home")}, stdout=subprocess.DEVNULL)
    seconds, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def learn(data: Path, work: Path, sets: list[str], points: list[str], folds: list[int]) -> None:
    """A model file of each point, set and fold in WORK, where there is none yet."""
    for name in sets:
        source = data / name
        ids = sorted(read_labels(source / "labels.json").videos)
        for fold, testing in enumerate(folds_of(ids), 1):
            for point in points if fold in folds else ():
                folder = work / name / f"fold_{fold}"
                model, labels = folder / f"{point}.lstr", folder / "labels.json"
                if model.exists():
                    continue
                write_labels(source / "labels.json", testing, labels)
                words = [source / "videos", labels, "-o", model, "--set", f"cache={work / 'chunks'}"]
                seconds, processor = lstr(work, "learn", *words, *POINTS[point].options(point, work))
                spent = {"seconds": round(seconds, 1), "processor": round(processor, 1)}
                write_json(model.with_suffix(".seconds"), spent)
                mean = open_model(model).about["metrics"]["lstr"]["mAP"]
                print(f"{name} fold {fold} {point}: mAP {mean:.3f}, {processor:.0f} s of processor", flush=True)


def scores_of(data: Path, work: Path, name: str, point: str) -> dict[str, np.ndarray] | None:
    """Scores (L, C) of each video of a set, by the model that has not seen it; None where a fold is missing."""
    ids, scores = sorted(read_labels(data / name / "labels.json").videos), {}
    for fold, testing in enumerate(folds_of(ids), 1):
        model = work / name / f"fold_{fold}" / f"{point}.lstr"
        if not model.exists():
            return None
        loaded = open_model(model).checkpoint("cpu")
        features = open_features(model.with_suffix(".learn") / "features")
        for video_id in testing:
            rows = np.concatenate([part[:] for part in features.load(video_id)], axis=1)
            scores[video_id] = predict(loaded.model, rows).numpy()
    return {video_id: scores[video_id] for video_id in ids}


def judged(data: Path, work: Path, name: str) -> dict[str, dict]:
    """By point: mAP with its interval, against the reference, per class and by fold, and the seconds of learning."""
    labels = read_labels(data / name / "labels.json")
    ids = sorted(labels.videos)
    found = {point: scores for point in POINTS if (scores := scores_of(data, work, name, point))}
    truth = {i: targets(labels.videos[i], labels.classes, len(found[CHOSEN][i])) for i in ids}
    draws = bootstrap.draw(len(ids), RESAMPLES)

    def per_frame(scores: Mapping[str, np.ndarray], chosen: list[str]) -> dict:
        parts = [np.concatenate([of[i] for i in chosen]) for of in (scores, truth)]
        return metrics.per_frame(*parts, labels.classes)

    resampled = {
        point: bootstrap.resampled_means([scores[i] for i in ids], [truth[i] for i in ids], labels.classes, draws)
        for point, scores in found.items()
    }
    before = json.loads(BEFORE.read_text())[name]["finetuned flow: lstr"]
    rows = {REFERENCE: {"of": BEFORE.name, "mAP": before["mAP"], "interval": before["interval"]["mAP"]}}
    for point, scores in found.items():
        whole = per_frame(scores, ids)
        kept = [json.loads(path.read_text()) for path in sorted(work.glob(f"{name}/fold_*/{point}.seconds"))]
        rows[point] = {
            "mAP": whole["mAP"],
            "interval": bootstrap.interval(resampled[point]),
            f"ahead of {CHOSEN}": {
                "difference": whole["mAP"] - per_frame(found[CHOSEN], ids)["mAP"],
                "interval": bootstrap.interval(resampled[point] - resampled[CHOSEN]),
            },
            "AP": {label: row["AP"] for label, row in whole["per_class"].items()},
            "mAP_by_fold": [per_frame(scores, fold)["mAP"] for fold in folds_of(ids)],
            "learning": {key: [of[key] for of in kept] for key in ("seconds", "processor")},
        }
    return rows


def measure(data: Path, work: Path, points: list[str]) -> None:
    """How fast each point detects, in WORK/speed.json; the points take turns.

    Their networks are barely trained, for speed does not depend on that.
    """
    models = {}
    for point in points:
        models[point] = work / "speed" / f"{point}.lstr"
        if not models[point].exists():
            words = [data / "urfall" / "videos", data / "urfall" / "labels.json", "-o", models[point]]
            barely = ["--set", f"cache={work / 'chunks'}", "--set", "epochs=1", "--set", "draws=48"]
            lstr(work, "learn", *words, *POINTS[point].options(point, work), *barely)
    clip = data / CLIP
    length, taken = probe(clip).duration, {point: [] for point in models}
    for _ in range(1 + ROUNDS):
        for point, model in models.items():
            start = lstr(work, "detect", clip, "-m", model, "--duration", "1", "--json")
            whole = lstr(work, "detect", clip, "-m", model, "--json")
            taken[point].append([b - a for a, b in zip(start, whole, strict=True)] + [start[0]])
    rows = {}
    for point, runs in taken.items():
        wall, processor, start = np.median(runs[1:], axis=0)  # the first compiles what is kept on disk
        rows[point] = {
            "real_time": round((length - 1) / wall, 1),
            "processor_seconds_per_second": round(processor / (length - 1), 4),
            "seconds_for_the_first_second": round(start, 2),
            "turns": [round((length - 1) / run[0], 1) for run in runs[1:]],
        }
        print(point, rows[point], flush=True)
    write_json(work / "speed.json", {"clip": CLIP, "seconds": length, "points": rows} | about_machine())


def compare_flows(data: Path) -> dict[str, dict]:
    """Of each algorithm at 160 pixels: milliseconds of a pair, and how far it is from TV-L1, in pixels."""
    pairs = []
    for path in sorted((data / "ut_interaction" / "videos").glob("*.mp4"))[:2]:
        for chunk in islice(read_chunks(FrameReader(probe(path)), SMALL_SIDE), 3, 80, 8):
            grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in chunk.frames]
            pairs.append(list(pairwise(grey)))
    opencv_threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    computing = {name: partial(_each_alone, make_flow(name)) for name in ALGORITHMS if name != DIFFERENCE}
    computing |= {f"OpenCV's tvl1, warm, {n} warps": partial(_warm, n) for n in (1, 2)}
    fields, rows = {}, {}
    for name, compute in computing.items():
        start = process_time()
        fields[name] = np.concatenate([compute(chunk) for chunk in pairs])  # (pairs, H, W, 2)
        rows[name] = {"ms": round(1000 * (process_time() - start) / len(fields[name]), 2)}
    fields["none at all"], rows["none at all"] = np.zeros_like(fields["tvl1"]), {"ms": 0.0}
    for name, row in rows.items():
        row["end_point_px"] = round(float(np.linalg.norm(fields[name] - fields["tvl1"], axis=-1).mean()), 3)
    cv2.setNumThreads(opencv_threads)
    return rows


def _each_alone(flow: Callable, chunk: list) -> np.ndarray:
    return np.stack([np.array(flow(before, after)) for before, after in chunk])


def _warm(warps: int, chunk: list) -> np.ndarray:
    """TV-L1 with fewer warps, which goes on from the flow of the pair before."""
    solver = cv2.optflow.DualTVL1OpticalFlow_create()
    solver.setWarpingsNumber(warps)
    made: list[np.ndarray] = []
    for before, after in chunk:
        solver.setUseInitialFlow(bool(made))
        made.append(solver.calc(before, after, made[-1].copy() if made else None))
    return np.stack(made)


def write(data: Path, work: Path) -> None:
    """The record and the figure."""
    speed = json.loads((work / "speed.json").read_text())
    record = {
        "points": {
            name: {"about": point.about, "command": f"lstr learn VIDEOS LABELS -o MODEL {shlex.join(_plain(point))}"}
            | ({"recipe": point.recipe} if not isinstance(point.recipe, str) else {})
            for name, point in POINTS.items()
        },
        "speed": speed,
        "accuracy": {name: judged(data, work, name) for name in SETS if (work / name).is_dir()},
        "flow at 160 pixels": compare_flows(data),
        "resamples": RESAMPLES,
    }
    write_json(RECORD, record | about_machine())
    draw(record)


def _plain(point: Point) -> list[str]:
    """A point's options without a path of this machine."""
    recipe = point.recipe if isinstance(point.recipe, str) else "RECIPE.json"
    return ["--recipe", recipe, "--set", "seed=0", *(f"--set={key}={value}" for key, value in point.settings.items())]


def draw(record: Mapping) -> None:
    """mAP against times real time, a panel for each set."""
    figure, panels = plt.subplots(1, len(record["accuracy"]), figsize=(11, 4.6), squeeze=False)
    for panel, (name, rows) in zip(panels[0], record["accuracy"].items(), strict=True):
        reference = rows[REFERENCE]["mAP"]
        panel.axhline(reference - 0.02, color=TRUTH, linewidth=1, linestyle=":")
        for point, row in rows.items():
            if point not in record["speed"]["points"]:
                continue
            x, (low, high) = record["speed"]["points"][point]["real_time"], row["interval"]
            colour = {CHOSEN: EMPHASIS, REFERENCE: TRUTH}.get(point, DETECTION)
            panel.errorbar(x, row["mAP"], [[row["mAP"] - low], [high - row["mAP"]]], fmt="o", color=colour, capsize=2)
            place = (5, 8) if point == CHOSEN else (-5, -9) if point in TO_THE_LEFT else (5, 3)
            side = "right" if place[0] < 0 else "left"
            panel.annotate(point, (x, row["mAP"]), xytext=place, textcoords="offset points", fontsize=7, ha=side)
        panel.set(xscale="log", xlabel="times real time, two cores", ylabel="per-frame mAP, held out", title=SETS[name])
        ticks = [1, 2, 5, 10, 20, 50, 100]
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.grid(alpha=0.2)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    """Do one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("step", choices=["learn", "time", "write"])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True, help="folder for model files and cached chunks")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--points", nargs="+", default=list(POINTS), choices=POINTS)
    parser.add_argument("--folds", nargs="+", type=int, default=[1, 2, 3], help="of learn")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.step == "learn":
        learn(options.data, options.work, options.sets, options.points, options.folds)
    elif options.step == "time":
        measure(options.data, options.work, options.points)
    else:
        write(options.data, options.work)


if __name__ == "__main__":
    main()
