"""Which videos each pair of networks learns from, and which choose its epoch.

The networks of folds in one feature space, so that a model may learn from the features of all.

Networks that were trained apart express the same in other directions: on UT-Interaction, LSTR that had learnt from one
network's features scored .34 on another's, .61 on the first's own. So each network without a fold gets a last, linear
layer that turns its features into those of the network of all videos, by ridge regression over videos that both have
learnt from. The fold's own videos have no part in it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lstr.errors import ConfigError, LabelsError, WeightsError, few
from lstr.extractors.networks.build import ALIGNMENT
from lstr.extractors.networks.weights_file import WeightSources, network_file, read_content
from lstr.extractors.presets import Preset
from lstr.extractors.run import TwoStream
from lstr.extractors.stages import closed_after
from lstr.extractors.twostream import build_twostream
from lstr.files.atomic import replacing, write_tensors
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, subset_named
from lstr.labels.video_ids import recording_of
from lstr.pipelines.features.chunk_cache import CachedVideo, cached_chunks
from lstr.pipelines.training.recogniser import Initial

HELD_OUT = 5  # one training video in so many chooses the epoch, where none is labelled for validation
DEFAULT = "validation"
FEWEST = 15  # training videos, of which some may be held out: of fewer each is needed to learn from


@dataclass(frozen=True)
class Pair:
    """One network per stream; by video ids. `fold` is the one that it never sees, or None for all videos'."""

    fold: int | None
    training: tuple[str, ...]
    validation: tuple[str, ...]
    """They choose the epoch; none of too few videos."""

    @property
    def seen(self) -> tuple[str, ...]:
        """All videos that had a part in it."""
        return tuple(sorted({*self.training, *self.validation}))

    @property
    def name(self) -> str:
        """The name of its files: `all` or `fold_2`."""
        return f"fold_{self.fold}" if self.fold else "all"


def actions_of(labels: Labels, video_id: str) -> set[str]:
    """The classes that are labelled in a video, but for background and ambiguous stretches."""
    return {s.label for s in labels.videos[video_id].segments if s.start < s.end} - {BACKGROUND, AMBIGUOUS}


def round_robin(ids: Collection[str], n_folds: int) -> dict[str, int]:
    """The fold of each id, from 1: the sorted recordings in turn, for clips of one must not be in two."""
    number = {recording: at % n_folds + 1 for at, recording in enumerate(sorted(set(map(recording_of, ids))))}
    return {video_id: number[recording_of(video_id)] for video_id in sorted(ids)}


def hold_out(ids: Collection[str], shows: Mapping[str, set[str]]) -> tuple[str, ...]:
    """One in HELD_OUT ids, evenly over the sorted ones; none that alone shows a class, and none that shows none.

    `shows` are the classes in each video. Where one cannot be held out, another is.
    """
    ids = sorted(ids)
    evenly = ids[HELD_OUT // 2 :: HELD_OUT]
    held: list[str] = []
    for video_id in (*evenly, *(other for other in ids if other not in evenly)) if len(ids) >= FEWEST else ():
        others = set().union(*(shows[other] for other in ids if other not in held and other != video_id))
        if len(held) < len(evenly) and shows[video_id] and shows[video_id] <= others:
            held.append(video_id)
    return tuple(sorted(held))


@dataclass(frozen=True)
class VideoParts:
    """Video ids by what they are for; sorted."""

    training: tuple[str, ...]
    validation: tuple[str, ...]
    unlabelled: tuple[str, ...]
    """Videos that are in neither subset."""
    absent: tuple[str, ...]
    """In one of the subsets, and not among the videos."""


def parts_of(labels: Labels, videos: Collection[str], subset: str, eval_subset: str | None) -> VideoParts:
    """What each video is for. eval_subset: None for `validation`, if the labels have it.

    Raises LabelsError where no video is in a subset that was named.
    """
    subset, eval_subset = subset_named(subset), eval_subset and subset_named(eval_subset)
    if subset == eval_subset:
        raise ConfigError(f"{subset!r} would train and choose the epoch.", "name another eval_subset, or none.")
    names = subset, eval_subset or DEFAULT
    training, validation = ({i for i, video in labels.videos.items() if video.subset == name} for name in names)
    for name, ids, option in ((subset, training, "subset"), (eval_subset, validation, "eval_subset")):
        if name and not ids & set(videos):
            present = sorted({video.subset for video in labels.videos.values()})
            first = next(iter(sorted(videos)), "none")
            hint = f"the labels have {', '.join(present) or 'no subset'} (choose with {option}), and ids as "
            hint += f"{next(iter(sorted(labels.videos)), 'none')!r}; the first of the videos is {first!r}."
            raise LabelsError(f"None of the {len(videos)} videos is labelled as {name}.", hint)
    used = training | validation
    groups = (training & set(videos), validation & set(videos), set(videos) - used, used - set(videos))
    return VideoParts(*(tuple(sorted(ids)) for ids in groups))


def make_pairs(
    labels: Labels,
    training: Collection[str],
    validation: Collection[str],
    n_folds: int,
    spare: bool = True,
) -> tuple[list[Pair], dict[str, int]]:
    """The pair of all videos and one without each fold, and the fold of each video that has one.

    A video of a fold neither trains its pair nor chooses its epoch. Without validation videos some of the training
    videos are held out, unless none is to be spared. Raises ConfigError or LabelsError for too
    few videos or labels.
    """
    most = len(set(map(recording_of, training)))
    if n_folds and not 2 <= n_folds <= most:
        what = "videos" if most == len(training) else f"videos of {most} recordings"
        raise ConfigError(f"{n_folds} folds of {len(training)} training {what}.", f"use a number from 2 to {most}.")
    folds = round_robin(training, n_folds) | round_robin(validation, n_folds) if n_folds else {}
    shows = {video_id: actions_of(labels, video_id) for video_id in {*training, *validation}}
    pairs = []
    for fold in (None, *range(1, n_folds + 1)):
        left = [video_id for video_id in training if fold is None or folds[video_id] != fold]
        chosen = tuple(sorted(i for i in validation if fold is None or folds[i] != fold))
        if not any(shows[video_id] for video_id in chosen):
            chosen = hold_out(left, shows) if spare else ()
        pair = Pair(fold, tuple(sorted(set(left) - set(chosen))), chosen)
        if not any(shows[video_id] for video_id in pair.training):
            raise LabelsError(
                f"Without fold {fold} no training video has a labelled action.", "use more folds, or label more videos."
            )
        pairs.append(pair)
    return pairs, folds


def check_blind(initial: Mapping[str, Initial], videos: Mapping[str, str]) -> None:
    """Raises WeightsError where first weights have seen some of the videos, so that no pair of folds would be blind.

    initial: by stream. videos: SHA-256 of their files by id.
    """
    for stream, begins in initial.items():
        known = {*begins.seen, *begins.seen.values()}
        seen = [video_id for video_id, sha256 in videos.items() if {video_id, sha256} & known]
        if seen:
            raise WeightsError(
                f"The first weights of the {stream} network have seen {len(seen)} of these videos, first {seen[0]!r}: "
                "no pair would be without it.",
                "begin with other weights, or leave out --folds.",
            )


def unlearnt(training: Collection[str], labels: Labels) -> list[str]:
    """The classes of which some videos show no sample."""
    shown = set().union(*(actions_of(labels, video_id) for video_id in training))
    return [name for name in labels.classes if name not in (BACKGROUND, AMBIGUOUS) and name not in shown]


def check_labels(labels: Labels, training: Sequence[str], source: str) -> str:
    """Warnings of a single video and of classes without a sample, or nothing. Raises LabelsError for no actions."""
    warnings = []
    if len(training) == 1:
        warnings.append(f"what is learnt from one training video, {training[0]!r}, may hold for that video alone")
    missing = unlearnt(training, labels)
    known = [name for name in labels.classes if name not in (BACKGROUND, AMBIGUOUS)]
    if missing == known:
        what = "video" if len(training) == 1 else "videos"
        raise LabelsError(
            f"{source} labels no action in the {len(training)} training {what}.",
            "label segments of them, or label other videos.",
        )
    if missing:
        warnings.append(
            f"no training video shows {few(missing)}: {len(missing)} of {len(known)} classes have no sample; add "
            'videos that show them, or take them out of "classes"'
        )
    return "; ".join(warnings)


MOST_CHUNKS = 20_000  # many times the width of the features; of more, evenly chosen ones are used
PENALTY = 1.0  # on features of unit variance, per chunk; .1 and 10 did as well
Rows = NDArray[np.float32]


def align(
    folder: Path,
    preset: Preset,
    stream: str,
    folds: Mapping[int, Collection[str]],
    videos: Mapping[str, CachedVideo],
    device: str,
) -> None:
    """Give the network of each fold its last layer, in its file; one that has it is left alone.

    folds: the videos that each has learnt from, as the network of all has.
    """
    files = {fold: network_file(folder, stream, fold) for fold in folds}
    left = {fold: ids for fold, ids in folds.items() if ALIGNMENT not in _content(files[fold], mapped=True)}
    if not left:
        return
    used = sorted({video_id for ids in left.values() for video_id in ids})
    step = -(-sum(len(videos[video_id]) for video_id in used) // MOST_CHUNKS)
    whole = _network(network_file(folder, stream), preset, stream, device)
    wanted = {video_id: _features(whole, stream, videos[video_id], step) for video_id in used}
    for fold, ids in left.items():
        network = _network(files[fold], preset, stream, device)
        found = np.concatenate([_features(network, stream, videos[video_id], step) for video_id in ids])
        weight, bias = linear_map(found, np.concatenate([wanted[video_id] for video_id in ids]))
        layer = {"weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias)}
        with replacing(files[fold]) as temporary:
            write_tensors(temporary, {**_content(files[fold]), ALIGNMENT: layer})


def linear_map(rows: Rows, wanted: Rows) -> tuple[Rows, Rows]:
    """Weight (D', D) and bias (D',) float32 that turn rows (N, D) into wanted ones (N, D'), by ridge regression."""
    mean, target = rows.mean(0, dtype=np.float64), wanted.mean(0, dtype=np.float64)
    centred = rows - mean
    scale = centred.std() or 1.0
    gram = centred.T @ centred / scale**2 + PENALTY * len(rows) * np.eye(rows.shape[1])
    weight = np.linalg.solve(gram, centred.T @ (wanted - target) / scale) / scale  # (D, D')
    return weight.T.astype(np.float32), (target - mean @ weight).astype(np.float32)


def _content(file: Path, mapped: bool = False) -> dict[str, Any]:
    return cast(dict[str, Any], read_content(file, mapped))  # files of ours hold a dictionary


def _network(file: Path, preset: Preset, stream: str, device: str) -> TwoStream:
    sources = WeightSources({stream: str(file)})
    return build_twostream(preset.narrowed([stream]), sources, device)


def _features(network: TwoStream, stream: str, video: CachedVideo, step: int) -> Rows:
    with closed_after(network.rows_with_flow(cached_chunks(video, step), 0)) as rows:
        return np.stack([row.features[stream] for row in rows])  # (L / step, D)
