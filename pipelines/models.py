"""Every kind of model with its paper, its cost, its published numbers and the speed that was measured."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lstr.cost import cost_of
from lstr.errors import ConfigError
from lstr.extractors.home import home
from lstr.kinds import KINDS, usable
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.pipelines.files.json_files import write_json

RECORD = Path(__file__).resolve().parents[1] / "benchmarks" / "models.json"
"""What was measured on the machine of the documentation; in a source tree alone."""
ABOUT = ("machine", "processor")
"""What a kind's speed is told with, beside its date."""


def own_record() -> Path:
    """The file of what benchmarks/models.py measured on this machine."""
    return home() / "models.json"


def keep_speeds(record: Mapping[str, Any]) -> None:
    """Let `describe_models` show the speeds of this record from now on, and of other kinds those it showed before."""
    before = speeds_in(own_record())
    same = all(before.get(key) == record[key] for key in ABOUT)
    write_json(own_record(), {**record, "kinds": {**(before["kinds"] if same else {}), **record["kinds"]}})


def read_speeds() -> dict[str, Any]:
    """The record of this machine, else that of the source tree, else an empty one."""
    return speeds_in(own_record()) or speeds_in(RECORD)


def speeds_in(path: Path) -> dict[str, Any]:
    """A record; empty where there is none, or something else has its name."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("kinds"), dict) else {}


def describe_models(kind: str | None = None, record: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Each kind, or one: paper, code, licence, exactness, presets, cost of the published size, speed, numbers.

    record has the speeds, None for that of `read_speeds`. Raises ConfigError for a kind that does not exist.
    """
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"There is no kind {kind!r}.", f"Choose one of: {', '.join(KINDS)}.")
    record = read_speeds() if record is None else record
    for name, described in (usable() if kind is None else {kind: KINDS[kind]}).items():
        speed = record.get("kinds", {}).get(name)
        yield {
            "kind": name,
            **asdict(described.publication),
            "presets": list(described.presets),
            **asdict(cost_of(described.published_size, len(THUMOS_CLASSES))),
            "speed": speed and {**{key: record[key] for key in ABOUT if key in record}, **speed},
        }
