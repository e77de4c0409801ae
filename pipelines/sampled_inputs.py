"""Sample inputs of feature networks from videos, to calibrate random networks."""

from collections.abc import Generator, Mapping

import numpy as np
from numpy.typing import NDArray

from lstr.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.run import TwoStream
from lstr.extractors.video.inputs import local_copy
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import open_chunks
from lstr.files.remote import Place
from lstr.pipelines.failures import skip_failure
from lstr.pipelines.progress import Progress


def sampled_inputs(
    twostream: TwoStream, videos: Mapping[str, Place], workers: FlowWorkers | None, n_chunks: int
) -> Generator[Progress, None, dict[str, list[NDArray[np.uint8]]]]:
    """Return inputs of the networks from chunks that are spread evenly over videos: first crops (H, W, C) by stream.

    Videos that cannot be read are skipped.

    Args:
        twostream: The networks.
        videos: The videos by id.
        workers: Threads that compute flow; None if no network takes flow.
        n_chunks: Number of chunks.

    Raises:
        VideoError: No video can be read.
    """
    lengths = {}
    for video_id, source in videos.items():
        with skip_failure(source), local_copy(source) as (path, _):
            lengths[video_id] = probe(path).n_chunks
    total = sum(lengths.values())
    picked = np.unique(np.linspace(0, total - 1, min(n_chunks, total)).round().astype(int))
    recipe = twostream.recipe
    found: dict[str, list[NDArray[np.uint8]]] = {stream: [] for stream in recipe.streams}
    waiting, taken, start = [], 0, 0
    for video_id, length in lengths.items():
        wanted = set(picked[(picked >= start) & (picked < start + length)] - start)
        start += length
        if not wanted:
            continue
        with skip_failure(videos[video_id]), local_copy(videos[video_id]) as (path, _):
            for chunk in open_chunks(path, recipe.long_side)[2]:
                if chunk.index in wanted:
                    taken += 1
                    for stream in recipe.streams:
                        if stream != "flow":
                            found[stream].append(twostream.views[stream].cropped(chunk.frames)[0])
                    if recipe.flow and workers:
                        waiting.append((video_id, workers.submit(chunk.frames)))
                if chunk.index >= max(wanted):
                    break
    for at, (video_id, pending) in enumerate(waiting, start=1):
        with skip_failure(videos[video_id]):
            found["flow"].append(twostream.views["flow"].cropped(NO_FRAMES, pending.result())[0])
        yield Progress("calibration", at, len(waiting))
    if not taken or (waiting and not found["flow"]):
        raise VideoError("None of the videos for calibration can be read.", "use other videos.")
    return found
