"""The whole chain on videos made on the spot: render, extract, train, evaluate, detect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from extractors.flow.workers import FlowWorkers, default_workers
from extractors.presets import PRESETS
from extractors.twostream import default_device
from extractors.video.inputs import find_videos
from lstr.checkpoint import load
from pipelines.datasets.dataset import read_split
from pipelines.demo.scenes import SceneConfig, render_scenes
from pipelines.detection.detect import leave_default, truth_of
from pipelines.detection.detect import run as run_detection
from pipelines.detection.outputs import DEFAULT
from pipelines.detection.sources import open_video_source
from pipelines.evaluation.evaluate import evaluate
from pipelines.extraction.job import extract
from pipelines.extraction.options import ExtractOptions
from pipelines.files.json_files import write_json
from pipelines.networks.checkpoint_recipe import networks_of
from pipelines.progress import Failed, Progress, Tell
from pipelines.training.log import Step
from pipelines.training.train import TrainOptions, train

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
    with FlowWorkers(default_workers()) as workers:
        run_folder = output / "run"
        with stage("train"):
            resumed = (run_folder / "resume.pt").exists()
            for step in train(TrainOptions([features], labels, run_folder, PRESET, resume=resumed, device=device)):
                if isinstance(step, Step):
                    progress("train", step.step, step.steps)
        loaded = load(run_folder / "checkpoint.pt")
        with stage("evaluate"):
            held_out = read_split(features, labels, "testing")
            metrics = evaluate(loaded, held_out, progress)
        write_json(output / "metrics.json", metrics)
        with stage("detect"):
            video_id = held_out.videos[0].id
            twostream, _ = networks_of(loaded, None, None, device)
            source = open_video_source(video_id, videos[video_id], twostream, workers)
            for decision in run_detection(
                source, loaded, output / "timeline", DEFAULT, None, truth_of(held_out.labels, video_id)
            ):
                progress("detect", decision.chunk + 1, source.n_chunks)
    return {
        "metrics": metrics,
        "seconds": seconds,
        "report": str((output / "timeline" / f"{video_id}.html").resolve()),
        "checkpoint": str(leave_default(run_folder / "checkpoint.pt")),
        "video": str(videos[video_id]),
    }
