"""The demo, whole, as a user runs it: it visibly detects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.files.content import read_jsonl
from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.pipelines.model_files.model_file import open_model


def lstr(*arguments, home: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lstr_cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LSTR_HOME": str(home)})


@pytest.mark.slow
def test_the_demo_detects(tmp_path):
    home, output = tmp_path / "home", tmp_path / "demo"
    first = lstr("demo", "-o", output, home=home)
    assert first.returncode == 0, first.stderr
    (index,) = (line.removeprefix("open: ") for line in first.stdout.splitlines() if line.startswith("open: "))
    page, labels, videos = Path(index).read_text(), read_labels(output / "labels.json"), []
    held_out = [name for name, video in labels.videos.items() if video.subset == "testing"]
    for name in held_out:
        assert name in page and (output / "timeline" / f"{name}.html").is_file()
        lines = read_jsonl(output / "timeline" / f"{name}.jsonl")
        ended = [line for line in lines if line.get("event") == "ended"]
        detected = [Segment(line["start"], line["end"], line["label"]) for line in ended]
        videos.append(VideoEvents(labels.videos[name].segments, detected, labels.videos[name].duration))
    events = measure_events(videos, labels.classes)
    together = events["together"]
    assert together["iou"]["0.3"]["f1"] >= 0.8 and together["found"] >= 0.9 * together["labels"], events
    for found in (together, *events["per_class"].values()):
        assert f"{found['found']} of {found['labels']}" in first.stdout

    model = output / "demo.lstr"
    assert open_model(model).about["demo"] is True
    assert not (home / "default.lstr").exists() and not (home / "default.pt").exists()
    other, before = tmp_path / "other.mp4", model.read_bytes()
    other.write_bytes((output / "videos" / f"{held_out[0]}.mp4").read_bytes())
    detected = lstr("detect", other, "-m", model, "-o", tmp_path / "timeline", home=home)
    assert detected.returncode == 0 and "demo" in detected.stderr, "the warning that it knows rendered figures alone"
    assert lstr("demo", "-o", output, home=home).returncode == 0 and model.read_bytes() == before
