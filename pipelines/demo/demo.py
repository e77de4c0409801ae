"""The whole chain on videos made on the spot: render, extract, train, evaluate, detect."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from extractors.presets import PRESETS
from extractors.twostream import default_device
from extractors.video.inputs import find_videos
from lstr.checkpoint import load
from lstr.errors import LstrError
from pipelines.datasets.dataset import read_split
from pipelines.demo.scenes import rendering
from pipelines.detection.checkpoint import make_default
from pipelines.detection.events import Decided, Opened
from pipelines.detection.job import DetectOptions, detect_sources
from pipelines.detection.writer import OutputOptions
from pipelines.evaluation.scoring import score_split
from pipelines.extraction.job import extract
from pipelines.extraction.options import ExtractOptions
from pipelines.files.json_files import write_json
from pipelines.progress import Failed, Finished, Notice, Progress
from pipelines.training.log import Step
from pipelines.training.train import TrainOptions, train

PRESET = "small"
Event = Progress | Notice


@dataclass(frozen=True)
class Demo:
    """What the demo made: metrics of LSTR and both baselines, seconds by part, and where things are."""

    metrics: dict[str, Any]
    seconds: dict[str, float]
    report: Path
    checkpoint: Path
    video: Path


def demo(output: Path) -> Iterator[Event | Finished[Demo]]:
    """Run everything in `output`; what is there from an earlier run is kept, but the detection is made again.

    Raises LstrError when one of its own videos cannot be extracted, and what the jobs raise.
    """
    device, seconds = default_device(), dict[str, float]()

    def part(name: str, work: Generator[Event, None, Any]) -> Generator[Event, None, Any]:
        """Announce a part, and measure its seconds."""
        yield Notice(f"{name} …", warning=False)
        start = perf_counter()
        result = yield from work
        seconds[name] = perf_counter() - start
        return result

    labels = yield from part("render", _render(output))
    videos = find_videos([output / "videos"])
    features = output / "features"
    yield from part("extract", _extract(videos, features, labels, device))
    run = output / "run"
    yield from part("train", _train(features, labels, run, device))
    loaded = load(run / "checkpoint.pt")
    held_out = read_split(features, labels, "testing")
    metrics = yield from part("evaluate", _result(score_split(loaded, held_out)))
    write_json(output / "metrics.json", metrics.document)
    video_id = held_out.videos[0].id
    files = OutputOptions(output / "timeline", labels=held_out.labels)
    options = DetectOptions(loaded, device=device, output=files)
    yield from part("detect", _detect(videos[video_id], options))
    page = (output / "timeline" / f"{video_id}.html").resolve()
    checkpoint = make_default(run / "checkpoint.pt")
    yield Finished(Demo(metrics.document, seconds, page, checkpoint, videos[video_id]))


def _render(output: Path) -> Generator[Event, None, Path]:
    yield from rendering(output)
    return output / "labels.json"


def _extract(videos: dict[str, Path], features: Path, labels: Path, device: str) -> Generator[Event, None, None]:
    options = ExtractOptions(features, device=device, recipe=PRESETS["fast"], calibrate=labels, workers=1)
    for event in extract(videos, options):
        if isinstance(event, Progress):
            yield event
        elif isinstance(event, Failed):
            raise LstrError(f"{event.id} of the demo cannot be extracted: {event.reason}", event.hint)


def _train(features: Path, labels: Path, run: Path, device: str) -> Generator[Event, None, None]:
    resumed = (run / "resume.pt").exists()
    for event in train(TrainOptions([features], labels, run, PRESET, resume=resumed, device=device)):
        if isinstance(event, Step):
            yield Progress("train", event.step, event.steps)


def _result(events: Iterator[Progress | Finished]) -> Generator[Event, None, Any]:
    """A job's progress, and its result."""
    result = None
    for event in events:
        if isinstance(event, Finished):
            result = event.result
        else:
            yield event
    return result


def _detect(video: Path, options: DetectOptions) -> Generator[Event, None, None]:
    chunks = 0
    for event in detect_sources([video], options):
        if isinstance(event, Opened):
            chunks = event.status.total or 0
        elif isinstance(event, Decided):
            yield Progress("detect", event.decision.chunk + 1, chunks)
        elif isinstance(event, Failed):
            raise LstrError(event.reason, event.hint)
