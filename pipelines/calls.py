"""Jobs as Python functions: they return the result, and pass events to a callback."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from lstr.errors import ConfigError, LstrError, MissingPathError, OutputError
from lstr.extractors.networks.published import named_weights
from lstr.extractors.video.inputs import find_sources
from lstr.files.remote import Place, place
from lstr.pipelines.annotations.convert import Conversion
from lstr.pipelines.annotations.convert import convert as convert_all
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.evaluation.evaluate import EvaluateOptions, EvaluateResult
from lstr.pipelines.evaluation.evaluate import evaluate as evaluation
from lstr.pipelines.features import extract as extraction
from lstr.pipelines.features.chunk_cache import find_cache
from lstr.pipelines.features.extraction import ExtractOptions, Summary
from lstr.pipelines.features.recipes import choose_recipe, default_recipe, weights_for
from lstr.pipelines.learning.learn import Learnt
from lstr.pipelines.learning.learn import learn as learning
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.progress import Notice, result_of, warn
from lstr.pipelines.training.finetune import Finetuned, FinetuneOptions
from lstr.pipelines.training.finetune import finetune as finetuning
from lstr.pipelines.training.train import Trained, TrainOptions
from lstr.pipelines.training.train import train as training

Paths = str | Path | Sequence[str | Path]
Show = Callable[[Any], None]


def extract(
    videos: Paths | Mapping[str, str | Path],
    output: str | Path,
    *,
    recipe: str | Path | None = None,
    weights: Mapping[str, str | Path | None] | str | Path | None = None,
    cache: str | Path | None = None,
    calibrate: str | Path | None = None,
    show: Show = warn,
    **options: Any,
) -> Summary:
    """Extract the features of videos into the folder `output`, like `lstr extract`; a second call resumes.

    A video that fails is reported in `Summary.failed`.

    Args:
        videos: Files, folders, patterns, URLs, or {id: source}.
        output: The folder to write.
        recipe: A name, a file, a feature folder, a checkpoint, a model file, or a folder of `lstr.finetune`; None for
            `faithful` on a GPU and `fast` on a CPU.
        weights: A file, a folder of `lstr.finetune`, a model file, or a name of published weights such as "kinetics";
            or a mapping of these by stream.
        cache: Folder for decoded chunks and flow.
        calibrate: A label file, whose training videos give random weights batch-norm statistics.
        show: Is called with each event.
        options: Other fields of `pipelines.features.extraction.ExtractOptions`.
    """
    check_path(output, "output", OutputError)
    listed = path_list(videos, "videos")
    found: Mapping[str, Place]
    if isinstance(videos, Mapping):
        found = {video_id: place(str(source)) for video_id, source in videos.items()}
    else:
        found = find_sources(listed, notify=lambda text: show(Notice(text, warning=False)))
    chosen = choose_recipe(str(recipe) if recipe else default_recipe(place(str(output)), options.get("device"))[0])
    files = weights_for(chosen, named_weights(weights, chosen.streams))
    job = ExtractOptions(
        output=place(str(output)),
        weights=files,
        recipe=chosen,
        cache=find_cache(cache),
        calibrate=Path(calibrate) if calibrate else None,
        **check_options(ExtractOptions, options, "extract"),
    )
    return result_of(extraction.extract(found, job), show)


def train(features: Paths, labels: str | Path, output: str | Path, *, show: Show = warn, **options: Any) -> Trained:
    """Train a model on feature folders, like `lstr train`; the checkpoint is `Trained.checkpoint`.

    Args:
        features: Feature folders.
        labels: The label file.
        output: The folder to write.
        show: Is called with each event.
        options: Other fields of `pipelines.training.train.TrainOptions`, such as preset="rnn-small" or
            settings={"model.d_model": 64}.
    """
    check_path(output, "output", OutputError)
    check_path(labels, "labels")
    chosen = check_options(TrainOptions, options, "train")
    folders = path_list(features, "features")
    return result_of(training(TrainOptions(output, features=folders, labels=labels, **chosen)), show)


def evaluate(
    checkpoints: Paths, features: Paths, labels: str | Path, *, show: Show = warn, **options: Any
) -> EvaluateResult:
    """Measure checkpoints or model files on held-out videos, like `lstr evaluate`.

    The metrics are in `EvaluateResult.document`.

    Args:
        checkpoints: Checkpoints or model files.
        features: Feature folders.
        labels: The label file.
        show: Is called with each event.
        options: Other fields of `pipelines.evaluation.evaluate.EvaluateOptions`, such as subset="testing" or
            mode="stream".
    """
    check_path(labels, "labels")
    chosen = check_options(EvaluateOptions, options, "evaluate")
    paths, folders = path_list(checkpoints, "checkpoints"), path_list(features, "features")
    job = EvaluateOptions(paths, features=folders, labels=labels, **chosen)
    return result_of(evaluation(job), show)


def finetune(
    videos: Paths, labels: Paths, output: str | Path, *, show: Show = warn, **options: Any
) -> Finetuned | None:
    """Train the feature networks on labelled videos, like `lstr finetune`, into the weights folder `output`.

    Under torchrun, all processes except the first return None.

    Args:
        videos: Files, folders, patterns or URLs.
        labels: Label files.
        output: The folder to write.
        show: Is called with each event.
        options: Other fields of `pipelines.training.finetune.FinetuneOptions`, such as stream="flow" or
            settings={"epochs": 10}.
    """
    check_path(output, "output", OutputError)
    chosen = check_options(FinetuneOptions, options, "finetune")
    job = FinetuneOptions(path_list(videos, "videos"), path_list(labels, "labels"), output, **chosen)
    return result_of(finetuning(job), show)


def learn(videos: Paths, labels: Paths, output: str | Path, *, show: Show = warn, **options: Any) -> Learnt:
    """Learn from labelled videos, like `lstr learn`; a second call resumes.

    The model file is `Learnt.model`. A video that fails is reported in `Learnt.failed`.

    Args:
        videos: Files, folders, patterns or URLs.
        labels: Label files.
        output: The folder to write.
        show: Is called with each event.
        options: Other fields of `pipelines.learning.plan.LearnOptions`, such as seconds=900 or
            settings={"epochs": 20}.
    """
    check_path(output, "output", OutputError)
    chosen = check_options(LearnOptions, options, "learn")
    job = LearnOptions(path_list(videos, "videos"), path_list(labels, "labels"), output, **chosen)
    return result_of(learning(job), show)


def convert(sources: Paths, to: str, output: str | Path | None = None, **options: Any) -> Conversion:
    """Convert annotations or timelines to the format `to`, like `lstr labels convert`.

    Without `output` the text is `Conversion.text`. `options` are fields of
    `pipelines.annotations.format.ConvertOptions`.
    """
    chosen = ConvertOptions(**check_options(ConvertOptions, options, "convert"))
    return convert_all(path_list(sources, "sources"), to, Path(output) if output else None, chosen)


def check_path(path: Any, name: str, error_type: type[LstrError] = MissingPathError) -> None:
    """Raise an error for a value that is not a path: str(None) would be the name of a folder."""
    if not isinstance(path, str | PathLike) or not str(path):
        raise error_type(f"The argument {name} is {path!r}, which is not a path.", "name a file or folder.")


def path_list(paths: Any, name: str) -> list[str]:
    """Return one or more paths as a list. Raises MissingPathError without a path."""
    listed = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    if not listed:
        raise MissingPathError(f"The argument {name} is empty.", "name one or more paths.")
    for path in listed:
        check_path(path, name)
    return list(map(str, listed))


def check_options(kind: Any, options: Mapping[str, Any], call: str) -> dict[str, Any]:
    """Check options, and return them with settings converted to text as on the command line.

    Raises ConfigError for an unknown option, and if settings are not a mapping.
    """
    names = [field.name for field in fields(kind) if field.init]
    for name in options:
        if name not in names:
            others = ' Other settings are given as settings={"NAME": VALUE}.' if "settings" in names else ""
            raise ConfigError(f"lstr.{call} has no argument {name!r}.", f"choose one of: {', '.join(names)}.{others}")
    # Settings are text on the command line, and the same parser checks them here.
    settings = options.get("settings", {})
    if not isinstance(settings, Mapping):
        raise ConfigError(f"The settings are {settings!r}.", 'use values by name, as settings={"NAME": VALUE}.')
    as_text = {name: str(value) for name, value in settings.items()}
    return {**options, **({"settings": as_text} if as_text else {})}
