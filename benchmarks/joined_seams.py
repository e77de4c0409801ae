"""Whether to join features is to join pixels: a file of two real clips, extracted, beside the joined features.

The frames of a sequence's hug and of a fall, as extraction sees them, are written one after the other without loss.
`joined.py` puts what this finds into its record.
"""

from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np
from finetuned import lstr
from joined_clips import CUE, FALL, FALLS, INTERACTIONS
from synthetic_features import runs_of

from lstr.extractors.video.file_reader import FrameReader, read_chunks
from lstr.extractors.video.frames import CHUNK, FPS
from lstr.extractors.video.probe import probe
from lstr.labels.label_set import read_labels, targets
from lstr.pipelines.features.folder import FeatureFolder, open_features

CLIPS = {INTERACTIONS: ("seq01", CUE), FALLS: ("fall-01", FALL)}


def check_seams(data: Path, folders: dict[str, Sequence[Path]], weights: Path, work: Path) -> dict:
    """Largest difference between features of joined pixels and joined features, and how large these are.

    folders: of each set, features that the network in `weights` made.
    """
    images, expected = [], []
    for name, (video_id, label) in CLIPS.items():
        labels = read_labels(data / name / "labels.json")
        folder: FeatureFolder = open_features(folders[name][0])
        rows = np.concatenate(folder.load(video_id), axis=1)
        shown = targets(labels.videos[video_id], labels.classes, len(rows)).argmax(axis=1)
        start, stop, _ = next(run for run in runs_of(shown) if labels.classes[run[2]] == label)
        reader = FrameReader(probe(data / name / "videos" / f"{video_id}.mp4"))
        images += [
            chunk.frames for chunk in read_chunks(reader, folder.recipe.long_side) if start <= chunk.index < stop
        ]
        expected.append(rows[start:stop])
    work.mkdir(parents=True, exist_ok=True)
    write_without_loss(work / "joined.mp4", np.concatenate(images))
    lstr("extract", work / "joined.mp4", "-o", work / "features", "--recipe", weights, "--stream", "flow")
    found = np.concatenate(open_features(work / "features").load("joined"), axis=1)
    wanted = np.concatenate(expected)
    apart = np.abs(found - wanted).max(axis=1)  # (L,)
    at = len(expected[0])
    return {
        "chunks": len(wanted),
        "seam": at,
        "largest_difference": float(apart.max()),
        "beside_the_seam": float(apart[at - 1 : at + 1].max()),
        "largest_feature": float(np.abs(wanted).max()),
    }


def write_without_loss(path: Path, images: np.ndarray) -> None:
    """RGB images (N, H, W, 3) as an MP4 at 24 frames a second."""
    assert len(images) % CHUNK == 0
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264rgb", rate=FPS, options={"qp": "0"})
        stream.height, stream.width, stream.pix_fmt = *images.shape[1:3], "rgb24"
        for image in images:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        output.mux(stream.encode())
