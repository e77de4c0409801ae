"""The whole chain on videos made on the spot: render them, learn from most, detect on the others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from lstr.errors import LstrError, OutputError
from lstr.files.atomic import check_writable
from lstr.labels.label_set import read_labels
from lstr.pipelines.detection.decision import Decided, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import OutputOptions
from lstr.pipelines.learning.learn import Event as LearnEvent
from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.progress import Failed, Finished, Progress
from lstr.pipelines.scenes import SceneConfig, rendering

SCENES = SceneConfig(n_videos=14, n_testing=4, seconds=12.0)
RECIPE = "difference"
# Enough to tell drawn figures apart, in a minute: small pictures, few of them, and none of a camera that shakes or is
# nearer, as nobody drew one. With pictures that shake one of five seeds had a false alarm.
SETTINGS = {"epochs": "6", "draws": "384", "height": "64", "width": "85", "shake": "0", "zoom": "1"}
ABOUT = {"demo": True, "title": "the demo, which has only seen drawings"}
Event = Progress | LearnEvent


@dataclass(frozen=True)
class Demo:
    """What the demo made, and how well its model did on videos that were held out."""

    learnt: Learnt
    index: Path
    """The page that leads to the detections"""
    pages: Mapping[str, Path]
    """By id of the video"""
    seconds: float

    @property
    def events(self) -> Mapping[str, Any]:
        """Found and missed actions and false alarms, as `lstr evaluate` has them."""
        return self.learnt.about["metrics"]["events"]


def demo(output: Path, scenes: SceneConfig = SCENES) -> Iterator[Event | Finished[Demo]]:
    """Run everything in `output`; what is there from an earlier run is kept, but the detection is made again.

    The held-out videos are watched one after the other, as `lstr detect -m` does.
    Raises OutputError for a folder with other things in it, LstrError where one of its own videos cannot be read, and
    what the jobs raise.
    """
    start = perf_counter()
    check_writable(output)
    if output.is_dir() and any(output.iterdir()) and not (output / "videos").is_dir():
        raise OutputError(f"{output} holds something else than a demo.", "name a new folder: lstr demo -o DIR.")
    yield from rendering(output, scenes)
    videos, labels = output / "videos", output / "labels.json"
    model = output / "demo.lstr"
    for event in learn(
        LearnOptions([str(videos)], str(labels), model, settings=SETTINGS, about=ABOUT, folds=0, recipe=RECIPE)
    ):
        match event:
            case Failed():
                raise LstrError(f"{event.id} of the demo cannot be read: {event.reason}", event.hint)
            case Finished(learnt):
                pass
            case _:
                yield event
    held_out = [videos / f"{i}.mp4" for i, subset in learnt.about["videos"].items() if subset == "testing"]
    files = OutputOptions(output / "timeline", labels=read_labels(labels))
    chunks, pages = 0, dict[str, Path]()
    for seen in detect_sources(held_out, DetectOptions(model, output=files, keep_going=False)):
        match seen:
            case Opened():
                chunks = seen.status.total or 0
            case Decided():
                yield Progress(f"detect {seen.id}", seen.decision.chunk + 1, chunks)
            case Ended(id=video_id, page=Path() as page):
                pages[video_id] = page
            case Finished(detected):
                assert detected.index, "several videos have an index"
                yield Finished(Demo(learnt, detected.index.resolve(), pages, perf_counter() - start))
