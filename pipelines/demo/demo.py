"""The whole chain on videos made on the spot: render, extract, train, evaluate, detect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from extractors.presets import PRESETS
from extractors.twostream import default_device
from extractors.video.inputs import find_videos
from lstr.checkpoint import load
from pipelines.datasets.dataset import read_split
from pipelines.demo.scenes import SceneConfig, render_scenes
from pipelines.detection.checkpoint import leave_default
from pipelines.detection.events import Decided, Opened
from pipelines.detection.job import DetectOptions, detect_sources
from pipelines.detection.writer import OutputOptions
from pipelines.evaluation.scoring import score_split
from pipelines.extraction.job import extract
from pipelines.extraction.options import ExtractOptions
from pipelines.files.json_files import write_json
from pipelines.progress import Failed, Progress, Tell
from pipelines.training.config import resolve
from pipelines.training.train import train

PRESET = "small"


def run(output: Path, progress: Tell, say: Callable[[str], None]) -> dict:
    """Everything in `output`; what is there from an earlier run is kept, but the detection is made again.

    Returns metrics of LSTR and both baselines, seconds a stage, and the paths of report, checkpoint and video.
    """
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        say(f"{name} …")
        start = perf_counter()
        yield
        seconds[name] = perf_counter() - start

    device = default_device()
    with stage("render"):
        labels = render_scenes(output, SceneConfig(), lambda done, total: progress("render", done, total))
    videos = find_videos([output / "videos"])
    features = output / "features"
    with stage("extract"):
        options = ExtractOptions(features, device=device, recipe=PRESETS["fast"], calibrate=labels, workers=1)
        for event in extract(videos, options):
            if isinstance(event, Progress):
                progress(event.what, event.done, event.total)
            if isinstance(event, Failed):
                raise RuntimeError(event.reason)
    run_folder = output / "run"
    with stage("train"):
        split = read_split(features, labels, "training")
        model, config = resolve(PRESET, {}, split.dims)
        resumed = (run_folder / "resume.pt").exists()
        for step in train(split, model, config, run_folder, device, resumed, preset=PRESET):
            progress("train", step.step, step.steps)
    loaded = load(run_folder / "checkpoint.pt")
    with stage("evaluate"):
        held_out = read_split(features, labels, "testing")
        for event in score_split(loaded, held_out):
            if isinstance(event, Progress):
                progress(event.what, event.done, event.total)
            else:
                metrics = event.result.document
    write_json(output / "metrics.json", metrics)
    with stage("detect"):
        video_id = held_out.videos[0].id
        options = DetectOptions(
            loaded, device=device, output=OutputOptions(output / "timeline", labels=held_out.labels)
        )
        for event in detect_sources([videos[video_id]], options):
            if isinstance(event, Opened):
                chunks = event.status.total or 0
            elif isinstance(event, Decided):
                progress("detect", event.decision.chunk + 1, chunks)
    return {
        "metrics": metrics,
        "seconds": seconds,
        "report": str((output / "timeline" / f"{video_id}.html").resolve()),
        "checkpoint": str(leave_default(run_folder / "checkpoint.pt")),
        "video": str(videos[video_id]),
    }
