"""The comparison job: measure model files on labelled videos that none was trained on, each with its own features."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lstr.errors import CheckpointError, SeenError, few
from lstr.extractors.devices import choose_device
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.video.inputs import find_sources
from lstr.files.atomic import check_writable
from lstr.files.remote import Place
from lstr.labels.check import check, stop_at_errors
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, select, with_ambiguous
from lstr.labels.video_ids import check_match
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.annotations.videos import footage_of_files
from lstr.pipelines.evaluation.analysis import RESAMPLES, names_of
from lstr.pipelines.evaluation.evaluate import EvaluateResult, judge, write_report
from lstr.pipelines.evaluation.scoring import Scoring
from lstr.pipelines.features.chunk_cache import find_cache
from lstr.pipelines.features.dataset import Dataset
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.folder import open_folders
from lstr.pipelines.features.recipes import choose_recipe, weights_for
from lstr.pipelines.model_files.model_file import ModelFile, open_model, validation_videos
from lstr.pipelines.progress import Failed, Finished, Notice, Progress

TESTING = "testing"
TRAINING = "training"


Event = Progress | Notice | Failed | Finished[EvaluateResult]


def compare_models(
    paths: Sequence[str | Path],
    sources: Sequence[str],
    label_file: str | Path,
    subset: str | None = None,
    resamples: int = RESAMPLES,
    output: str | Path | None = None,
) -> Generator[Event, None, None]:
    """Measure model files on the labelled videos that none was trained on, and compare each with the first.

    Features are computed in a temporary folder by the networks and the recipe of each model, once for models with equal
    recipes.

    Args:
        paths: Model files.
        sources: Files, folders, patterns and URLs; videos without labels, and training videos of any model, are
            skipped.
        label_file: The labels.
        subset: Use only videos of this subset.
        resamples: Number of resamples of the videos for confidence intervals.
        output: Folder for report.html, JSON, CSV and figures.

    Raises:
        SeenError: No video is left.
        CheckpointError: The models have different classes.
        MissingPathError, LabelsError, OutputError: An input or the output cannot be used; also as the extraction.
    """
    if output:
        check_writable(Path(output))
    models = [open_model(path) for path in paths]
    not_read: list[str] = []
    found = find_sources(sources, notify=not_read.append)
    yield from (Notice(text, warning=False) for text in not_read)
    labels = read_label_file(label_file, lenient=True, skip_missing=True, present=found)
    chosen = select(labels, subset).videos if subset else labels.videos
    check_match(chosen, found)
    labelled = {i: found[i] for i in sorted(chosen.keys() & found.keys())}
    videos = unseen(labelled, models)
    if len(videos) < len(labelled):
        left = sorted(labelled.keys() - videos.keys())
        who = "the model" if len(models) == 1 else "one of the models"
        yield Notice(f"skipped, because {who} was trained on them: {few(left)}", warning=False)
    _check_classes(models, labels, str(label_file))
    held = replace(labels, videos={i: replace(labels.videos[i], subset=TESTING) for i in videos}, has_subsets=True)
    stop_at_errors(check(held, footage=footage_of_files(videos)), str(label_file))
    names = names_of([model.path.absolute() for model in models])
    device, failed = choose_device(None), dict[str, Failed]()
    cache = find_cache(None)
    with TemporaryDirectory(prefix="lstr-comparison-") as folder:
        made: dict[str, Path] = {}
        for name, model in zip(names, models, strict=True):
            if model.recipe.id in made:
                continue
            made[model.recipe.id] = Path(folder) / str(len(made))
            recipe = choose_recipe(str(model.path))
            wanted = ExtractOptions(made[model.recipe.id], weights_for(recipe, {}), device, recipe=recipe, cache=cache)
            done = 0
            yield Progress(name, done, len(videos))
            with closing(extract(videos, wanted)) as events:
                for event in events:
                    if isinstance(event, Failed):
                        failed[event.id] = event
                    if isinstance(event, Failed | Notice):
                        yield event
                    elif isinstance(event, Outcome):
                        done += 1
                        yield Progress(name, done, len(videos))
        kept = [i for i in videos if i not in failed]
        trained = {i: v for i, v in labels.videos.items() if v.subset == TRAINING and i not in videos}  # for baselines
        scored = []
        for name, model in zip(names, models, strict=True):
            classes = with_ambiguous(model.classes, held.classes)
            known = replace(held, classes=classes, videos={**trained, **{i: held.videos[i] for i in kept}})
            dataset = Dataset(open_folders([made[model.recipe.id]]), known, "the labels").with_durations()
            scored.append((name, model.checkpoint(device), dataset.split(TESTING)))
        findings = yield from judge(scored, Scoring(), resamples)
        page = write_report(output, findings)
    document = findings.document
    if findings.several:
        document = {**document, "videos": kept}
    if len(findings.comparison) == 1:
        (row,) = findings.comparison
        document = {"sentence": row["sentence"], "better": row["better"], **document}
    yield Finished(EvaluateResult(document, findings, page, failed=tuple(failed.values())))


def unseen(videos: Mapping[str, Place], models: Sequence[ModelFile]) -> dict[str, Place]:
    """Return the videos {id: source} that no model or network was trained on or selected with, by id and by content.

    Raises SeenError if no video is left.
    """
    known: set[str] = set()
    for model in models:
        known |= {entry for pair in model.about["seen"].items() for entry in pair if entry}
        known |= {*validation_videos(model.about["checkpoint"]["metrics"], model.about)}
        subsets = model.about.get("videos")
        known |= {i for i, subset in subsets.items() if subset == TRAINING} if isinstance(subsets, dict) else set()
    left = {i: path for i, path in videos.items() if i not in known}
    left = {i: path for i, path in left.items() if not (isinstance(path, Path) and sha256_of(path) in known)}
    if not left:
        paths = " and by ".join(str(model.path) for model in models)
        raise SeenError(
            f"Every labelled video was used to train {paths}.",
            "use labelled videos that none of these models was trained on.",
        )
    return left


def _check_classes(models: Sequence[ModelFile], labels: Labels, source: str) -> None:
    """Raise CheckpointError unless all models have the same classes, including all classes of the labels."""
    known = [{*model.classes} - {BACKGROUND, AMBIGUOUS} for model in models]
    for model, classes in zip(models, known, strict=True):
        if classes != known[0]:
            raise CheckpointError(
                f"{models[0].path} and {model.path} have different classes: only one has "
                f"{few(sorted(known[0] ^ classes))}.",
                "evaluate each model separately, on labels with its classes.",
            )
    if others := {*labels.classes} - {BACKGROUND, AMBIGUOUS} - known[0]:
        raise CheckpointError(
            f"{source} has classes that the models lack: {few(sorted(others))}.",
            "use labels of the models' own classes.",
        )
