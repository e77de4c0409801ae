"""Feature folder and label file together: labelled videos for training and evaluation."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from extractors.errors import RecipeError
from lstr.config import LSTRConfig
from lstr.errors import CheckpointError, LabelsError
from lstr.labels import Labels, read_labels, select, targets
from pipelines.store import FeatureFolder, open_features


class TwoStreamArray:
    """RGB (L, 2048) and flow (L, 1024), memory-mapped, read as rows (..., 3072) float32 of any chunk indices.

    For a model of one stream the other is cut to a width of 0.
    """

    def __init__(self, rgb: np.ndarray, flow: np.ndarray):
        self.rgb, self.flow = rgb, flow

    def __len__(self) -> int:
        return len(self.rgb)

    def __getitem__(self, chunks) -> np.ndarray:
        """Appearance first, then motion (published order)."""
        return np.concatenate([self.rgb[chunks], self.flow[chunks]], axis=-1).astype(np.float32, copy=False)


@dataclass(frozen=True)
class LabelledVideo:
    """A video's features (L, D) and multi-hot targets (L, C)."""

    id: str
    features: TwoStreamArray
    targets: np.ndarray


@dataclass(frozen=True)
class Split:
    """The labelled videos of one subset, with what they came from."""

    folder: FeatureFolder
    labels: Labels
    videos: list[LabelledVideo]

    @property
    def dims(self) -> tuple[int, int]:
        """Widths of the RGB and the flow features."""
        first = self.videos[0].features
        return first.rgb.shape[1], first.flow.shape[1]

    def narrowed(self, config: LSTRConfig) -> "Split":
        """The same videos with the streams a model takes. Raises CheckpointError where a stream has another width."""
        wanted = (config.rgb_dim, config.flow_dim)
        if any(want not in (0, has) for want, has in zip(wanted, self.dims, strict=True)):
            raise CheckpointError(
                f"The model takes features of width {wanted}, {self.folder.path} holds {self.dims}.",
                "give the feature folder of the checkpoint's recipe.",
            )
        cut = [
            replace(v, features=TwoStreamArray(v.features.rgb[:, : wanted[0]], v.features.flow[:, : wanted[1]]))
            for v in self.videos
        ]
        return replace(self, videos=cut)

    @property
    def n_chunks(self) -> int:
        """Chunks in all."""
        return sum(len(video.features) for video in self.videos)


def subset_of(labels: Labels, wanted: str | None) -> str:
    """The subset asked for, or the one to test on: `testing` where there is one, else `validation`.

    Raises LabelsError when the label file has no such subset.
    """
    present = sorted({video.subset for video in labels.videos.values()})
    choices = [wanted] if wanted else ["testing", "validation"]
    for subset in choices:
        if subset in present:
            return subset
    raise LabelsError(
        f"The label file has no {' or '.join(choices)} subset (it has: {', '.join(present) or 'none'}).",
        "name one of them with --subset.",
    )


def read_split(features: str | Path, labels: str | Path, subset: str | None, skip_missing: bool = False) -> Split:
    """The videos of a subset that have features, with their targets.

    Raises LabelsError when a labelled video has no features (unless `skip_missing`), RecipeError or
    MissingPathError when the feature folder cannot be used.
    """
    folder, read = open_features(features), read_labels(labels)
    subset = subset_of(read, subset)
    wanted = select(read, subset).videos
    present = set(folder.ids())
    missing = sorted(wanted.keys() - present)
    if missing and not skip_missing:
        some = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise LabelsError(
            f"{labels} names {len(missing)} {subset} videos that have no features in {features}: {some}.",
            "extract them with `lstr extract`, or leave them out with --skip-missing.",
        )
    videos = []
    for video_id in sorted(wanted.keys() & present):
        array = TwoStreamArray(*folder.load(video_id))
        videos.append(LabelledVideo(video_id, array, targets(wanted[video_id], read.classes, len(array))))
    if not videos:
        raise LabelsError(
            f"No {subset} video of {labels} has features in {features}.",
            "check that video ids in the label file are the file names without their ending.",
        )
    widths = {(video.features.rgb.shape[1], video.features.flow.shape[1]) for video in videos}
    if len(widths) > 1:
        raise RecipeError(f"{features} mixes features of different widths: {sorted(widths)}.", "extract them again.")
    return Split(folder, read, videos)
