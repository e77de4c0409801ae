"""The videos that feature networks learn from: what each is for, and its chunks and flow in the cache."""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from lstr.errors import ConfigError, LabelsError, MissingPathError, OutputError, VideoError, WeightsError
from lstr.extractors.flow.workers import ALGORITHM_OF, ALGORITHMS, FlowWorkers, too_small
from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.presets import Preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.streams import MODEL_STREAMS
from lstr.extractors.video.inputs import local_copy
from lstr.extractors.video.reader import open_chunks
from lstr.files.remote import Place
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, actions_of, subset_named
from lstr.labels.video_ids import recording_of
from lstr.pipelines.failures import Failure, FailureLog, failure_of
from lstr.pipelines.features.chunk_cache import CachedVideo, ChunkCache, caches_of, chunk_recipe
from lstr.pipelines.features.extraction import Outcome
from lstr.pipelines.features.output_folder import map_in_threads
from lstr.pipelines.progress import Failed, Notice, Progress
from lstr.pipelines.training.recogniser import Initial

VALIDATION_SHARE = 5  # one in this number of training recordings chooses epochs and thresholds
MIN_RECORDINGS = 15  # with fewer training recordings, all are needed for training


class Pair(NamedTuple):
    """Which videos one network of each stream learns from; by video ids."""

    fold: int | None  # the fold that it never sees; None for the network of all videos
    training: tuple[str, ...]
    validation: tuple[str, ...]  # they choose the epoch; none of too few videos


def actions_in(labels: Labels, video_id: str) -> set[str]:
    """Return the classes that are labelled in a video, except background and ambiguous stretches."""
    return {s.label for s in labels.videos[video_id].segments if s.start < s.end} - {BACKGROUND, AMBIGUOUS}


def recordings_of(ids: Collection[str], contents: Mapping[str, str]) -> dict[str, str]:
    """Return the recording of each id, sorted by id; files with the same content belong to one recording.

    contents: the SHA-256 of files by id; ids without one have no copies.
    """
    recordings, groups = {video_id: recording_of(video_id) for video_id in sorted(ids)}, dict[str, set[str]]()
    for video_id in recordings:
        if video_id in contents:
            groups.setdefault(contents[video_id], set()).add(video_id)
    for copies in groups.values():
        names = {recordings[video_id] for video_id in copies}
        if len(names) > 1:  # join whole recordings, because other clips of them must stay together too
            recordings = {i: min(names) if name in names else name for i, name in recordings.items()}
    return recordings


def round_robin(ids: Collection[str], n_folds: int, contents: Mapping[str, str]) -> dict[str, int]:
    """Return the fold of each id, from 1: the sorted recordings in turn, as clips of one must share a fold."""
    recordings = recordings_of(ids, contents)
    number = {recording: at % n_folds + 1 for at, recording in enumerate(sorted({*recordings.values()}))}
    return {video_id: number[recording] for video_id, recording in recordings.items()}


def actions_by_recording(labels: Labels, recordings: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the actions that are labelled in each recording, sorted; `recordings` has the recording of each id."""
    actions: dict[str, set[str]] = {recording: set() for recording in sorted({*recordings.values()})}
    for video_id, recording in recordings.items():
        actions[recording] |= actions_in(labels, video_id)
    return actions


def choose_recordings(actions: Mapping[str, set[str]], wanted: int, known: Collection[str]) -> set[str]:
    """Choose recordings to hold out: evenly spaced, with many actions; each action must remain in another recording.

    `actions` are the actions of each recording; `known` are recordings that must not be chosen. None may be left.
    """
    names, step = list(actions), len(actions) / wanted
    evenly = [names[int(step * (at + 0.5))] for at in range(wanted)]
    order = [*evenly, *(name for name in names if name not in evenly)]
    chosen: set[str] = set()
    covered: set[str] = set()

    def is_dispensable(name: str) -> bool:
        others = [shown for other, shown in actions.items() if other != name and other not in chosen]
        return bool(others) and actions[name] <= set().union(*others)

    while len(chosen) < wanted:
        fitting = [name for name in order if name not in (*chosen, *known) and is_dispensable(name)]
        if not fitting:
            break
        best = max(fitting, key=lambda name: len(actions[name] - covered))  # the first of equals, for even spacing
        chosen.add(best)
        covered |= actions[best]
    return chosen


def choose_validation(actions: Mapping[str, set[str]], known: Collection[str] = ()) -> set[str]:
    """Choose one in VALIDATION_SHARE recordings, or none of few; arguments as for `choose_recordings`."""
    if len(actions) < MIN_RECORDINGS:
        return set()
    return choose_recordings(actions, len(actions) // VALIDATION_SHARE, known)


def parts_of(
    labels: Labels, videos: Collection[str], subset: str, eval_subset: str | None
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the sorted ids for training, for validation, in neither subset, and without a video file.

    `eval_subset` None means `validation` if the labels have it. Raises LabelsError if a named subset has no video.
    """
    subset, eval_subset = subset_named(subset), eval_subset and subset_named(eval_subset)
    if subset == eval_subset:
        raise ConfigError(f"{subset!r} is the subset to train on.", "name another eval_subset, or omit it.")
    names = subset, eval_subset or "validation"
    training, validation = ({i for i, video in labels.videos.items() if video.subset == name} for name in names)
    for name, ids, option in ((subset, training, "subset"), (eval_subset, validation, "eval_subset")):
        if name and not ids & set(videos):
            present = sorted({video.subset for video in labels.videos.values()})
            raise LabelsError(
                f"None of the {len(videos)} videos has the subset {name}.",
                f"the labels have {', '.join(present) or 'no subset'} (choose with {option}), and ids such as "
                f"{min(labels.videos, default='none')!r}; the first of the videos is {min(videos, default='none')!r}.",
            )
    used, here = training | validation, set(videos)
    return sorted(training & here), sorted(validation & here), sorted(here - used), sorted(used - here)


def make_pairs(
    labels: Labels,
    training: Collection[str],
    validation: Collection[str],
    n_folds: int,
    contents: Mapping[str, str],
    spare: bool = True,
) -> tuple[list[Pair], dict[str, int]]:
    """Return the pair of all videos and one without each fold, and the fold of each video.

    A video of a fold neither trains its pair nor chooses its epoch. Without validation videos some recordings of the
    training videos are held out, if `spare`. `contents` has the SHA-256 of each file, because copies must share a fold.
    Raises ConfigError or LabelsError for too few videos or labels.
    """
    most = len({*recordings_of(training, contents).values()})
    if n_folds and not 2 <= n_folds <= most:
        what = "videos" if most == len(training) else f"videos of {most} recordings"
        raise ConfigError(f"{n_folds} folds of {len(training)} training {what}.", f"use a number from 2 to {most}.")
    folds = round_robin(training, n_folds, contents) if n_folds else {}
    folds |= round_robin(validation, n_folds, contents) if n_folds else {}
    shows = {video_id: actions_in(labels, video_id) for video_id in {*training, *validation}}
    pairs = []
    for fold in (None, *range(1, n_folds + 1)):
        left = [video_id for video_id in training if fold is None or folds[video_id] != fold]
        chosen = tuple(sorted(i for i in validation if fold is None or folds[i] != fold))
        if not any(shows[video_id] for video_id in chosen):
            recordings = recordings_of(left, contents)
            held = choose_validation(actions_by_recording(labels, recordings)) if spare else set()
            chosen = tuple(video_id for video_id, recording in recordings.items() if recording in held)
        pair = Pair(fold, tuple(sorted(set(left) - set(chosen))), chosen)
        if not any(shows[video_id] for video_id in pair.training):
            raise LabelsError(
                f"Without fold {fold} no training video has a labelled action.", "use more folds, or label more videos."
            )
        pairs.append(pair)
    return pairs, folds


def check_blind(initial: Mapping[str, Initial], videos: Mapping[str, str]) -> None:
    """Raise WeightsError if initial weights, by stream, were trained on some of the videos.

    videos: SHA-256 of their files by id.
    """
    for stream, begins in initial.items():
        known = {*begins.seen, *begins.seen.values()}
        if seen := [video_id for video_id, sha256 in videos.items() if {video_id, sha256} & known]:
            raise WeightsError(
                f"The initial weights of the {stream} network were trained on {len(seen)} of these videos, for example "
                f"{seen[0]!r}, so no fold would be unseen.",
                "use other initial weights, or train without folds.",
            )


def unlearnt(training: Collection[str], labels: Labels) -> list[str]:
    """Return the classes that no training video shows."""
    shown = set().union(*(actions_in(labels, video_id) for video_id in training))
    return [name for name in actions_of(labels.classes) if name not in shown]


def check_labels(labels: Labels, training: Sequence[str], source: str) -> None:
    """Raise LabelsError if no training video has a labelled action; `source` names the label files."""
    if len(unlearnt(training, labels)) == len(actions_of(labels.classes)):
        what = "video" if len(training) == 1 else "videos"
        raise LabelsError(
            f"{source} labels no action in the {len(training)} training {what}.",
            "label segments of them, or label other videos.",
        )


class SoundVideo(NamedTuple):
    """A video that can be read, as far as its packets show."""

    source: Place
    sha256: str
    n_chunks: int
    n_bytes: int  # bytes that its chunks take in the cache


@dataclass(frozen=True)
class Filling:
    """An event: the chunks of these videos are computed next if the cache lacks them; their numbers by id.

    Without videos, the cache has all chunks that the networks learn from.
    """

    chunks: Mapping[str, int]


def chunks_of(preset: Preset) -> dict[str, Any]:
    """Return the part of a preset that makes chunks and flow, as the cache takes it."""
    parts: dict[str, Any] = {stream: network_recipe(stream, preset.parts[stream]) for stream in preset.streams}
    algorithm = preset.algorithm and ALGORITHMS[preset.algorithm]
    parts |= {stream: None for stream in MODEL_STREAMS if stream not in parts}
    recipe = Recipe(**parts, flow_algorithm=algorithm, rgb_frame=preset.rgb_frame, long_side=preset.long_side)
    return chunk_recipe(recipe)


def look_at(
    videos: Mapping[str, Place], cache: ChunkCache, failed: FailureLog
) -> Generator[Failed, None, dict[str, SoundVideo]]:
    """Return the videos that can be read, as far as their packets show; add the others to `failed`.

    Raises VideoError if none can be read, OutputError if the cache is too small for those that can.
    """

    def look(video: tuple[str, Place]) -> SoundVideo | Failure:
        source = video[1]
        try:
            with local_copy(source) as (path, _):
                opened = open_chunks(path, cache.recipe["long_side"])[0]
                planes, height, width = cache.shape(opened)
                if too_small(ALGORITHM_OF.get(cache.recipe["flow_algorithm"]), width, height):
                    sentence = f"{source} is {width}×{height} pixels, too small for DIS flow."
                    return Failure(sentence, "use --set recipe.flow_algorithm=tvl1.")
                n_bytes = opened.n_chunks * planes * height * width
                return SoundVideo(source, sha256_of(path), opened.n_chunks, n_bytes)
        except Exception as error:
            return failure_of(error, source)

    sound = {}
    for (video_id, source), found in map_in_threads(look, videos.items()):
        if isinstance(found, Failure):
            yield failed.add(video_id, source, found)
        else:
            sound[video_id] = found
    if not sound:
        raise VideoError("None of the videos can be read.", "see the errors above.")
    # ids of one file share its chunks, which the cache keeps by content
    check_room(len(sound), sum({video.sha256: video.n_bytes for video in sound.values()}.values()), cache.size)
    return sound


def check_room(n_videos: int, needed: int, size: int) -> None:
    """Raise OutputError if the chunks of videos need more bytes than the `size` of the cache."""
    if needed > size:
        raise OutputError(
            f"The chunks of {n_videos} videos need {needed / 1e9:.3g} GB; the cache is limited to {size / 1e9:.3g} GB.",
            f"use --set cache_size={needed // 10**9 + 1}GB, or fewer videos.",
        )


def fill(
    videos: Mapping[str, SoundVideo], cache: ChunkCache, workers: FlowWorkers | None, failed: FailureLog
) -> Generator[Filling | Progress | Outcome | Notice | Failed, None, dict[str, CachedVideo]]:
    """Return the chunks of each video; compute missing and damaged ones, with Progress by video id.

    Videos that cannot be read to their end are added to `failed`. Computed chunks stay in the cache. Raises VideoError
    if no video can be read to its end, and as `failure_of`.
    """
    keep, cached, n_made = {video.sha256 for video in videos.values()}, dict[str, CachedVideo](), 0
    yield Filling({video_id: video.n_chunks for video_id, video in videos.items()})
    for video_id, video in videos.items():
        start = perf_counter()
        try:
            chunks, is_damaged = find_chunks(cache, video.sha256), False
            if chunks and not (yield from chunks.verify(video_id)):
                chunks.drop()
                chunks, is_damaged = None, True
            is_kept = chunks is not None
            if chunks is None:
                with local_copy(video.source) as (path, _):
                    opened = open_chunks(path, cache.recipe["long_side"])
                    chunks = yield from cache.fill(video.sha256, path, opened, workers, keep, video_id)
        except Exception as error:
            yield failed.add(video_id, video.source, failure_of(error, video.source))
            continue
        seconds = 0.0 if is_kept else perf_counter() - start
        yield Outcome(video_id, video.source, "kept" if is_kept else "done", len(chunks), seconds)
        cached[video_id] = chunks
        n_made += not is_kept
        if is_damaged:
            yield Notice(f"{video_id} was damaged in the cache and computed again.")
    if not cached:
        raise VideoError("None of the videos can be read to its end.", "see the errors above.")
    n_chunks = sum(map(len, cached.values()))
    yield Notice(f"{n_chunks} chunks of {len(cached)} videos in {cache.path}, {n_made} computed now", warning=False)
    yield Filling({})
    return cached


def find_cached(cache: ChunkCache, videos: Mapping[str, str]) -> dict[str, CachedVideo]:
    """Return the chunks that another process has put in the cache, by id; `videos` are SHA-256 of their files.

    Raises MissingPathError if the processes do not share the cache.
    """
    found = {}
    for video_id, sha256 in videos.items():
        chunks = find_chunks(cache, sha256)
        if chunks is None:
            raise MissingPathError(
                f"{cache.path} has no chunks of {video_id}, which the first process computed.",
                "name a folder that all machines share: --set cache=DIR.",
            )
        found[video_id] = chunks
    return found


def find_chunks(cache: ChunkCache, sha256: str) -> CachedVideo | None:
    """Return the cached chunks of a video file, also from a cache with more planes than needed."""
    caches = caches_of(cache.root, cache.recipe)
    return next((found for place in caches if (found := place.find(sha256))), None)
