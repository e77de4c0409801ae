"""`lstr demo` detects the actions of held-out videos."""

from pathlib import Path

import pytest

from lstr.files.content import read_jsonl
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.model_files.model_file import open_model
from tests.support.processes import LSTR, run_process


@pytest.mark.slow
def test_the_demo_detects(tmp_path):
    home, output = tmp_path / "home", tmp_path / "demo"
    environment = {"LSTR_HOME": str(home)}
    code, out, err = run_process(*LSTR, "demo", "-o", output, env=environment)
    assert code == 0, err
    (index,) = (line.removeprefix("open: ") for line in out.splitlines() if line.startswith("open: "))
    page, labels, videos = Path(index).read_text(), read_label_file(output / "labels.json"), []
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
    for counts in (together, *events["per_class"].values()):
        assert f"{counts['found']} of {counts['labels']}" in out

    model = output / "demo.lstr"
    assert open_model(model).about["demo"] is True
    assert not (home / "default.lstr").exists() and not (home / "default.pt").exists()
    other, before = tmp_path / "other.mp4", model.read_bytes()
    other.write_bytes((output / "videos" / f"{held_out[0]}.mp4").read_bytes())
    detect = ("detect", other, "-m", model, "-o", tmp_path / "timeline")
    code, _, err = run_process(*LSTR, *detect, env=environment)
    assert code == 0 and "demo" in err, "a warning that the model was trained on rendered figures"
    assert run_process(*LSTR, "demo", "-o", output, env=environment)[0] == 0 and model.read_bytes() == before
