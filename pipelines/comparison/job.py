"""The comparison job: two model files, videos and labels to which one is better on what neither has seen."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lstr.errors import CheckpointError, few
from lstr.extractors.devices import choose_device
from lstr.extractors.video.inputs import VIDEO_SUFFIXES
from lstr.extractors.weights.published_files import sha256_of
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, subset_named
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.datasets.dataset import Dataset, Split
from lstr.pipelines.datasets.seen_videos import SeenError
from lstr.pipelines.evaluation.analysis import RESAMPLES
from lstr.pipelines.evaluation.findings import Findings, names_of
from lstr.pipelines.evaluation.job import judge
from lstr.pipelines.evaluation.scoring import Scoring
from lstr.pipelines.extraction.chunk_cache import find_cache
from lstr.pipelines.extraction.job import extract
from lstr.pipelines.extraction.options import ExtractOptions
from lstr.pipelines.extraction.resume import Outcome
from lstr.pipelines.features.joined_folders import open_roots
from lstr.pipelines.files.remote import Place
from lstr.pipelines.files.videos import find_sources
from lstr.pipelines.model_files.model_file import ModelFile, open_model
from lstr.pipelines.networks.recipes import choose_recipe, weights_for
from lstr.pipelines.progress import Failed, Finished, Notice, Progress

HELD_OUT = "testing"
LEARNT_FROM = ("training", "validation")


@dataclass(frozen=True)
class ComparisonOptions:
    """Which two model files, on which videos."""

    old: str | Path
    new: str | Path
    videos: Sequence[str]
    """Files, folders, patterns, URLs; what has no label, or what either model has seen, is left out"""
    labels: str | Path
    subset: str | None = None
    """Only videos that the labels have in this subset"""
    resamples: int = RESAMPLES
    """Draws of the videos for confidence intervals"""
    cache: str | Path | None = None
    """Where frames and flow are kept; None for the usual folder"""
    device: str | None = None
    sources: Mapping[str, Place] | None = None
    """The videos by id, where they have been found before; `videos` is then not looked at"""


@dataclass(frozen=True)
class Comparison:
    """What came of it."""

    findings: Findings
    videos: Sequence[str]
    """The videos that neither has seen, by id"""
    failed: Sequence[Failed] = ()

    @property
    def sentence(self) -> str:
        """Which is better, and whether by more than chance."""
        return self.findings.comparison[0]["sentence"]

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` prints: the verdict, the figures that it is of, and both evaluations."""
        row = self.findings.comparison[0]
        return {"sentence": self.sentence, "better": row["better"], "videos": self.videos, **self.findings.document}


Event = Progress | Notice | Failed | Finished[Comparison]


def compare_models(options: ComparisonOptions) -> Generator[Event, None, None]:
    """Measure two model files on the labelled videos that neither has seen, and say which is better.

    Each sees the videos by its own networks and recipe; features are made in a folder that goes away at the end. Raises
    SeenError where no video is left, CheckpointError where the two do not know the same classes, MissingPathError,
    LabelsError, and what extraction raises.
    """
    models = [open_model(path) for path in (options.old, options.new)]
    found, not_read = options.sources, list[str]()
    if found is None:
        found = find_sources(options.videos, VIDEO_SUFFIXES, tell=not_read.append)
    yield from (Notice(text, warning=False) for text in not_read)
    labels = read_label_file(options.labels, lenient=True, skip_missing=True, present=found)
    wanted = subset_named(options.subset) if options.subset else None
    labelled = {i: found[i] for i in sorted(labels.videos.keys() & found.keys())}
    labelled = {i: path for i, path in labelled.items() if wanted in (None, labels.videos[i].subset)}
    videos = unseen(labelled, models)
    if len(videos) < len(labelled):
        left = sorted(labelled.keys() - videos.keys())
        yield Notice(f"left out, for one of the two has seen them: {few(left)}", warning=False)
    _check_classes(models, labels, str(options.labels))
    names = names_of([model.path.absolute() for model in models])
    device, failed = choose_device(options.device), dict[str, Failed]()
    with TemporaryDirectory(prefix="lstr-comparison-") as folder:
        entries = []
        for at, (name, model) in enumerate(zip(names, models, strict=True)):
            with closing(_features(videos, model, Path(folder) / str(at), options, device)) as events:
                for event in events:
                    if isinstance(event, Failed):
                        failed[event.id] = event
                    yield replace(event, what=name) if isinstance(event, Progress) else event
            entries.append((name, model, Path(folder) / str(at)))
        kept = [i for i in videos if i not in failed]
        scored = [(name, model.checkpoint(device), _split(path, model, labels, kept)) for name, model, path in entries]
        findings = yield from judge(scored, Scoring(), options.resamples)
    yield Finished(Comparison(findings, kept, tuple(failed.values())))


def unseen(videos: Mapping[str, Place], models: Sequence[ModelFile]) -> dict[str, Place]:
    """The videos {id: source} that no model or network of the files has seen, by id and by content, nor was chosen on.

    Raises SeenError where none is left.
    """
    known: set[str] = set()
    for model in models:
        known |= {entry for pair in model.about["seen"].items() for entry in pair if entry}
        subsets = model.about.get("videos")
        known |= {i for i, subset in subsets.items() if subset in LEARNT_FROM} if isinstance(subsets, dict) else set()
    left = {i: path for i, path in videos.items() if i not in known}
    left = {i: path for i, path in left.items() if not (isinstance(path, Path) and sha256_of(path) in known)}
    if not left:
        some = f" of {len(videos)}" if videos else ""
        raise SeenError(
            f"There is no labelled video{some} that neither {models[0].path} nor {models[1].path} has seen.",
            "give videos with labels that neither was trained on: only they show which is better on new ones.",
        )
    return left


def _check_classes(models: Sequence[ModelFile], labels: Labels, source: str) -> None:
    """Raise CheckpointError unless both models know the same classes, and all that the labels have."""
    known = [{*model.classes} - {BACKGROUND, AMBIGUOUS} for model in models]
    if known[0] != known[1]:
        raise CheckpointError(
            f"{models[0].path} and {models[1].path} know other classes: {few(sorted(known[0] ^ known[1]))} is known to "
            "one alone.",
            "evaluate each on labels of its own classes.",
        )
    if others := {*labels.classes} - {BACKGROUND, AMBIGUOUS} - known[0]:
        raise CheckpointError(
            f"{source} has classes that the models do not know: {few(sorted(others))}.",
            "give labels of the models' own classes.",
        )


def _features(
    videos: Mapping[str, Place], model: ModelFile, folder: Path, options: ComparisonOptions, device: str
) -> Generator[Progress | Failed | Notice, None, None]:
    """The features of the videos by a model's own networks; progress in videos."""
    recipe = choose_recipe(str(model.path))
    cache = find_cache(str(options.cache) if options.cache else None)
    wanted = ExtractOptions(folder, weights_for(recipe, {}), device, recipe=recipe, cache=cache)
    done = 0
    yield Progress("features", 0, len(videos))
    with closing(extract(videos, wanted)) as events:
        for event in events:
            if isinstance(event, Failed | Notice):
                yield event
            elif isinstance(event, Outcome):
                done += 1
                yield Progress("features", done, len(videos))


def _split(folder: Path, model: ModelFile, labels: Labels, ids: Sequence[str]) -> Split:
    """The videos of some ids with their features and labels, the classes as the model has them."""
    videos = {i: replace(labels.videos[i], subset=HELD_OUT) for i in ids}
    known = replace(labels, classes=model.classes, videos=videos, has_subsets=True)
    return Dataset(open_roots([folder]), known, "the labels").with_durations().split(HELD_OUT)
