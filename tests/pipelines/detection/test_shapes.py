"""Pictures of another shape than a model has learnt from: its reader is told what is seen of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr import checkpoint
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import PROMPT, Input
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.model import load_checkpoint, open_networks
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.detection.source import FrameSource
from lstr.pipelines.progress import Finished, Notice
from tests.support.detections import run_live
from tests.support.exportable import CLASSES
from tests.support.videos import write_video

SIZES = {"wide": (128, 72), "tall": (72, 128), "usual": (96, 72)}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A checkpoint on pictures of 4:3, which nobody has trained."""
    folder, grey = tmp_path_factory.mktemp("learnt"), PRESETS["grey"].grey
    preset = PRESETS["grey"].having({"grey": replace(grey, network="shufflenetv2", weights=None, size=(32, 43))})
    recipe = build_twostream(preset, WeightSources(), "cpu").recipe
    torch.manual_seed(0)
    model = make_model(configure(kind="rnn", rgb_dim=1024, flow_dim=0, d_model=8), len(CLASSES)).eval()
    checkpoint.save(folder / "model.pt", model, CLASSES, recipe.to_dict(), {}, {}, {})
    return load_checkpoint(folder / "model.pt")


def said(events) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice) and "of another shape" in event.text]


def test_each_shape_of_files_is_told_once(learnt, tmp_path):
    videos = [
        write_video(tmp_path / f"{shape}{n}.mp4", range(0, 400, 20), SIZES[shape])
        for shape, n in (("usual", 0), ("wide", 0), ("wide", 1), ("tall", 0))
    ]
    events = [*detect_sources(videos, DetectOptions(learnt))]
    wide, tall = said(events)
    assert "of 128×72 pixels only the middle 76 % of the width" in wide and str(learnt.path) in wide
    assert "of 72×128 pixels only the middle 42 % of the height" in tall
    timelines = next(event.result.timelines for event in events if isinstance(event, Finished))
    assert [sum("shape" in text for text in one["warnings"]) for one in timelines.values()] == [0, 1, 1, 1]


def test_so_is_that_of_a_camera(learnt, tmp_path):
    path = write_video(tmp_path / "camera.ts", range(0, 1200, 20), SIZES["wide"])
    with open_networks(learnt, NetworkOptions()) as (twostream, workers, _), path.open("rb") as file:
        camera = Input("door", file, options=PROMPT, lasting=False)
        assert len(said(run_live([camera], learnt, (twostream, workers)))) == 1


def test_so_is_that_of_frames_that_a_program_has(learnt):
    """As the first chunk comes, and in the timeline."""
    width, height = SIZES["wide"]
    frames = [(np.zeros((height, width, 3), np.uint8), number / 24) for number in range(24)]
    events = [*detect_sources([FrameSource("door", frames)], DetectOptions(learnt))]
    assert len(said(events)) == 1
    timeline = next(event.result.timelines["door"] for event in events if isinstance(event, Finished))
    assert sum("of another shape" in text for text in timeline["warnings"]) == 1
