"""The pictures of held-out videos in README and docs, by a flow network that `lstr finetune` trained.

Trains on the training videos of UT-Interaction (DIS flow, the flow stream alone), scores the testing videos and draws
their timelines with the default thresholds. No picture holds a frame of a video: the data set is for academic use.

python benchmarks/held_out_timeline.py shared/data/ut_interaction --work work    writes held-out-timeline.json
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from pipelines.files.json_files import write_json
from pipelines.provenance import about_machine

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "held-out-timeline.json"
PICTURES = ROOT / "docs" / "images"
THRESHOLDS = {"on": 0.5, "off": 0.35}
KEPT = ("mAP", "mcAP", "per_class")


def lstr(*words) -> str:
    """What a command prints on standard output; it ends this program where it fails."""
    print("lstr", *words, file=sys.stderr)
    command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def overlapping(segments: list[dict], label: str, start: float, end: float) -> list[dict]:
    """The segments of a class that share time with start..end."""
    return [s for s in segments if s["label"] == label and s["start"] < end and s["end"] > start]


def counted(timelines: dict[str, dict], database: dict) -> dict:
    """Labelled actions that a detection of their class overlaps, how late, and detections that overlap no label."""
    found: dict[str, list[int]] = {}
    delays, false = [], 0
    for name, timeline in timelines.items():
        labelled = [{"label": a["label"], "start": a["segment"][0], "end": a["segment"][1]} for a in database[name]]
        for action in labelled:
            hits = overlapping(timeline["segments"], **action)
            of_class = found.setdefault(action["label"], [0, 0])
            of_class[0] += bool(hits)
            of_class[1] += 1
            # the end of the first chunk that was on
            delays += (
                [min(hit["start"] for hit in hits) + timeline["seconds_per_chunk"] - action["start"]] if hits else []
            )
        false += sum(not overlapping(labelled, s["label"], s["start"], s["end"]) for s in timeline["segments"])
    return {"found_of": found, "first_delay": min(delays), "last_delay": max(delays), "without_a_label": false}


def main() -> None:
    """Do what is missing in the work folder, then write the record and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with videos/ and labels.json")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    videos, labels, work = options.data / "videos", options.data / "labels.json", options.work
    weights, features, run, shown = (work / name for name in ("weights", "features", "run", "shown"))
    if not (weights / "finetune.json").exists():
        lstr("finetune", videos, "--labels", labels, "-o", weights, "--flow", "dis", "--stream", "flow")
    lstr("extract", videos, "-o", features, "--recipe", weights)
    if not (run / "checkpoint.pt").exists():
        lstr("train", features, "--labels", labels, "-o", run, "--preset", "small")
    scored = json.loads(lstr("evaluate", run / "checkpoint.pt", features, "--labels", labels, "--json"))
    trained = json.loads((weights / "finetune.json").read_text())
    held_out = sorted(video["id"] for video in scored["per_video"])
    for name in held_out:
        source = ["detect", videos / f"{name}.mp4", "-c", run / "checkpoint.pt", "--flow-weights", weights]
        thresholds = [word for key, value in THRESHOLDS.items() for word in (f"--{key}", value)]
        lstr(*source, "-o", shown, "-f", "json,npy,png", "--labels", labels, *thresholds)
        shutil.copy(shown / f"{name}.png", PICTURES / f"ut-interaction-{name}.png")
    timelines = {name: json.loads((shown / f"{name}.json").read_text()) for name in held_out}
    database = {name: video["annotations"] for name, video in json.loads(labels.read_text())["database"].items()}
    record = {
        "what": "a flow network trained from random weights on DIS flow, then LSTR; held-out videos of UT-Interaction",
        "training": sorted(trained["training"]),
        "testing": held_out,
        "finetune": trained["config"],
        "preset": "small",
        "thresholds": THRESHOLDS,
        "chunks": scored["chunks"],
        "recipe": scored["recipe"],
        **{system: {key: scored[system][key] for key in KEPT} for system in ("lstr", "chance", "time_prior")},
        "interval": scored["interval"],
        "delay": {key: scored["delay"][key] for key in ("actions", "detected", "median", "mean", "p90")},
        "shown": counted(timelines, database),
        "per_video": {video["id"]: video["mAP"] for video in scored["per_video"]},
        **about_machine(),
    }
    write_json(RECORD, record)


if __name__ == "__main__":
    main()
