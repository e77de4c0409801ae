"""How data at hand differ from those of a paper: videos, classes, and how their features were made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lstr.errors import few
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.datasets.published_sets import PublishedSet

SYNTHETIC = "synthetic data"
MARK = "synthetic.json"
"""A file that says of a feature folder that its features were drawn, and of no video."""


@dataclass(frozen=True)
class Difference:
    """Something of the data that is not as it was published."""

    what: str
    published: str
    here: str

    def __str__(self) -> str:
        """One clause."""
        return self.what if self.what == SYNTHETIC else f"{self.what}: {self.here}; published: {self.published}"


def differences(
    published: PublishedSet | None, expected: str, training: Split, testing: Split, roots: Sequence[str | Path]
) -> Iterator[Difference]:
    """Everything that is not as in the data set of the paper, which is called `expected`; None for other labels."""
    if any((Path(root) / MARK).exists() for root in roots):
        yield Difference(SYNTHETIC, "features of videos", "features that were drawn")
    recipe = training.folder.recipe
    if recipe and recipe.is_random:
        yield Difference("features", "of trained networks", f"of random {recipe.random_streams} networks")
    if published is None:
        yield Difference("data set", expected, "another, by its classes")
        return
    if len(training.labels.classes) != published.n_classes or not {*published.classes} <= {*training.labels.classes}:
        lacking = [name for name in published.classes if name not in training.labels.classes]
        here = f"{len(training.labels.classes)}" + (f", without {few(lacking)}" if lacking else "")
        yield Difference("classes", str(published.n_classes), here)
    for subset, split in (("training", training), ("testing", testing)):
        ids = [video.id for video in split.videos]
        missing, others = published.missing(subset, ids), published.others(subset, ids)
        if len(ids) != published.videos[subset] or missing or others:
            fewer = f", without {len(missing)}: {few(missing)}" if missing else ""
            more = f", with {len(others)} others: {few(others)}" if others else ""
            yield Difference(f"{subset} videos", str(published.videos[subset]), f"{len(ids)}{fewer}{more}")
