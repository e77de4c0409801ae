"""Demo on rendered videos: learn from most of them, and detect on the others."""

from collections.abc import Iterator
from pathlib import Path

from lstr.errors import LstrError, OutputError
from lstr.files.atomic import check_writable
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.detection.decision import Decision, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import OutputOptions
from lstr.pipelines.learning.learn import Event as LearnEvent
from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.progress import Failed, Finished, Progress
from lstr.pipelines.scenes import SceneConfig, rendering

SCENES = SceneConfig(n_videos=14, n_testing=4, seconds=12.0)
RECIPE = "difference"
# These settings distinguish drawn figures within a minute: few small images, without shaking or zoom, because the
# rendered camera does not move. With shaken images one of five seeds had a false alarm.
SETTINGS = {"epochs": "6", "draws": "384", "size": "64,85", "shake": "0", "zoom": "1"}
ABOUT = {"demo": True, "title": "demo, trained on rendered figures"}
Event = Progress | LearnEvent


def demo(output: Path) -> Iterator[Event | Finished[tuple[Learnt, Path]]]:
    """Run the demo in `output`; existing files of an earlier run are kept, but the detection runs again.

    The result is the trained model, and the index page of its detections in the held-out videos, as written by
    `lstr detect -m`. Raises OutputError for a folder with other content, LstrError if a rendered video cannot be read,
    and the errors of the jobs.
    """
    check_writable(output)
    if output.is_dir() and any(output.iterdir()) and not (output / "videos").is_dir():
        raise OutputError(f"{output} is not a folder of the demo.", "name a new folder: lstr demo -o DIR.")
    yield from rendering(output, SCENES)
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
    files = OutputOptions(output / "timeline", labels=read_label_file(labels))
    chunks = 0
    for seen in detect_sources(held_out, DetectOptions(model, output=files, keep_going=False)):
        match seen:
            case Opened():
                chunks = seen.status.total or 0
            case Decision():
                yield Progress(f"detect {seen.source}", seen.chunk + 1, chunks)
            case Finished(detected):
                assert detected.index, "several videos have an index"
                yield Finished((learnt, detected.index.resolve()))
