"""From options to what is to be done: videos found, labels checked and divided, this machine measured, all planned."""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import ConfigError, LabelsError, OutputError, TooShortError, VideoError
from lstr.extractors.devices import choose_device
from lstr.extractors.presets import PRESETS, Preset, shape_of
from lstr.extractors.video.inputs import announced_seconds
from lstr.extractors.video.probe import probe
from lstr.extractors.weights.published_files import sha256_of
from lstr.files.remote import Place, RemoteFile
from lstr.labels.label_set import Labels
from lstr.pipelines.extraction.resume import together
from lstr.pipelines.failures import Failure, failure_of
from lstr.pipelines.learning.options import OF_ONE, Features, LearnOptions, features_of, recipe_of, settings_of
from lstr.pipelines.learning.pace import Header, measured_plan
from lstr.pipelines.learning.parts import N_FOLDS, TRAINING, VALIDATION, LabelParts, divide, folds_of
from lstr.pipelines.learning.plan import LearnPlan
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.model_file import SUFFIX, is_model, open_model
from lstr.pipelines.progress import Failed, LabelFindings, Notice
from lstr.pipelines.training.finetune import not_learnt
from lstr.pipelines.training.folds import FEWEST, actions_of
from lstr.pipelines.training.recogniser import Initial, settle

LESS = {
    True: "only one of the folds is measured on, and all videos are learnt from",
    False: "videos are held out to measure on, and not learnt from",
}
"""What a time that is too short for all folds leads to, by whether one fold is left"""
OF_EPOCHS = ("eval_every", "patience", "chosen_by")
"""Settings of the networks by which videos for validation choose their epoch"""
DIVIDED = ("no subsets", "one subset")  # findings that are answered here, by folds or by holding out recordings


@dataclass(frozen=True)
class Learning:
    """What is to be learnt, from what, how, and where it goes."""

    model: Path
    workspace: Workspace
    videos: Mapping[str, Place]
    failed: Mapping[str, Failed]
    """Videos that are left out because they cannot be read"""
    parts: LabelParts
    settings: Mapping[str, str]
    """Settings of the networks."""
    features: Features
    """Recipe, streams and flow algorithm."""
    device: str
    request: str
    task: str
    """The request but for its time"""
    plan: LearnPlan
    begun: bool
    """Whether an earlier run has begun with this plan."""

    @property
    def is_finished(self) -> bool:
        """Whether the model file is the one that this would make."""
        return _is_model_of(self.request, self.model)


def prepare(options: LearnOptions) -> Generator[LabelFindings | Notice | Failed, None, Learning]:
    """Look at everything, and plan. Raises LabelsError, ConfigError, RecipeError, VideoError or OutputError."""
    model = checked_output(options.output, options.init)
    not_read: list[str] = []
    found, labels = options.read(tell=not_read.append)
    yield from (Notice(text, warning=False) for text in not_read)
    _check_draws(options)
    device, begun_with = choose_device(options.device), recipe_of(options.init)
    choices = features_of(options, begun_with)
    settings = settings_of(options, begun_with, choices[0])
    if any("." in name for name in settings):  # what is set of a stream is of the first
        choices = choices[:1]
    networks = {features[0]: settle(features, settings, options.init, device) for features in choices}
    preset, initial = networks[choices[0][0]].preset, networks[choices[0][0]].initial
    labelled = {name: source for name, source in found.items() if name in labels.videos}
    teaching = [i for i in labelled if labels.videos[i].subset == TRAINING]
    looked, failed = _look(labelled, preset.long_side, teaching or [*labelled])
    yield from failed.values()
    present = [i for i in found if i not in failed]
    seen, n_folds = _seen(labelled, initial), N_FOLDS if options.folds is None else options.folds
    parts = divide(labels, present, seen, n_folds)
    _check_actions(options, parts)
    _check_epochs(options, parts)
    is_left, is_one = len(choices) > 1, not folds_of(parts.of(TRAINING))
    if is_left and is_one:
        choices = ((OF_ONE, "both", None),)
        networks = {OF_ONE: settle(choices[0], settings, options.init, device)}
        preset, initial = networks[OF_ONE].preset, networks[OF_ONE].initial
    yield from options.check(parts.labels, found, answered=DIVIDED)
    others = (labels.videos.keys() & {*present}) - parts.labels.videos.keys()
    yield from not_learnt(
        (sorted(labels.videos.keys() - found.keys()), "left out, for labelled and not among these videos", True),
        (sorted(found.keys() - labels.videos.keys()), "left out, for without labels", True),
        (sorted(others), "left out, for in other subsets", True),
    )
    videos = {i: found[i] for i in sorted(parts.labels.videos)}
    shape = shape_of(size for i in parts.of(TRAINING) if (size := looked[i].size))
    networks = {name: one.seeing(shape) for name, one in networks.items()}
    presets = [one.preset for one in networks.values()]
    request, task = (
        _request(one, choices, presets, initial, parts.labels, videos)
        for one in (options, replace(options, seconds=None))
    )
    workspace = Workspace(model)
    before = workspace.read_plan()
    of_the_task = before is not None and task == before.task and not _is_model_of(before.request, model)
    begun = before is not None and (before.request == request or (of_the_task and workspace.has_networks))
    if before and begun:
        plan = replace(before.plan, budget=options.seconds, at_once=options.at_once or before.plan.at_once)
        if before.request != request:
            text = (
                "only the time is another: learning goes on with the plan that it began with, and keeps to the new time"
            )
            yield Notice(f"{text}; to plan anew, remove {workspace.path}.", warning=False)
        if (plan.folds, plan.measured) != (parts.folds, parts.measured):
            parts = divide(labels, present, seen, plan.folds, plan.measured)
    else:
        if before is None and workspace.plan_file.exists():
            text = f"{workspace.plan_file} cannot be read, or is of another version: learning begins anew."
            yield Notice(text, warning=False)
        if before and not of_the_task:
            yield Notice("videos, labels or options are others than before: learning begins anew.", warning=False)
        yield Notice("measuring this machine …", warning=False)
        ladder = [parts]
        if parts.folds and options.folds is None:
            ladder.append(divide(labels, present, seen, parts.folds, 1))
            with suppress(LabelsError):  # where each recording alone shows an action, none can be held out
                ladder.append(divide(labels, present, seen))
        short: list[str] = []
        known: dict[str, Any] = {}
        for parts, features in _by_worth(ladder, choices):
            is_least = parts is ladder[-1] and features == choices[-1]
            try:
                plan = measured_plan(options, parts, networks[features[0]], looked, videos, device, known, is_least)
            except TooShortError as error:
                short.append(str(error))
                if is_least:
                    raise
                continue
            break
        if parts is not ladder[0]:
            yield Notice(f"{short[0]} So {LESS[bool(parts.folds)]}.")
        plan = replace(plan, recipe=str(features[0]) if is_left else None)
        if is_left and is_one:
            text = f"a single recording teaches: by the recipe {OF_ONE} more is learnt of one than by several streams."
            yield Notice(text, warning=False)
    if plan.doubt:
        yield Notice(plan.doubt)
    features = next((one for one in choices if one[0] == plan.recipe), choices[0])
    return Learning(model, workspace, videos, failed, parts, settings, features, device, request, task, plan, begun)


def _by_worth(ladder: Sequence[LabelParts], choices: Sequence[Features]) -> Iterator[tuple[LabelParts, Features]]:
    """What to measure by and what features to make, the best and dearest first.

    Whatever the features, all videos teach as long as there is time for that.
    """
    by_folds = [parts for parts in ladder if parts.folds]
    yield from ((parts, features) for features in choices for parts in by_folds)
    yield from ((parts, features) for parts in ladder if not parts.folds for features in choices)


def _check_actions(options: LearnOptions, parts: LabelParts) -> None:
    """Raises LabelsError where the videos that teach show no action."""
    training = parts.of(TRAINING)
    if not any(actions_of(parts.labels, i) for i in training):
        what = "video" if len(training) == 1 else "videos"
        raise LabelsError(
            f"{options.labels_named} labels no action in the {len(training)} {what} to learn from.",
            "label segments of them, or add videos that show some.",
        )


def _check_epochs(options: LearnOptions, parts: LabelParts) -> None:
    """Raises ConfigError where a setting would have videos choose an epoch that there are not."""
    names = [name for name in ("train.eval_every", "train.patience") if options.of_model.get(name, "0") != "0"]
    if parts.folds or len(parts.of(TRAINING)) < FEWEST:  # else networks spare some of the videos that teach
        names += [name for name in options.of_networks if name.rpartition(".")[2] in OF_EPOCHS]
    if names and (parts.folds or not parts.of(VALIDATION)):
        raise ConfigError(
            f"{names[0]} chooses the epoch by videos for validation, and here there are none.",
            "leave it out, or label some as validation and add --set learn.folds=0.",
        )


def _check_draws(options: LearnOptions) -> None:
    """Raises ConfigError for images an epoch of a single network: the plan has one number for all."""
    for name in options.of_networks:
        stream, dot, setting = name.rpartition(".")
        if dot and setting in ("draws", "fewest_draws"):
            raise ConfigError(
                f"{name} is of the {stream} network, and all networks learn from as many images an epoch.",
                f"set it for all of them: --set {setting}={options.of_networks[name]}.",
            )


def _is_model_of(request: str, model: Path) -> bool:
    """Whether the model file is what a request has made."""
    return is_model(model) and open_model(model).about.get("request") == request


def checked_output(output: str | Path, init: str | None = None) -> Path:
    """The path of the model file. Raises OutputError where something else has its name, or it is no name of a file.

    init: what the networks begin with, which is compared with the model file and cannot be replaced by it.
    """
    path = Path(output)
    if path.is_dir():
        raise OutputError(f"{path} is a folder.", f"name a file: -o {path / 'model.lstr'}.")
    if path.suffix != SUFFIX:  # what is behind a dot is of the name: mouse.day1 and mouse.day2 are two models
        path = path.with_name(path.name + SUFFIX)
    if path.exists() and not is_model(path):
        raise OutputError(f"{path} is there, and is no model file.", "choose another name with -o.")
    if init is not None and path.exists() and Path(init).exists() and path.samefile(init):
        raise OutputError(
            f"{path} is what the networks begin with, and would be replaced.", "choose another name with -o."
        )
    beside = Workspace(path)
    if beside.is_foreign:
        raise OutputError(f"{beside.path} is there, and no learning has made it.", "choose another name with -o.")
    return path


def _seen(videos: Mapping[str, Place], initial: Mapping[str, Initial]) -> set[str]:
    """The ids of videos that first weights have seen, by id or by content."""
    known = {name for begins in initial.values() for pair in begins.seen.items() for name in pair}
    if not known:
        return set()
    here = {video_id: source for video_id, source in videos.items() if isinstance(source, Path)}
    return {i for i in videos if i in known} | {i for i, path in here.items() if sha256_of(path) in known}


def _look(
    videos: Mapping[str, Place], long_side: int, needed: Sequence[str]
) -> tuple[dict[str, Header], dict[str, Failed]]:
    """A look at each video that can be read, and why the others cannot.

    Raises VideoError where none of the `needed` can be.
    """

    def look(video: tuple[str, Place]) -> Header | Failure:
        source = video[1]
        if isinstance(source, RemoteFile):
            return Header(int(announced_seconds(source) * FEATURES_PER_SECOND))
        try:
            probed = probe(source)
        except Exception as error:
            return failure_of(error, source)
        return Header(probed.n_chunks, probed.size(long_side))

    looked, failed = {}, {}
    for (video_id, _), found in together(look, videos.items()):
        if isinstance(found, Failure):
            failed[video_id] = Failed(video_id, found.reason, found.hint)
        else:
            looked[video_id] = found
    if needed and not any(i in looked and looked[i].chunks for i in needed):
        raise VideoError("None of the training videos can be read.", "`lstr info VIDEO` says what is wrong with one.")
    return looked, failed


def _request(
    options: LearnOptions,
    choices: Sequence[Features],
    presets: Sequence[Preset],
    initial: Mapping[str, Initial],
    labels: Labels,
    videos: Mapping[str, Place],
) -> str:
    """The identity of all that makes the result what it is: equal ones are the same learning."""
    # what a file says may be another thing the next time
    is_of_file = any(isinstance(name, str) and name not in PRESETS for name, *_ in choices)
    request = {
        "kind": None,  # an option that there was; without it a learning that was stopped would begin anew
        **{name: getattr(options, name) for name in ("seed", "seconds", "folds")},
        **({} if options.false_alarms is None else {"false_alarms": options.false_alarms}),
        "features": choices[0] if len(choices) == 1 else choices,
        **({"presets": list(map(repr, presets))} if is_of_file else {}),
        "weights": {name: begins.sha256 for name, begins in initial.items()},
        "settings": dict(options.settings),
        "about": dict(options.about),
        "classes": labels.classes,
        "labels": {i: [v.subset, [s.to_dict() for s in v.segments]] for i, v in labels.videos.items()},
        "videos": {i: v.stat().st_size if isinstance(v, Path) else str(v) for i, v in videos.items()},
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()[:16]
