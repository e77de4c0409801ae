"""Measure `lstr learn` on two small public sets: every video is used for training, and held out once in three folds.

python benchmarks/few_videos.py SHARED/data --work WORK [--time 12m] [--recipe NAME] [--sets urfall] [--seeds 0 1 2]
                                                        [--one fall-01]

With --one, a model is trained on this video alone, and measured on the others. Recipes of poses fetch their weights.

--pictures also draws the timelines of three sequences of UT-Interaction into docs/images, each as detected by the
models of the fold that holds it out, with the last seed.

Results are added to few-videos.json; a model that is already in WORK is not trained again. The training and testing
subsets of the sets are ignored. With --time, a busy machine trains less.
"""

import argparse
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from lstr.chunk import CHUNK_SECONDS
from lstr.files.content import write_json
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.report import FULL_SCALE, NO_SCORE
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.pages.figure import write_figure
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "few-videos.json"
PICTURES = RECORD.parents[1] / "docs" / "images"
PICTURED = ("seq08", "seq09", "seq10")
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}


def timed(name: str, work: Path, *words: object) -> float:
    """Return the seconds that a command takes, or took in an earlier run; exit if it fails."""
    times = work / f"{name}.seconds"
    if not times.exists():
        print("lstr", *words, file=sys.stderr)
        command, env = [sys.executable, "-m", "lstr_cli"], os.environ | {"LSTR_HOME": str(work / f"{name}.home")}
        if any("people" in str(word) for word in words):
            subprocess.run([*command, "weights", "fetch", "pose"], check=True, env=env, stdout=subprocess.DEVNULL)
        start = perf_counter()
        subprocess.run([*command, *map(str, words)], check=True, env=env)
        times.write_text(str(round(perf_counter() - start, 1)))
    return float(times.read_text())


def all_training(labels: Path, folder: Path, one: str | None) -> Path:
    """Write the labels with every video for training, or one alone, into the work folder; return the path."""
    content = json.loads(labels.read_text())
    for video_id, video in content["database"].items():
        video["subset"] = "training" if one in (None, video_id) else "testing"
    path = folder / f"{labels.parent.name}{f'-{one}' if one else ''}.json"
    path.write_text(json.dumps(content))
    return path


def described(model: Path, seconds: float) -> dict:
    """Return what a model file states about its accuracy, its variants, and its training time."""
    about = open_model(model).about
    metrics, plan = about["metrics"], json.loads((model.with_suffix(".learn") / "plan.json").read_text())["plan"]
    events, rates = metrics["events"], "false_alarms_per_hour"
    together = events["together"]
    return {
        "seconds": seconds,
        "planned_seconds": round(plan["seconds"], 1),
        "recipe": plan["recipe"],
        "split": about["split"],
        "mAP": metrics["lstr"]["mAP"],
        "interval": {"mAP": metrics["interval"]["mAP"]},
        "time_prior": metrics["time_prior"]["mAP"],
        "events": {
            "together": {
                **{key: together[key] for key in ("labels", "found", "false_alarms", rates, "delay")},
                **f1_of(together),
                "interval": {rates: together["interval"][rates]},
            },
            "per_class": {name: {"found": one["found"]} for name, one in events["per_class"].items()},
        },
        "tried": about.get("tried"),
        "taken": about.get("taken"),
    }


def f1_of(events: dict) -> dict:
    """Return F1 by overlap, and by the tolerance of a start in seconds."""
    return {name: {least: {"f1": one["f1"]} for least, one in events[name].items()} for name in ("iou", "onset")}


def draw_timelines(report: Path) -> None:
    """Draw the timelines of the pictured sequences from the report page."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', report.read_text(), re.DOTALL)
    assert data is not None
    page = json.loads(data[1])
    classes = page["classes"]
    for video in [video for video in page["models"][0]["videos"] if video["id"] in PICTURED]:
        scores = np.full((video["chunks"], len(classes)), np.nan)
        for place, curve in video["curves"].items():  # of a minute no stretch is longer than a chunk
            codes = np.frombuffer(base64.b64decode(curve), np.uint8)
            scores[:, int(place)] = np.where(codes == NO_SCORE, np.nan, codes / FULL_SCALE)
        segments = [Segment(start, end, classes[at], score) for at, start, end, _, score, *_ in video["detections"]]
        truth = [Segment(start, end, classes[at]) for at, start, end, *_ in video["labels"]]
        timeline = {
            "source": video["id"],
            "classes": classes,
            "duration": video["duration"],
            "chunks": video["chunks"],
            "seconds_per_chunk": CHUNK_SECONDS,
            "segments": [segment.to_dict() for segment in segments],
        }
        write_figure(PICTURES / f"ut-interaction-{video['id']}.png", timeline, scores, truth)


def main() -> None:
    """Train the models that are missing in the work folder, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--time")
    parser.add_argument("--recipe")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--one")
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    recipe = Path(options.recipe).stem if options.recipe else "default"
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.sets:
        labels = all_training(options.data / name / "labels.json", options.work, options.one)
        for seed in options.seeds:
            run = f"{name}-{recipe}-{options.one or options.time or 'unbounded'}-{seed}"
            model = options.work / f"{run}.lstr"
            words = [*(["--time", options.time] if options.time else [])]
            words += [*(["--recipe", options.recipe] if options.recipe else []), "--set", f"seed={seed}"]
            seconds = timed(run, options.work, "learn", options.data / name / "videos", labels, "-o", model, *words)
            record[run] = {"title": SETS[name], **described(model, seconds), **about_machine()}
            write_json(RECORD, record)
            if options.pictures and name == "ut_interaction":
                draw_timelines(model.with_suffix(".learn") / "report" / "report.html")


if __name__ == "__main__":
    main()
