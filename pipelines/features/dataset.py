"""Data sets: feature folders with label files, and checks that they fit a checkpoint.

The record of each video lists which networks were trained on it (`"seen": ["rgb", "flow"]`), and the fold that was
excluded from their training. If features have no records, or if the training videos of their weights are unknown (as
for published weights), the videos count as unseen.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import Clock
from lstr.config import WindowConfig
from lstr.errors import CheckpointError, LabelsError, RecipeError, few
from lstr.extractors.streams import MODEL_STREAMS, STREAMS, streams_of_model
from lstr.labels.check import NOTE, OTHER_RATE, UNITS, UNLABELLED, Finding, check, check_set, in_order, stop_at_errors
from lstr.labels.label_set import Labels, select, subset_named, targets, with_ambiguous
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.annotations.label_files import read_label_files
from lstr.pipelines.features.feature_files import NOTHING, Stated
from lstr.pipelines.features.folder import FeatureFolder, open_folders
from lstr.pipelines.features.output_folder import streams_trained_on
from lstr.pipelines.progress import Notice

Paths = str | Path | Sequence[str | Path]


class TwoStreamArray:
    """RGB (L, 2048) and flow (L, 1024) features, as arrays or FeatureRows; a missing stream has a width of 0."""

    def __init__(self, rgb: Any, flow: Any):
        self.rgb, self.flow = rgb, flow

    @property
    def dims(self) -> tuple[int, int]:
        """The widths of the RGB and the flow features."""
        return self.rgb.shape[1], self.flow.shape[1]

    def __len__(self) -> int:
        return len(self.rgb)

    def __getitem__(self, chunks: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows (..., 3072) float32 for any chunk indices, with RGB first (published order)."""
        return np.concatenate([self.rgb[chunks], self.flow[chunks]], axis=-1, dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """Options of all jobs on features and labels."""

    features: Sequence[str | Path]
    """Feature folders, read as one."""
    labels: str | Path
    """Labels of any form, see `read_label_file`, or a data_info.json."""
    subset: str | None = None
    """The subset of the videos; None for the usual one of the job."""
    dataset: str | None = None
    """Which data set of a data_info.json."""
    rgb: str | None = None
    """Name of the folder of RGB features, if a feature folder has several; `flow` alike."""
    flow: str | None = None
    skip_missing: bool = False
    """Skip labelled videos without features."""
    device: str | None = None
    """`cpu` or `cuda`; None for the GPU if the machine has one."""


@dataclass(frozen=True)
class LabelledVideo:
    """A video's features (L, D) and multi-hot targets (L, C)."""

    id: str
    features: TwoStreamArray
    targets: NDArray[np.number]
    seen: tuple[str, ...] = ()  # streams with a network that was trained on this video, according to its record


@dataclass(frozen=True)
class Split:
    """The labelled videos of one subset, with their folder and labels."""

    folder: FeatureFolder
    labels: Labels
    videos: list[LabelledVideo]

    @property
    def dims(self) -> tuple[int, int]:
        return self.videos[0].features.dims

    def narrowed(self, config: WindowConfig, streams: Collection[str] = ()) -> "Split":
        """Return the same videos with only a model's inputs, restricted to `streams` if these are known.

        Raises CheckpointError if the width of an input differs, and as `FeatureFolder.load`.
        """
        folder, videos = self.folder, self.videos
        if folder.recipe and streams and not set(folder.recipe.streams) <= set(streams):
            folder = folder.only(streams)
            loaded = {v.id: folder.load(v.id, self.labels.videos[v.id].n_chunks) for v in videos}
            videos = [replace(v, features=TwoStreamArray(*loaded[v.id])) for v in videos]
        wanted = (config.rgb_dim, config.flow_dim)
        for stream, want, has in zip(MODEL_STREAMS, wanted, videos[0].features.dims, strict=True):
            if want not in (0, has):
                raise CheckpointError(
                    f"The model takes {stream} features of width {want}; {videos[0].id!r} in {folder.path} has {has}.",
                    "use the feature folder of the checkpoint's recipe.",
                )
        cut = []
        for video in videos:
            none = np.zeros((len(video.features), 0), np.float32)
            rgb, flow = video.features.rgb, video.features.flow
            array = TwoStreamArray(rgb if config.rgb_dim else none, flow if config.flow_dim else none)
            cut.append(replace(video, features=array))
        return replace(self, folder=folder, videos=cut)

    @property
    def n_chunks(self) -> int:
        return sum(len(video.features) for video in self.videos)

    @property
    def clock(self) -> Clock:
        return self.folder.clock


def subset_of(labels: Labels, wanted: str | None, option: str) -> str:
    """Return the `wanted` subset, or the default one for evaluation: `testing` if it exists, else `validation`.

    Raises LabelsError if the labels have no such subset.
    """
    present = sorted({video.subset for video in labels.videos.values()})
    choices = [subset_named(wanted)] if wanted else ["testing", "validation"]
    for subset in choices:
        if subset in present:
            return subset
    if not labels.has_subsets:
        raise LabelsError(
            "The label file has no subsets, so all its videos are for training.",
            f"add subsets to it, or use all its videos with {option} training.",
        )
    raise LabelsError(
        f"The label file has no {' or '.join(choices)} subset (it has: {', '.join(present) or 'none'}).",
        f"name one of them with {option}.",
    )


@dataclass(frozen=True)
class Dataset:
    """Complete feature folders and labels, before a selection."""

    folder: FeatureFolder
    labels: Labels
    source: str  # the label file, for messages

    def only(self, streams: Collection[str]) -> "Dataset":
        """Return the data set with the features of these streams; unchanged without names."""
        return replace(self, folder=self.folder.only(streams)) if streams else self

    def with_classes(self, classes: tuple[str, ...]) -> "Dataset":
        """Use a model's classes in its order, if the labels list no classes and have no others except `Ambiguous`."""
        classes = with_ambiguous(classes, self.labels.classes)
        if self.labels.lists_classes or not set(self.labels.classes) <= set(classes):
            return self
        return replace(self, labels=replace(self.labels, classes=classes))

    def with_durations(self) -> "Dataset":
        """Use the durations of features for videos without a duration in the label file, for example in a CSV file."""
        present = set(self.folder.ids())
        videos = {
            name: replace(video, duration=self.folder.clock.at(self.folder.length(name)))
            for name, video in self.labels.videos.items()
            if video.duration is None and video.n_chunks is None and name in present
        }
        return replace(self, labels=replace(self.labels, videos={**self.labels.videos, **videos}))

    def split(self, subset: str | None, skip_missing: bool = False, option: str = "--subset") -> Split:
        """Return the videos of a subset with features, and their targets.

        Raises LabelsError if a labelled video has no features (unless `skip_missing`), and RecipeError if features
        cannot be used.
        """
        subset = subset_of(self.labels, subset, option)
        wanted = select(self.labels, subset).videos
        present = set(self.folder.ids())
        missing = sorted(wanted.keys() - present)
        if missing and not skip_missing:
            raise LabelsError(
                f"{self.source} names {len(missing)} {subset} video{'s' * (len(missing) > 1)} without features in "
                f"{self.folder.path}: "
                f"{few([self.folder.describe_missing(video_id) for video_id in missing])}.",
                "extract them with `lstr extract`, or skip them with --set skip_missing=true.",
            )
        videos, clock = [], self.folder.clock
        for video_id in sorted(wanted.keys() & present):
            label = wanted[video_id]
            array = TwoStreamArray(*self.folder.load(video_id, label.n_chunks))
            if not len(array):  # an error of the labels unless missing features are skipped
                continue
            seen = streams_trained_on(self.folder.read_record(video_id)) or ()
            truth = targets(label, self.labels.classes, len(array), clock)
            videos.append(LabelledVideo(video_id, array, truth, tuple(seen)))
        if not videos:
            raise LabelsError(
                f"No {subset} video of {self.source} has features in {self.folder.path}.",
                "check that the video ids in the label file are the file names without suffix.",
            )
        usual = Counter(video.features.dims for video in videos).most_common(1)[0][0]
        for video in videos:
            for stream, width, want in zip(MODEL_STREAMS, video.features.dims, usual, strict=True):
                if width != want:
                    raise RecipeError(
                        f"{video.id!r} has {stream} features of width {width} in {self.folder.path}; most videos have "
                        f"{want}.",
                        "make the features of this video again, or remove it from the labels.",
                    )
        return Split(self.folder, self.labels, videos)

    def check(self, subsets: Collection[str] = (), skip_missing: bool = False) -> list[Finding]:
        """Return findings about the labels, and about mismatches with the features of some or all subsets."""
        subsets = {subset_named(subset) for subset in subsets}
        others = {name for name, video in self.labels.videos.items() if subsets and video.subset not in subsets}
        lengths = {video_id: self.folder.length(video_id) for video_id in self.folder.ids() if video_id not in others}
        return check(self.labels, lengths, subsets, skip_missing, clock=self.folder.clock)

    def notices(self, split: "Split") -> list[Notice]:
        """Return notices about labels that may make scores on a split misleading.

        Raises LabelsError if times of its videos are not in seconds.
        """
        lengths = {video.id: len(video.features) for video in split.videos}
        known = replace(self.labels, videos={name: self.labels.videos[name] for name in lengths})
        found = check(known, lengths, clock=split.clock)
        stop_at_errors([finding for finding in found if finding.kind in UNITS], self.source)
        of_split = [finding for finding in found if finding.kind in (OTHER_RATE, UNLABELLED)]
        kinds = ("never trained", "one recording")
        of_set = [finding for finding in check_set(self.labels) if finding.severity == NOTE or finding.kind in kinds]
        return [
            Notice(f"{self.source}: {finding.sentence}.", warning=finding.severity != NOTE)
            for finding in in_order([*of_split, *of_set])
        ]


def read_dataset(
    features: Paths,
    labels: Paths,
    streams: tuple[str | None, str | None] = (None, None),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    stated: Stated = NOTHING,
    clock: Clock | None = None,
) -> Dataset:
    """Read one or more feature folders and label files of any formats (see `read_label_files`).

    Args:
        features: Feature folders.
        labels: Label files.
        streams: Names of the RGB and flow folders, if a feature folder has several.
        dataset: Name of the data set in a data_info.json.
        lenient: Keep invalid segments, for `Dataset.check`.
        skip_missing: Skip videos of a data_info.json without targets.
        stated: The user's description of features from other programs.
        clock: The clock of a model, which the features must have.

    Raises:
        MissingPathError, RecipeError, LabelsError: Features or labels cannot be read.
    """
    roots = [features] if isinstance(features, str | Path) else list(features)
    folder = open_folders(roots, *streams, stated)
    folder = folder if clock is None else folder.on(clock)
    files = [labels] if isinstance(labels, str | Path) else list(labels)
    # lengths are read lazily
    present = {i: partial(lambda i: float(folder.clock.at(folder.length(i))), i) for i in folder.ids()}
    read = read_label_files(files, roots, dataset, lenient, skip_missing, present, folder.clock)
    return Dataset(folder, read, few(list(map(str, files))))


def read_split(features: Paths, labels: str | Path, subset: str | None, skip_missing: bool = False) -> Split:
    """Read the videos of a subset with features, and their targets. Raises as `read_dataset` and `Dataset.split`."""
    return read_dataset(features, labels, skip_missing=skip_missing).split(subset, skip_missing)


def network_overlap(split: Split, config: WindowConfig) -> dict[str, list[str]]:
    """Return, by video id, the model's input streams with a network that was trained on the video, if there are any."""
    found = {
        video.id: [stream for stream in streams_of_model(config.streams) if stream in video.seen]
        for video in split.videos
    }
    return {video_id: streams for video_id, streams in found.items() if streams}


def describe_overlap(overlap: Mapping[str, Sequence[str]], n_videos: int, what: str) -> str:
    """Describe on how many of `n_videos` networks were trained, with their streams and examples."""
    networks = f"feature networks ({', '.join(streams_of(overlap))})"
    return f"{networks} were trained on {len(overlap)} of {n_videos} {what}, for example {min(overlap)!r}"


def streams_of(overlap: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all streams of a `network_overlap`, in the order of STREAMS."""
    return [stream for stream in STREAMS if any(stream in streams for streams in overlap.values())]


def training_videos(loaded: Checkpoint, ids: Iterable[str]) -> list[str]:
    """Return the ids of videos that a checkpoint or a network in its file was trained on."""
    known = {*(loaded.metrics.get("training_videos") or ()), *(loaded.about.get("seen") or ())}
    return sorted(known.intersection(ids))


def training_overlap(loaded: Checkpoint) -> dict[str, Any] | None:
    """Return how many training videos of a checkpoint its networks were trained on, by stream; None without any."""
    match loaded.extra.get("data"):
        case {"seen": dict(seen), **data}:
            streams = [stream for stream in STREAMS if stream in str(seen.get("streams"))]
            return {"videos": seen.get("videos"), "of": data.get("videos"), "streams": streams}
    return None
