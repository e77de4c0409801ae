"""What both commits work on: short videos with labels, and drawn features with labels."""

import json
import os
import shutil
from pathlib import Path

import av
import numpy as np

SHARED = Path(__file__).resolve().parents[2] / "shared"
VIDEOS = {"fall-14": "training", "fall-16": "training", "fall-18": "training", "fall-15": "testing"}
"""About two seconds each, by subset"""
SEEN = "fall-16"
"""The shortest of them"""
CLASSES = ("falling", "lying")
FEATURE_VIDEOS = {f"video-{n}": subset for n, subset in enumerate(["training"] * 4 + ["validation", "testing"])}
WIDTHS = {"rgb_kinetics_resnet50": 48, "flow_kinetics_bninception": 24}
CHUNKS = 72  # of a video of features, 18 s


def write_videos(output: Path) -> str:
    """Write videos/ID.mp4, videos.json, pipe.mkv and own.json, a recipe; returns which videos: `real` or `drawn`.

    Real ones are those of UR Fall below $LSTR_SHARED/data; they hold labels of two classes, and so do drawn ones.
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
    pass_on(output / "videos" / "fall-15.mp4", output / "pipe.mkv")
    return "real" if real.is_dir() else "drawn"


def draw_video(path: Path, seed: int, seconds: float = 2.0) -> None:
    """A grey square that falls over noise, and lies then."""
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


def pass_on(source: Path, output: Path) -> None:
    """The same packets in Matroska, which a pipe can be read from as it comes."""
    with av.open(str(source)) as read, av.open(str(output), "w", format="matroska") as written:
        stream = written.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(read.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                written.mux(packet)


def write_features(output: Path) -> None:
    """Write features/FOLDER/ID.npy, as a folder from elsewhere, and features.json with their labels."""
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
