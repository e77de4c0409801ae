"""What a project began with: the label files, and what a person said of their columns; kept in its journal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstr.pipelines.files.json_files import read_jsonl
from lstr.pipelines.labelling.columns import Choice

Origin = dict[str, Any]


def origin_of(labels: Sequence[str], choice: Choice | None = None) -> Origin:
    """The origin of a project that begins with label files, in JSON's types; empty without any."""
    if not labels:
        return {}
    said = {"columns": dict(choice.columns), "unit": choice.unit} if choice else {}
    return {"labels": [str(Path(path).absolute()) for path in labels], **said}


def began_with(output: Path, labels: Sequence[str]) -> bool:
    """Whether the project of a labels file has begun with these label files, so that it goes on."""
    journal = output.with_name(f"{output.name}.journal")
    if not labels or not journal.is_file():
        return False
    origins = [line["origin"] for line in read_jsonl(journal) if isinstance(line, dict) and "origin" in line]
    return bool(origins) and origins[-1].get("labels") == origin_of(labels)["labels"]
