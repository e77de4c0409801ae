"""What `lstr learn` makes of 1, 2, 4 and 7 labelled videos, and of more or less time: labelled-videos.json, its figure.

python benchmarks/labelled_videos.py SHARED/data --work WORK [--runs new-4 old-4 …]

The first videos that UT-Interaction's own labels call training teach, and the three that they call testing are scored,
with 19 actions in 125 seconds. `new` is the command as it is, `pretrained` with that recipe; `old` is `--flow dis`
without folds, as before networks began with ImageNet weights; new-7-6m is new with `--time 6m`. A run that was held up
has no seconds. What is learnt in the work folder is not learnt again.
"""

import argparse
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
from few_videos import described
from learn import BEFORE, PICTURES, timed

from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "labelled-videos.json"
FIGURE = PICTURES / "labelled-videos.png"
VIDEOS = (1, 2, 4, 7)
TIMES = ("3m", "6m", "12m")
RUNS = [f"{way}-{n}" for n in VIDEOS for way in ("new", "old")] + [f"new-7-{time}" for time in TIMES]
RUNS += ["old-7-3m", "pretrained-1"]
COLOURS = {"new": "#1f77b4", "old": "#8c8c8c"}
NAMES = {"new": "lstr learn", "old": "before: optical flow, random weights"}


def some_videos(labels: Path, n_videos: int, folder: Path) -> Path:
    """Labels of the testing videos and of the first of the others, in a folder of the work."""
    content = json.loads(labels.read_text())
    teaching = sorted(i for i, video in content["database"].items() if video["subset"] == "training")[:n_videos]
    kept = {i: v for i, v in content["database"].items() if i in teaching or v["subset"] == "testing"}
    path = folder / f"first-{n_videos}.json"
    path.write_text(json.dumps({**content, "database": kept}))
    return path


def learn(run: str, data: Path, work: Path) -> dict:
    """One run, by its name."""
    way, n_videos, time = re.fullmatch(r"(new|old|pretrained)-(\d+)(?:-(\w+))?", run).groups()
    folder, model = data / "ut_interaction", work / f"{run}.lstr"
    labels = some_videos(folder / "labels.json", int(n_videos), work)
    ways = {"old": BEFORE, "pretrained": ("--recipe", "pretrained")}
    words = [*ways.get(way, ()), *(("--time", time) if time else ())]
    seconds = timed(run, work, "learn", folder / "videos", labels, "-o", model, *words)
    return {"way": way, "videos": int(n_videos), "time": time, **described(model, seconds), **about_machine()}


def draw(record: dict) -> None:
    """mAP and event F1 against the number of labelled videos; against minutes, where some runs had a time."""
    most = [r for r in record.values() if r["videos"] == max(VIDEOS) and r["seconds"] is not None]
    columns = [("labelled videos", [r for r in record.values() if not r["time"]], lambda r: r["videos"])]
    if any(r["time"] for r in most):
        columns.append(("minutes on two cores, seven videos", most, lambda r: r["seconds"] / 60))
    size = (1.5 + 4.5 * len(columns), 6.6)
    figure, panels = plt.subplots(2, len(columns), figsize=size, sharex="col", sharey="row", squeeze=False)
    for (above, below), (name, of_all, across) in zip(panels.T, columns, strict=True):
        for way, colour in COLOURS.items():
            runs = sorted((r for r in of_all if r["way"] == way), key=across)
            at = [across(r) for r in runs]
            low, high = ([r["interval"]["mAP"][side] for r in runs] for side in (0, 1))
            above.plot(at, [r["mAP"] for r in runs], "o-", color=colour, label=NAMES[way])
            above.vlines(at, low, high, color=colour, alpha=0.35, linewidth=4)
            f1 = [r["events"]["together"]["iou"]["0.3"]["f1"] for r in runs]
            below.plot(at, f1, "o-", color=colour, label=NAMES[way])
        above.grid(alpha=0.25)
        below.grid(alpha=0.25)
        below.set_xlabel(name)
    panels[0, 0].set(ylabel="per-frame mAP, 95 % interval", ylim=(0, 1))
    panels[1, 0].set(ylabel="event F1, IoU 0.3", ylim=(0, 1), xticks=VIDEOS)
    panels[0, 0].legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    """Learn what is not yet learnt in the work folder, then write the record and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--runs", nargs="*", default=RUNS, metavar="RUN", help="the others stay")
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for run in options.runs:
        record[run] = learn(run, options.data, options.work)
        write_json(RECORD, record)
    draw(record)


if __name__ == "__main__":
    main()
