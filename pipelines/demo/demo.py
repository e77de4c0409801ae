"""The whole chain on videos made on the spot: render, extract, train, evaluate, detect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from extractors.flow.workers import FlowWorkers, default_workers
from extractors.presets import PRESETS
from extractors.twostream import WeightSources, default_device
from extractors.video.file_reader import find_videos
from lstr.checkpoint import load
from pipelines.datasets.dataset import read_split
from pipelines.demo.scenes import SceneConfig, render_scenes
from pipelines.detection.checkpoint import leave_default
from pipelines.detection.events import Decided, Opened
from pipelines.detection.job import DetectOptions, detect_sources
from pipelines.detection.writer import OutputOptions
from pipelines.evaluation.evaluate import evaluate
from pipelines.extraction.extract import extract
from pipelines.extraction.prepare import prepare
from pipelines.files.json_files import write_json
from pipelines.progress import Tell
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
    with FlowWorkers(default_workers()) as workers:
        with stage("extract"):
            twostream, folder = prepare(
                videos, output / "features", PRESETS["fast"], WeightSources(), labels, workers, device, progress
            )
            for outcome in extract(videos, folder, twostream, workers, progress):
                if outcome.state == "failed":
                    raise RuntimeError(outcome.reason)
        run_folder = output / "run"
        with stage("train"):
            split = read_split(folder.path, labels, "training")
            model, config = resolve(PRESET, {}, split.dims)
            resumed = (run_folder / "resume.pt").exists()
            for step in train(split, model, config, run_folder, device, resumed, preset=PRESET):
                progress("train", step.step, step.steps)
        loaded = load(run_folder / "checkpoint.pt")
        with stage("evaluate"):
            held_out = read_split(folder.path, labels, "testing")
            metrics = evaluate(loaded, held_out, progress)
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
