"""What an evaluation found of one checkpoint or of several, and as one JSON document."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.pipelines.evaluation.scoring import Evaluation

ENDINGS = (".pt", ".pth", ".lstr")


@dataclass(frozen=True)
class Judged:
    """A checkpoint among others: its name, its scores, and everything measured on them (`analysis.analyse`)."""

    name: str
    evaluation: Evaluation
    document: dict[str, Any]


@dataclass(frozen=True)
class Findings:
    """Checkpoints, how far the later ones are ahead of the first, and what others report on the same benchmark."""

    judged: Sequence[Judged]
    comparison: Sequence[dict[str, Any]] = ()
    quoted: dict[str, Any] | None = None
    warnings: Sequence[str] = ()

    @property
    def several(self) -> bool:
        """Whether checkpoints are compared."""
        return len(self.judged) > 1

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` prints: the document of one checkpoint, or all of several; NaN becomes None."""
        result = {**self.judged[0].document}
        if self.several:
            result = {
                "checkpoints": [{"name": one.name, **one.document} for one in self.judged],
                "comparison": list(self.comparison),
            }
        return without_nan({**result, "quoted": self.quoted} if self.quoted else result)


def names_of(paths: Sequence[Path]) -> list[str]:
    """A short name for each checkpoint, no two alike: the file's, or its folder's where all files are called the same,
    with as many folders as it takes; else a number."""
    paths = [path.with_suffix("") if path.suffix in ENDINGS else path for path in paths]
    if len({path.name for path in paths}) == 1 < len({path.parent for path in paths}):
        paths = [path.parent for path in paths]
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{i}. {path.name}" for i, path in enumerate(paths, start=1)]


def without_nan(value: Any) -> Any:
    """The same with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
