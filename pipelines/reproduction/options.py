"""What to reproduce, on which features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lstr.errors import ConfigError, LabelsError
from lstr.extractors.errors import MissingPathError
from lstr.settings import check_range

SEEDS = 3
LABELS = ("data_info.json", "labels.json")
"""Label files that are found by themselves, in a feature folder or beside it."""


@dataclass(frozen=True)
class ReproduceOptions:
    """What to train and score on what; `lstr reproduce` has an option for each."""

    kind: str
    features: Sequence[str | Path]
    """Feature folders of one recipe, read as one"""
    labels: str | Path | None = None
    """None for one of LABELS beside the features"""
    output: str | Path | None = None
    """The folder of all that comes of it; None for reproduce-PRESET in the current one"""
    preset: str | None = None
    """The settings; None for those that the kind's number on these data was published with"""
    seeds: int = SEEDS
    """How many trainings, by seeds that follow one another"""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By `model.NAME` and `train.NAME`; the result is marked by each that has a part in it"""
    dataset: str | None = None
    """Which data set of a data_info.json"""
    rgb: str | None = None
    """Folder of the RGB features within each of `features`; `flow` alike"""
    flow: str | None = None
    skip_missing: bool = False
    """Leave out labelled videos without features; the result is marked"""
    readers: int | None = None
    """Threads that read features ahead"""
    device: str | None = None
    """`cpu` or `cuda`; None for the GPU where the machine has one"""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of seeds or of readers that is none."""
        if self.seeds < 1:
            raise ConfigError(f"{self.seeds} seeds train nothing.", "give --seeds 1 or more.")
        check_range(self, least={"readers": 0})

    def label_file(self) -> Path:
        """The labels. Raises LabelsError where there are none, and MissingPathError where there are no features."""
        roots = [Path(root) for root in self.features if "://" not in str(root)]
        if missing := next((root for root in roots if not root.exists()), None):
            raise MissingPathError(f"{missing} does not exist.", "check the path; `ls` its folder.")
        if self.labels is not None:
            return Path(self.labels)
        near = [folder / name for root in roots for folder in (root, root.absolute().parent) for name in LABELS]
        found = next((path for path in near if path.is_file()), None)
        if found is None:
            where = ", ".join(map(str, self.features))
            raise LabelsError(f"No {' or '.join(LABELS)} is in {where} or beside it.", "name one with --labels FILE.")
        return found
