"""From options to what is to be done: videos found, labels checked and divided, this machine measured, all planned."""

import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lstr.chunk import FEATURES_PER_SECOND
from lstr.extractors.devices import choose_device
from lstr.extractors.errors import OutputError, VideoError
from lstr.extractors.video.probe import probe
from lstr.extractors.weights.published_files import sha256_of
from lstr.labels.label_set import Labels
from lstr.pipelines.extraction.resume import together
from lstr.pipelines.failures import left_out
from lstr.pipelines.files.remote import Place, RemoteFile
from lstr.pipelines.files.videos import announced_seconds
from lstr.pipelines.finetuning.config import settle
from lstr.pipelines.finetuning.finetune import not_learnt
from lstr.pipelines.finetuning.initial_weights import Initial
from lstr.pipelines.learning.options import Features, LearnOptions, features_of, recipe_of, settings_of
from lstr.pipelines.learning.pace import Header, measured_plan
from lstr.pipelines.learning.parts import N_FOLDS, TRAINING, LabelParts, divide
from lstr.pipelines.learning.plan import LearnPlan, TooShort
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.progress import LabelFindings, Notice

DIVIDED = ("no subsets", "one subset")  # findings that are answered here, by folds or by holding out recordings


@dataclass(frozen=True)
class Learning:
    """What is to be learnt, from what, how, and where it goes."""

    model: Path
    workspace: Workspace
    videos: Mapping[str, Place]
    parts: LabelParts
    settings: Mapping[str, str]
    """Settings of the networks."""
    features: Features
    """Recipe, streams and flow algorithm."""
    device: str
    request: str
    plan: LearnPlan
    begun: bool
    """Whether an earlier run has begun with this plan."""

    @property
    def is_finished(self) -> bool:
        """Whether the model file is the one that this would make."""
        return is_model(self.model) and open_model(self.model).about.get("request") == self.request


def prepare(options: LearnOptions) -> Generator[LabelFindings | Notice, None, Learning]:
    """Look at everything, and plan. Raises LabelsError, ConfigError, RecipeError, VideoError or OutputError."""
    model = checked_output(options.output)
    found, labels = options.read()
    device, begun_with = choose_device(options.device), recipe_of(options.init)
    choices, settings = features_of(options, begun_with), settings_of(options, begun_with)
    if any("." in name for name in settings):  # what is set of a stream is of the first
        choices = choices[:1]
    networks = {features[0]: settle(features, settings, options.init, device) for features in choices}
    preset, initial = networks[choices[0][0]].preset, networks[choices[0][0]].initial
    labelled = {name: source for name, source in found.items() if name in labels.videos}
    seen, n_folds = _seen(labelled, initial), N_FOLDS if options.folds is None else options.folds
    parts = divide(labels, found, seen, n_folds)
    yield from options.check(parts.labels, found, answered=DIVIDED)
    others = (labels.videos.keys() & found.keys()) - parts.labels.videos.keys()
    yield from not_learnt(
        (sorted(labels.videos.keys() - found.keys()), "left out, for labelled and not among these videos", True),
        (sorted(found.keys() - labels.videos.keys()), "left out, for without labels", True),
        (sorted(others), "left out, for in other subsets", True),
    )
    videos = {i: found[i] for i in sorted(parts.labels.videos)}
    looked = _look(videos, preset.long_side, parts.of(TRAINING))
    request = _request(options, choices, initial, parts.labels, videos)
    workspace = Workspace(model)
    before = workspace.read_plan()
    begun = before is not None and before[0] == request
    if before and begun:
        plan = before[1]
        parts = parts if plan.folds == parts.folds else divide(labels, found, seen)
    else:
        if before:
            yield Notice("videos, labels or options are others than before: learning begins anew.", warning=False)
        yield Notice("measuring this machine …", warning=False)
        for features in choices:
            measure = partial(measured_plan, options, networks=networks[features[0]], looked=looked, videos=videos)
            try:
                plan = measure(parts, device=device)
            except TooShort as error:
                if features != choices[-1]:
                    continue
                if not parts.folds or options.folds is not None:
                    raise
                parts = divide(labels, found, seen)
                plan = measure(parts, device=device)
                yield Notice(f"{error} So videos are held out to measure on, and not learnt from.")
            break
        plan = replace(plan, recipe=str(features[0]) if len(choices) > 1 else None)
    features = next((one for one in choices if one[0] == plan.recipe), choices[0])
    return Learning(model, workspace, videos, parts, settings, features, device, request, plan, begun)


def checked_output(output: str | Path) -> Path:
    """The path of the model file. Raises OutputError where something else has its name, or it is no name of a file."""
    path = Path(output)
    if path.is_dir():
        raise OutputError(f"{path} is a folder.", f"name a file: [[output={path / 'model.lstr'}]].")
    if not path.suffix:
        path = path.with_suffix(".lstr")
    if path.exists() and not is_model(path):
        raise OutputError(f"{path} is there, and is no model file.", "choose another name with [[output]].")
    beside = Workspace(path)
    if beside.path.is_dir() and any(beside.path.iterdir()) and not beside.plan_file.is_file():
        raise OutputError(
            f"{beside.path} is there, and no learning has made it.", "choose another name with [[output]]."
        )
    return path


def _seen(videos: Mapping[str, Place], initial: Mapping[str, Initial]) -> set[str]:
    """The ids of videos that first weights have seen, by id or by content."""
    known = {name for begins in initial.values() for pair in begins.seen.items() for name in pair}
    if not known:
        return set()
    here = {video_id: source for video_id, source in videos.items() if isinstance(source, Path)}
    return {i for i in videos if i in known} | {i for i, path in here.items() if sha256_of(path) in known}


def _look(videos: Mapping[str, Place], long_side: int, needed: list[str]) -> dict[str, Header]:
    """A look at each video. Raises VideoError where none of the `needed` can be read."""

    def look(video: tuple[str, Place]) -> Header:
        source = video[1]
        if isinstance(source, RemoteFile):
            return Header(int(announced_seconds(source) * FEATURES_PER_SECOND), long_side * long_side)
        with left_out(source):  # the step that computes its chunks says why
            probed = probe(source)
            width, height = probed.size(long_side)
            return Header(probed.n_chunks, width * height)
        return Header(0, 0)

    looked = {video_id: found for (video_id, _), found in together(look, videos.items())}
    if not any(looked[i].chunks for i in needed):
        raise VideoError("None of the training videos can be read.", "`lstr info VIDEO` says what is wrong with one.")
    return looked


def _request(
    options: LearnOptions,
    choices: Sequence[Features],
    initial: Mapping[str, Initial],
    labels: Labels,
    videos: Mapping[str, Place],
) -> str:
    """The identity of all that makes the result what it is: equal ones are the same learning."""
    request = {
        **{name: getattr(options, name) for name in ("kind", "seed", "seconds", "folds")},
        **({} if options.false_alarms is None else {"false_alarms": options.false_alarms}),
        "features": choices[0] if len(choices) == 1 else choices,
        "weights": {name: begins.sha256 for name, begins in initial.items()},
        "settings": dict(options.settings),
        "about": dict(options.about),
        "classes": labels.classes,
        "labels": {i: [v.subset, [s.to_dict() for s in v.segments]] for i, v in labels.videos.items()},
        "videos": {i: v.stat().st_size if isinstance(v, Path) else str(v) for i, v in videos.items()},
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()[:16]
