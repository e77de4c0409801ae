"""Unexpected errors at each stage of the work on one video, `bad`, which has a different size than the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.videos import write_video

SIZE = (80, 48)  # of the frames of `bad` only, by which flow and networks recognise it


def write_bad(path: Path) -> Path:
    """Write a valid video of two seconds."""
    return write_video(path, range(0, 1200, 20), SIZE)


def inject(setattr: Callable, stage: str, error: Exception) -> None:
    """Make a stage of the work on `bad` raise an error; `setattr` is from monkeypatch or builtin."""
    from lstr import streaming
    from lstr.extractors.flow.workers import FlowWorkers
    from lstr.extractors.networks.crops import View
    from lstr.extractors.video import probe
    from lstr.extractors.video.live import LiveReader
    from lstr.extractors.video.reader import FrameReader
    from lstr.files.arrays import RowFile
    from lstr.pipelines.features import extraction as plan

    if stage == "probe":
        for module in (probe, plan):
            setattr(module, "probe", _raising(probe.probe, error, lambda path: Path(path).stem == "bad"))
    elif stage == "decode":
        frames = FrameReader.frames

        def cut(self, long_side):
            for i, frame in enumerate(frames(self, long_side)):
                if self.video.path.stem == "bad" and i == 12:
                    raise error
                yield frame

        setattr(FrameReader, "frames", cut)
    elif stage == "flow":
        setattr(FlowWorkers, "pair", _raising(FlowWorkers.pair, error, lambda _, image, __: _is_bad(image)))
    elif stage == "network":
        setattr(View, "image", _raising(View.image, error, lambda _, frames, flow=None: _is_bad(frames[0, ..., 0])))
    elif stage == "camera":
        setattr(LiveReader, "_timed", _raising(LiveReader._timed, error, lambda reader, *_: reader.input.id == "bad"))
    elif stage == "model":  # `bad` is the first stream
        step = streaming.step_streams
        setattr(streaming, "step_streams", _raising(step, error, lambda model, state, indices, *_: 0 in indices))
    else:
        setattr(RowFile, "append", _raising(RowFile.append, error, lambda rows, _: ".bad.npy" in rows.path.name))


def _is_bad(image) -> bool:
    return image.shape == SIZE[::-1]


def _raising(function: Callable, error: Exception, condition: Callable[..., bool]) -> Callable:
    def raising(*arguments, **keywords):
        if condition(*arguments):
            raise error
        return function(*arguments, **keywords)

    return raising
