"""Measure the false alarms per hour of models on hours of video that shows none of their actions.

python benchmarks/false_alarms.py SHARED/data --work WORK --model urfall=MODEL.lstr --model ut_interaction=MODEL.lstr

The videos are the other set of `few_videos.py`, the decodable files of odd_videos/, and rendered figures as in
`lstr demo`; each real video also mirrored, and at 0.8 and 1.25 times its speed. Every detection is a false alarm.
Results are added to false-alarms.json; what is already in WORK is not made again.

For a model that was trained with `--negatives DIR`, and for comparison one without:
python benchmarks/false_alarms.py … --model urfall+negatives=OTHER.lstr --model urfall=MODEL.lstr --negatives DIR
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path

import av
import numpy as np

from lstr.errors import LstrError
from lstr.extractors.stages import closed_after
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import open_chunks
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.labels.label_set import actions_of
from lstr.metrics.intervals import rate_interval
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.scenes import SceneConfig, render_scenes

RECORD = Path(__file__).resolve().parent / "false-alarms.json"
SETS = ("urfall", "ut_interaction")
SPEEDS = (Fraction(1), Fraction(4, 5), Fraction(5, 4))
LONG_SIDE, SMALLEST = 320, 64  # pixels: of the written videos, and of the odd ones
SHORTEST_S, LONGEST_S = 2.0, 600.0  # of the odd videos; the headers of some claim days
DRAWN = SceneConfig(n_videos=10, n_testing=1, seconds=120.0, width=320, height=240, seed=7)


def write_variant(source: Path, target: Path, mirrored: bool, speed: Fraction) -> None:
    """Write a video at 24 FPS times a speed, mirrored or not. Raises LstrError if it cannot be read."""
    with (
        replacing(target) as part,
        closed_after(open_chunks(source, LONG_SIDE)[2]) as chunks,
        av.open(str(part), "w", format="mp4") as container,
    ):
        stream = None
        for chunk in chunks:
            for image in chunk.frames:
                if stream is None:
                    stream = container.add_stream("libx264", rate=24 * speed, options={"crf": "20"})
                    stream.height, stream.width = (n // 2 * 2 for n in image.shape[:2])
                    stream.pix_fmt = "yuv420p"
                shown = np.ascontiguousarray(image[: stream.height, : stream.width][:, :: -1 if mirrored else 1])
                container.mux(stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")))
        if stream is not None:
            container.mux(stream.encode())


def write_negatives(data: Path, left_out: str, folder: Path) -> list[Path]:
    """Write all variants of the videos except one set's; return the folders of videos."""
    sources = [path for name in SETS if name != left_out for path in sorted((data / name / "videos").iterdir())]
    for path in sorted((data / "odd_videos").rglob("*.*")):
        try:
            video = probe(path)
            if SHORTEST_S <= video.duration <= LONGEST_S and min(video.width, video.height) >= SMALLEST:
                sources.append(path)
        except LstrError:
            continue
    for source, mirrored, speed in product(sources, (False, True), SPEEDS):
        name = f"{source.parent.name}-{source.name}-{'mirrored' if mirrored else 'plain'}-{float(speed):g}.mp4"
        if (target := folder / name).exists():
            continue
        try:
            write_variant(source, target, mirrored, speed)
        except (LstrError, av.FFmpegError) as error:
            print(f"{source.name} is skipped: {error}", file=sys.stderr)
    render_scenes(folder.parent / "drawn", DRAWN)
    return [folder, folder.parent / "drawn" / "videos"]


def main() -> None:
    """Write the videos, detect on them with each model, and add the rates to the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/, urfall/ and odd_videos/")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True, help="SET[+NAME]=MODEL.lstr: SET trained it")
    parser.add_argument("--negatives", type=Path, help="videos of a training, whose variants are not counted")
    options = parser.parse_args()
    excluded = [path.name for path in options.negatives.iterdir()] if options.negatives else []
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, _, path in (text.partition("=") for text in options.model):
        trained_on, output = name.partition("+")[0], options.work / f"detections-{name}"
        if not output.exists():
            folders = write_negatives(options.data, trained_on, options.work / f"without-{trained_on}")
            command = ["detect", *map(str, folders), "-m", path, "-o", str(output), "-f", "json"]
            subprocess.run([sys.executable, "-m", "lstr_cli", *command], check=True)
        files = [p for p in sorted(output.rglob("*.json")) if not any(f"-{video}-" in p.name for video in excluded)]
        timelines = [json.loads(file.read_text()) for file in files]
        drawn = [timeline for timeline in timelines if Path(timeline["source"]).name.startswith("scene_")]
        hours = sum(timeline["duration"] for timeline in timelines) / 3600
        found = Counter(segment["label"] for timeline in timelines for segment in timeline["segments"])
        rates = {
            label: {"false_alarms": n, "per_hour": n / hours, "interval": rate_interval(n, hours)}
            for label, n in [
                ("together", found.total()),
                *((i, found[i]) for i in actions_of(open_model(path).classes)),
            ]
        }
        record[name + " held out" * bool(excluded)] = {
            "videos": len(timelines),
            "hours": hours,
            "of_rendered_figures": sum(len(timeline["segments"]) for timeline in drawn),
            "rates": rates,
            **about_machine(),
        }
        write_json(RECORD, record)


if __name__ == "__main__":
    main()
