"""From options to what is to be done: videos found, labels checked and divided, this machine measured, all planned."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.config import WindowConfig
from lstr.extractors.devices import choose_device
from lstr.extractors.errors import OutputError, VideoError
from lstr.extractors.flow.workers import choose_backend
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.presets import Preset
from lstr.extractors.video.inputs import VIDEO_SUFFIXES
from lstr.extractors.video.probe import probe
from lstr.labels.check import check, stop_at_errors
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.footage import footage_of_files
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.extraction.plan import cost_of, row_bytes, widths_of
from lstr.pipelines.extraction.resume import together
from lstr.pipelines.failures import left_out
from lstr.pipelines.files.remote import Place, RemoteFile
from lstr.pipelines.files.videos import announced_seconds, find_sources
from lstr.pipelines.finetuning.config import FEWEST_DRAWS, FinetuneConfig, resolve, trainable
from lstr.pipelines.finetuning.initial_weights import initial_weights
from lstr.pipelines.learning.beginning import features_of, seen_among, settings_of
from lstr.pipelines.learning.options import Features, LearnOptions
from lstr.pipelines.learning.parts import N_FOLDS, TESTING, TRAINING, VALIDATION, Parts, divide
from lstr.pipelines.learning.plan import Costs, LearnPlan, fit_epochs, make_steps
from lstr.pipelines.learning.workspace import Workspace, request_id
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.progress import Findings, Notice
from lstr.pipelines.training.config import TrainConfig, preset_for
from lstr.pipelines.training.config import resolve as resolve_model
from lstr.pipelines.training.teacher import check_teacher

DIVIDED = "no subsets"  # a finding that is answered here, by holding out recordings
CHUNK_PLANES = 13  # colours and flow fields of a cached chunk, a byte a pixel


@dataclass(frozen=True)
class Prepared:
    """What is to be learnt, from what, and where it goes."""

    model: Path
    workspace: Workspace
    videos: Mapping[str, Place]
    parts: Parts
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


def prepare(options: LearnOptions) -> Generator[Findings | Notice, None, Prepared]:
    """Look at everything, and plan. Raises LabelsError, ConfigError, RecipeError, VideoError or OutputError."""
    model = checked_output(options.output)
    found = find_sources([*options.videos, *options.lists], options.endings or VIDEO_SUFFIXES, options.root)
    labels = _labels(options, found)
    device = choose_device(options.device)
    recipe, stream, algorithm = features = features_of(options)
    settings = settings_of(options)
    preset = trainable(recipe, stream, {}, algorithm)
    initial = initial_weights(preset, options.init, {})
    trained = {name: begins.path is not None for name, begins in initial.items()}
    preset, configs = resolve(preset, trained, settings, device)
    if preset.algorithm:
        choose_backend(preset.algorithm, "auto")
    labelled = {name: source for name, source in found.items() if name in labels.videos}
    parts = divide(labels, found, seen_among(labelled, initial))
    yield from _checked(options.labels, parts.labels, found)
    yield from _left_out(labels, found, parts)
    videos = {i: found[i] for i in sorted(parts.labels.videos)}
    looked = _look(videos, preset.long_side, parts.of(TRAINING))
    weights = {name: begins.sha256 for name, begins in initial.items()}
    chosen = {"features": features, "weights": weights, "settings": dict(sorted(options.settings.items()))}
    request = request_id({**chosen, **_request(options, parts.labels, videos)})
    workspace = Workspace.beside(model)
    before = workspace.read_plan()
    begun = before is not None and before[0] == request
    if before and begun:
        plan = before[1]
    else:
        if before:
            yield Notice("videos, labels or options are others than before: learning begins anew.", warning=False)
        yield Notice("measuring this machine …", warning=False)
        plan = _plan(options, parts, preset, configs, looked, videos, device)
    return Prepared(model, workspace, videos, parts, settings, features, device, request, plan, begun)


def checked_output(output: str | Path) -> Path:
    """The path of the model file. Raises OutputError where something else has its name, or it is no name of a file."""
    path = Path(output)
    if path.is_dir():
        raise OutputError(f"{path} is a folder.", f"name a file: [[output={path / 'model.lstr'}]].")
    if not path.suffix:
        path = path.with_suffix(".lstr")
    if path.exists() and not is_model(path):
        raise OutputError(f"{path} is there, and is no model file.", "choose another name with [[output]].")
    beside = Workspace.beside(path).path
    if beside.is_dir() and any(beside.iterdir()) and not Workspace(beside).plan_file.is_file():
        raise OutputError(f"{beside} is there, and no learning has made it.", "choose another name with [[output]].")
    return path


def _labels(options: LearnOptions, found: Mapping[str, Place]) -> Labels:
    roots = [video for video in options.videos if Path(video).is_dir()]
    return read_label_file(options.labels, roots, None, lenient=True, skip_missing=True, present=found)


def _checked(source: str, labels: Labels, found: Mapping[str, Place]) -> Generator[Findings, None, None]:
    """What is wrong or odd in the labels as they are learnt from. Raises LabelsError for what is wrong."""
    footage = footage_of_files({name: found[name] for name in labels.videos})
    findings = [one for one in check(labels, footage=footage) if one.kind != DIVIDED]
    if findings:
        yield Findings(source, findings)
    stop_at_errors(findings, source)


def _left_out(labels: Labels, found: Mapping[str, Place], parts: Parts) -> Generator[Notice, None, None]:
    for ids, what in (
        (sorted(labels.videos.keys() - found.keys()), "labelled and not among these videos"),
        (sorted(found.keys() - labels.videos.keys()), "without labels"),
        (sorted((labels.videos.keys() & found.keys()) - parts.labels.videos.keys()), "in other subsets"),
    ):
        if ids:
            some = ", ".join(ids[:3]) + (" …" if len(ids) > 3 else "")
            yield Notice(f"left out, for {what}: {some} ({len(ids)} in all).")


@dataclass(frozen=True)
class Looked:
    """What a video's header tells; no chunks of one that cannot be read."""

    chunks: int
    pixels: int
    """Pixels of an image at the size that flow is computed at"""


def _look(videos: Mapping[str, Place], long_side: int, needed: list[str]) -> dict[str, Looked]:
    """A look at each video. Raises VideoError where none of the `needed` can be read."""

    def look(video: tuple[str, Place]) -> Looked:
        source = video[1]
        if isinstance(source, RemoteFile):
            return Looked(int(announced_seconds(source) * FEATURES_PER_SECOND), long_side * long_side)
        with left_out(source):  # the step that computes its chunks says why
            probed = probe(source)
            width, height = probed.size(long_side)
            return Looked(probed.n_chunks, width * height)
        return Looked(0, 0)

    looked = {video_id: found for (video_id, _), found in together(look, videos.items())}
    if not any(looked[i].chunks for i in needed):
        raise VideoError("None of the training videos can be read.", "`lstr info VIDEO` says what is wrong with one.")
    return looked


def _request(options: LearnOptions, labels: Labels, videos: Mapping[str, Place]) -> dict[str, Any]:
    """What beside features, weights and settings makes the result what it is."""
    sizes = {i: source.stat().st_size if isinstance(source, Path) else str(source) for i, source in videos.items()}
    return {
        **{name: getattr(options, name) for name in ("kind", "seed", "seconds")},
        "about": dict(options.about),
        "classes": labels.classes,
        "labels": {i: [v.subset, [s.to_dict() for s in v.segments]] for i, v in sorted(labels.videos.items())},
        "videos": sizes,
    }


def _model(settings: Mapping[str, str], preset: Preset, lengths: list[int]) -> tuple[WindowConfig, TrainConfig]:
    """The model that is trained on videos of so many chunks, and how. Raises ConfigError for what cannot be."""
    widths = widths_of(preset)
    name = preset_for(sum(lengths), settings)
    model, training = resolve_model(name, settings, (widths.get("rgb", 0), widths.get("flow", 0)))
    check_teacher(model, training, max(lengths))
    return model, training


def _plan(
    options: LearnOptions,
    parts: Parts,
    preset: Preset,
    configs: Mapping[str, FinetuneConfig],
    looked: Mapping[str, Looked],
    videos: Mapping[str, Place],
    device: str,
) -> LearnPlan:
    from lstr.pipelines.learning.pace import (
        measure_chunks,
        measure_model,
        measure_training,
        row_seconds,
    )

    chunks = {video_id: found.chunks for video_id, found in looked.items()}
    by_subset: dict[str, int] = {}
    for video_id, video in parts.labels.videos.items():
        by_subset[video.subset] = by_subset.get(video.subset, 0) + chunks[video_id]
    learnt = by_subset[TRAINING]
    lengths = [chunks[i] for i in parts.of(TRAINING)]
    model, training = _model(options.of_model, preset, lengths)
    shortest = sorted((i for i in chunks if chunks[i]), key=lambda video_id: (chunks[video_id], video_id))
    image, threads = measure_training(preset, configs, len(parts.labels.classes), device)
    crops = {stream: preset.parts[stream].crops for stream in preset.streams}
    with torch_threads(threads):
        model_seconds = measure_model(model, training, lengths, parts.labels.classes, device)
    chunk_seconds = measure_chunks([videos[i] for i in shortest], preset)
    costs = Costs(chunk_seconds, row_seconds(image, crops), image, model_seconds)
    draws = max(FEWEST_DRAWS, learnt)
    if set_draws := max(config.draws for config in configs.values()):
        draws = set_draws
    wanted = {stream: config.epochs for stream, config in configs.items()}
    n_models = 1 if by_subset.get(VALIDATION) else 1 + N_FOLDS
    others = sum(one.seconds for one in make_steps(by_subset, costs, dict.fromkeys(wanted, 0), draws, n_models))
    epochs, fitted = fit_epochs(options.seconds, others, costs, wanted, draws)
    n_videos = {subset: len(parts.of(subset)) for subset in by_subset}
    cached = [found for i, found in looked.items() if parts.labels.videos[i].subset != TESTING]
    disk: float = sum(found.chunks * found.pixels * CHUNK_PLANES for found in cached)
    disk += sum(by_subset.values()) * row_bytes(preset) + sum(
        cost_of(part.network).bytes for part in preset.parts.values()
    )
    steps = make_steps(by_subset, costs, epochs, fitted, n_models)
    n_classes = len(parts.labels.classes) - 1
    return LearnPlan(
        videos=n_videos,
        chunks=by_subset,
        n_classes=n_classes,
        split=parts.sentence,
        steps=steps,
        epochs=epochs,
        draws=fitted,
        bytes=int(disk),
        threads=threads,
        budget=options.seconds,
    )


def with_epochs(settings: Mapping[str, str], plan: LearnPlan) -> dict[str, str]:
    """The settings of the networks with the epochs and draws of a plan."""
    planned = {f"{stream}.epochs": str(n) for stream, n in plan.epochs.items()}
    others = {name: value for name, value in settings.items() if name.rpartition(".")[2] not in ("epochs", "draws")}
    return {**others, **planned, "draws": str(plan.draws)}


def without_subset(parts: Parts, ids: Mapping[str, str]) -> Labels:
    """The labels of some videos alone, in the subsets that `ids` names."""
    videos = {i: replace(parts.labels.videos[i], subset=subset) for i, subset in ids.items()}
    return replace(parts.labels, videos=videos)
