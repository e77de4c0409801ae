"""What `lstr learn` makes of two small public sets when every video teaches and is held out once, in three folds.

python benchmarks/few_videos.py SHARED/data --work WORK [--time 12m] [--recipe NAME] [--sets urfall] [--seeds 0 1 2]

With --pictures also the timelines of three sequences of UT-Interaction in docs/images, as the last seed has them: of a
video by what lacks it.

Adds to few-videos.json; what is learnt in the work folder is not learnt again. The sets' own division into training and
testing has no part: all videos count. A machine that does other work learns less in the same time.
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
from lstr.pipelines.evaluation.watching import FULL_SCALE, NO_SCORE
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.pages.figure import write_figure
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "few-videos.json"
PICTURES = RECORD.parents[1] / "docs" / "images"
PICTURED = ("seq08", "seq09", "seq10")
SETS = {"ut_interaction": "UT-Interaction", "urfall": "UR Fall Detection"}


def timed(name: str, work: Path, *words: object) -> float:
    """Seconds that a command takes, or took before; it ends this program where it fails."""
    times = work / f"{name}.seconds"
    if not times.exists():
        print("lstr", *words, file=sys.stderr)
        start = perf_counter()
        command = [sys.executable, "-m", "lstr_cli", *map(str, words)]
        subprocess.run(command, check=True, env=os.environ | {"LSTR_HOME": str(work / f"{name}.home")})
        times.write_text(str(round(perf_counter() - start, 1)))
    return float(times.read_text())


def all_training(labels: Path, folder: Path) -> Path:
    """The labels with every video for training, in a folder of the work."""
    content = json.loads(labels.read_text())
    for video in content["database"].values():
        video["subset"] = "training"
    path = folder / f"{labels.parent.name}.json"
    path.write_text(json.dumps(content))
    return path


def described(model: Path, seconds: float) -> dict:
    """What a model file says of its own quality, of what was tried, and how long it took to make."""
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
    """F1 by overlap, and by the seconds that a start may be off."""
    return {name: {least: {"f1": one["f1"]} for least, one in events[name].items()} for name in ("iou", "onset")}


def draw_timelines(report: Path) -> None:
    """The timelines of the pictured sequences as the page of a learning shows them."""
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
    """Learn what is not yet learnt in the work folder, then write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/ and urfall/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--time")
    parser.add_argument("--recipe")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    recipe = Path(options.recipe).stem if options.recipe else "default"
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in options.sets:
        labels = all_training(options.data / name / "labels.json", options.work)
        for seed in options.seeds:
            run = f"{name}-{recipe}-{options.time or 'unbounded'}-{seed}"
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
