"""Extraction as a job: its events in their order, and what closing it leaves."""

import threading

import pytest

from lstr.errors import OutputError
from lstr.files.atomic import leftovers
from lstr.pipelines.failures import read_failures
from lstr.pipelines.features.extract import extract, plan
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, Plan
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import OutputFolder
from lstr.pipelines.progress import Failed, Finished, Notice, Progress, result_of
from tests.support.small_set import SMALL


@pytest.fixture
def options(tmp_path) -> ExtractOptions:
    """RGB alone, which needs no flow."""
    recipe = SMALL.narrowed(["rgb"])
    return ExtractOptions(tmp_path / "features", device="cpu", threads=1, workers=1, recipe=recipe)


@pytest.fixture
def videos(small_set, tmp_path):
    (tmp_path / "bad.mp4").write_text("no video")
    return {"bad": tmp_path / "bad.mp4", "scene_00": small_set.videos / "scene_00.mp4"}


def test_events_in_their_order(videos, options):
    planned = plan(videos, options)
    assert not options.output.exists(), "a plan makes nothing"
    events = list(extract(videos, options))
    assert [type(event) for event in events] == [
        Plan,
        OutputFolder,
        Notice,
        Failed,
        *[Progress] * 20,
        Outcome,
        Finished,
    ]
    assert events[0] == planned and [video.state for video in planned.videos] == ["unreadable", "to do"]
    assert events[1] == OutputFolder(options.output, open_features(options.output).recipe)
    assert "random weights" in events[2].text and events[3].id == "bad" and events[3].reason and events[3].hint
    assert events[4:24] == [Progress("scene_00", done, 20) for done in range(1, 21)]
    assert (events[24].id, events[24].state, events[24].chunks) == ("scene_00", "done", 20)
    summary = events[-1].result
    assert dict(summary.counts) == {"failed": 1, "done": 1} and [o.id for o in summary.failed] == ["bad"]
    again = result_of(extract(videos, options))
    assert dict(again.counts) == {"failed": 1, "kept": 1}


def test_a_job_that_is_closed_ends_what_it_started(videos, options):
    events = extract(videos, options)
    assert next(event for event in events if isinstance(event, Progress)).what == "scene_00"
    events.close()
    assert not {"reader", "networks", "batches", "looks"} & {
        thread.name.partition("_")[0] for thread in threading.enumerate()
    }
    folder = open_features(options.output)
    assert folder.ids() == [] and not leftovers(options.output)
    assert [failure["id"] for failure in read_failures(folder.path)] == ["bad"], (
        "what has failed is recorded all the same"
    )


@pytest.mark.parametrize("video_id", ["../../x", "/x/a", "a/../../b", "", 7, "x" * 300])
def test_an_id_names_a_file_inside_the_folder(small_set, options, video_id):
    """Features were written beside the folder, or anywhere, and reported as done."""
    with pytest.raises(OutputError, match="The video id") as caught:
        result_of(extract({video_id: small_set.videos / "scene_00.mp4"}, options))
    assert "without the ending" in caught.value.hint and not options.output.exists()
