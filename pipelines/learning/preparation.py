"""Prepare `lstr learn` before the first long step: find videos, check and divide labels, measure, and plan."""

import hashlib
import json
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import ConfigError, LabelsError, OutputError, VideoError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import Algorithm
from lstr.extractors.networks.manifest import published_as
from lstr.extractors.networks.weights_file import is_weights_folder, sha256_of
from lstr.extractors.networks.weights_folder import open_weights
from lstr.extractors.presets import IMAGENET, PRESETS, Preset, preset_of, shape_of
from lstr.extractors.recipe import Recipe
from lstr.extractors.video.inputs import announced_seconds
from lstr.extractors.video.probe import probe
from lstr.files.remote import Place, RemoteFile
from lstr.pipelines.failures import Failure, failure_of
from lstr.pipelines.features.output_folder import map_in_threads
from lstr.pipelines.learning.division import N_FOLDS, TRAINING, VALIDATION, Division, divide
from lstr.pipelines.learning.plan import LearnOptions, LearnPlan, Workspace
from lstr.pipelines.learning.planner import Header, Planner
from lstr.pipelines.model_files.model_file import SUFFIX, is_model, open_model
from lstr.pipelines.model_files.packing import free_path
from lstr.pipelines.progress import Failed, LabelFindings, Notice
from lstr.pipelines.training.finetune import report_skipped
from lstr.pipelines.training.network_config import defaults, trainable, trainable_network
from lstr.pipelines.training.recogniser import NetworksToTrain, initial_weights, settle
from lstr.pipelines.training.run import CONFIG
from lstr.pipelines.training.training_videos import check_labels

IMAGE_SETTINGS = ("short_side", "crop", "size", "margin")
# Recipe, streams and flow algorithm.
Features = tuple[str | Preset, str, Algorithm | None]
# Defaults, with ImageNet weights: for several recordings, and for a single one, which a model of appearance would
# overfit.
SEVERAL_RECORDINGS: Features = ("pretrained", "both", None)
# If the weights of poses were fetched; folds choose whether to use them.
WITH_POSES: Features = ("pretrained-people", "both", None)
ONE_RECORDING: Features = ("difference", "both", None)
ANSWERED_FINDINGS = ("no subsets", "one subset")  # not reported, because folds or held-out recordings solve them


@dataclass(frozen=True)
class Learning:
    """A prepared training job: videos, settings, plan and output."""

    model: Path
    workspace: Workspace
    videos: Mapping[str, Place]
    failed: Mapping[str, Failed]  # videos that are skipped because they cannot be read, by id
    division: Division
    settings: Mapping[str, str]  # settings of the networks
    features: Features
    request: str  # a hash of all inputs; jobs with the same hash have the same result
    task: str  # the same without the time limit
    plan: LearnPlan
    is_resumed: bool  # whether an earlier run has started this plan
    is_finished: bool  # whether the model file is already the result of this plan


def plan(options: LearnOptions) -> Generator[LabelFindings | Notice | Failed | Learning, None, None]:
    """Check everything and yield the plan; nothing is written. Raises what `learn` raises before its first step."""
    yield (yield from prepare(options))


def prepare(options: LearnOptions) -> Generator[LabelFindings | Notice | Failed, None, Learning]:
    """Check everything and plan. Raises LabelsError, ConfigError, RecipeError, VideoError or OutputError."""
    model = check_output(options.output, options.init)
    found, labels = yield from options.read()
    device = choose_device(options.device)
    named, settings = choose_features(options)
    has_poses = options.folds != 0 and any(entry.place.is_file() for entry in published_as("pose"))
    several = WITH_POSES if has_poses else SEVERAL_RECORDINGS
    features = named or several
    for name, value in options.network_settings.items():
        stream, dot, setting = name.rpartition(".")
        if dot and setting in ("draws", "fewest_draws"):
            raise ConfigError(
                f"{name} is set for the {stream} network, but all networks train on equal numbers of images per epoch.",
                f"set it for all of them: --set {setting}={value}.",
            )
    networks = settle(features, settings, options.init, device)
    labelled = {name: source for name, source in found.items() if name in labels.videos}
    headers, failed = read_headers(labelled, networks.preset.long_side)
    yield from failed.values()
    needed = [i for i in labelled if labels.videos[i].subset == TRAINING] or [*labelled]
    if needed and not any(i in headers and headers[i].chunks for i in needed):
        raise VideoError("None of the training videos can be read.", "run `lstr info VIDEO` to see the reason.")
    present, seen = [i for i in found if i not in failed], seen_videos(labelled, networks)
    local = {i: path for i, path in labelled.items() if i in headers and isinstance(path, Path)}
    n_files = Counter(path.stat().st_size for path in local.values())
    # only files of equal size can be copies
    contents = {i: sha256_of(path) for i, path in local.items() if n_files[path.stat().st_size] > 1}
    division = divide(labels, present, seen, N_FOLDS if options.folds is None else options.folds, contents)
    check_labels(division.labels, division.of(TRAINING), options.labels_named)
    chosen = [name for name in ("train.eval_every", "train.patience") if options.model_settings.get(name, "0") != "0"]
    if chosen and (division.folds or not division.of(VALIDATION)):
        raise ConfigError(
            f"{chosen[0]} chooses the epoch on validation videos, but no video is for validation.",
            "leave it out, or label some as validation and add --set learn.folds=0.",
        )
    possible: tuple[Features, ...] = (features,)
    # settings of one stream are for the first recipe
    is_chosen_here = named is None and not any("." in name for name in settings)
    if is_chosen_here and not division.folds_of(division.of(TRAINING)):
        features = ONE_RECORDING
        possible, networks = (features,), settle(features, settings, options.init, device)
        yield Notice(f"for a single recording the best recipe is {features[0]}.")
    elif is_chosen_here:
        possible = several, ONE_RECORDING
    yield from options.check(division.labels, found, answered=ANSWERED_FINDINGS)
    others = (labels.videos.keys() & {*present}) - division.labels.videos.keys()
    yield from report_skipped(
        (sorted(labels.videos.keys() - found.keys()), "skipped, labelled but not among these videos", True),
        (sorted(found.keys() - labels.videos.keys()), "skipped, without labels", True),
        (sorted(others), "skipped, in other subsets", True),
    )
    shape = shape_of(size for i in division.of(TRAINING) if (size := headers[i].size))
    networks = networks.seeing(shape)
    videos = {i: found[i] for i in sorted(division.labels.videos)}
    request, task = (
        hash_of(one, possible, networks, division, videos) for one in (options, replace(options, seconds=None))
    )
    workspace = Workspace(model)
    before_request, before_task, before = workspace.read_plan() or ("", "", None)
    # of the model file that exists; a finished one is learnt again, by another plan
    made_for = open_model(model).about.get("request") if is_model(model) else None
    is_same_task = before is not None and task == before_task and before_request != made_for
    has_networks = (workspace.weights / CONFIG).is_file()  # their epochs are settled
    is_resumed = before is not None and (before_request == request or (is_same_task and has_networks))
    if before and is_resumed:
        plan = replace(before, budget=options.seconds, at_once=options.at_once or before.at_once)
        if before_request != request:
            text = "only the time limit has changed: training resumes with its plan and the new limit"
            yield Notice(f"{text}; for a new plan, remove {workspace.path}.", warning=False)
        if plan.folds != division.folds:
            division = divide(labels, present, seen, plan.folds, contents)
    else:
        if workspace.plan_file.exists() and not is_same_task:
            text = "videos, labels, options or the version of lstr have changed: training starts over."
            yield Notice(text, warning=False)
        held_out = None
        if division.folds and options.folds is None:
            with suppress(LabelsError):  # no recording can be held out if each is the only one of an action
                held_out = divide(labels, present, seen, contents=contents)
        planner = Planner(options, networks, headers, videos, device)
        division, plan = yield from planner.choose(division, held_out)
        plan = replace(plan, recipe=str(features[0]) if is_chosen_here else None)
    if plan.warning:
        yield Notice(plan.warning)
    if plan.limitation:
        yield Notice(plan.limitation, warning=False)
    finished = made_for == request
    return Learning(
        model, workspace, videos, failed, division, settings, features, request, task, plan, is_resumed, finished
    )


def check_output(output: str | Path, init: str | None = None) -> Path:
    """Return the path of the model file. Raises OutputError if it cannot be written or would overwrite other files.

    init: the initial networks, which are compared with the model file and cannot be replaced by it.
    """
    path = Path(output)
    if path.is_dir():
        raise OutputError(f"{path} is a folder.", f"name a file: -o {path / 'model.lstr'}.")
    if path.suffix != SUFFIX:  # the part after a dot belongs to the name: mouse.day1 and mouse.day2 are two models
        path = path.with_name(path.name + SUFFIX)
    free_path(path, Path(init) if init is not None and Path(init).exists() else None)
    if (folder := Workspace(path)).is_foreign:
        raise OutputError(f"{folder.path} exists and was not written by `lstr learn`.", "choose another name with -o.")
    return path


def choose_features(options: LearnOptions) -> tuple[Features | None, dict[str, str]]:
    """Return recipe, streams and flow algorithm, None if nothing names them; and the settings of the networks.

    Networks of an earlier model file or weights folder keep their image sizes, and are finetuned gently by default:
    with a third of the learning rate and half of the epochs of their first training. Raises as `trainable` and
    `initial_weights`.
    """
    named: Features | None = None
    initial: Recipe | None = None
    if options.init is not None and is_model(options.init):
        initial = open_model(options.init).recipe
    elif options.init is not None and is_weights_folder(Path(options.init)):
        initial = open_weights(options.init).recipe
    if options.recipe is not None:
        named = options.recipe, options.stream or "both", options.algorithm
    elif options.stream or options.algorithm or (not initial and options.init not in (None, IMAGENET)):
        named = "fast", options.stream or "flow", None if options.stream == "rgb" else options.algorithm or "dis"
    elif initial:
        named = preset_of(initial), "both", None
    own = options.network_settings
    if not initial or not named:
        return named, own
    recipe, streams, algorithm = named
    preset = trainable(recipe, streams, algorithm)
    gentle: dict[str, str] = {}
    for stream, begins in initial_weights(preset, options.init, {}).items():
        if begins.path is None:
            continue
        network = trainable_network(preset.parts[stream].network, stream)
        first = defaults(stream, (begins.origin.dataset or "custom") if begins.origin else None, network)
        wanted = first.replace(lr=first.lr / 3, epochs=first.epochs // 2).to_dict()
        usual = defaults(stream, begins.dataset, network).to_dict()
        # a network that was not trained the first time is not trained now
        kept = {*own, *IMAGE_SETTINGS} - ({"epochs"} if not first.epochs else set())
        gentle |= {f"{stream}.{n}": str(v) for n, v in wanted.items() if v != usual[n] and n not in kept}
    return named, {**gentle, "short_side": str(initial.short_side), "crop": str(initial.crop), **own}


def seen_videos(videos: Mapping[str, Place], networks: NetworksToTrain) -> set[str]:
    """Return the ids of videos that the initial weights were trained on, found by id or by content."""
    known = {name for begins in networks.initial.values() for pair in begins.seen.items() for name in pair}
    if not known:
        return set()
    return {i for i, path in videos.items() if i in known or (isinstance(path, Path) and sha256_of(path) in known)}


def read_headers(videos: Mapping[str, Place], long_side: int) -> tuple[dict[str, Header], dict[str, Failed]]:
    """Return the headers of readable videos, and why others fail."""

    def read(video: tuple[str, Place]) -> Header | Failure:
        source = video[1]
        if isinstance(source, RemoteFile):
            return Header(int(announced_seconds(source) * FEATURES_PER_SECOND))
        try:
            probed = probe(source)
        except Exception as error:
            return failure_of(error, source)
        return Header(probed.n_chunks, probed.size(long_side))

    headers, failed = {}, {}
    for (video_id, _), found in map_in_threads(read, videos.items()):
        if isinstance(found, Failure):
            failed[video_id] = Failed(video_id, found.reason, found.hint)
        else:
            headers[video_id] = found
    return headers, failed


def hash_of(
    options: LearnOptions,
    named: tuple[Features, ...],
    networks: NetworksToTrain,
    division: Division,
    videos: Mapping[str, Place],
) -> str:
    """Return a hash of all inputs: jobs with the same hash have the same result."""
    # not the cache and the number of networks at once, which change only how long it takes
    # a recipe file may have another content the next time
    is_of_file = any(isinstance(name, str) and name not in PRESETS for name, *_ in named)
    labels = division.labels
    request = {
        **{name: getattr(options, name) for name in ("seconds", "folds", "false_alarms", "delay_price")},
        "features": named,
        "presets": [repr(networks.preset)] if is_of_file else None,
        "weights": {name: begins.sha256 for name, begins in networks.initial.items()},
        "settings": dict(options.settings),
        "about": dict(options.about),
        "classes": labels.classes,
        "labels": {i: [v.subset, [s.to_dict() for s in v.segments]] for i, v in labels.videos.items()},
        "videos": {i: v.stat().st_size if isinstance(v, Path) else str(v) for i, v in videos.items()},
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()[:16]
