"""The head of a model card, in YAML, as the Hugging Face Hub reads it: what kind of model, and its figures."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lstr.pipelines.model_files.description import ordered
from lstr.pipelines.model_files.markdown import one_line

PLAIN = re.compile(r"[a-z][a-z0-9_-]*")
WORDS_OF_YAML = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
UNSEEN, SEEN = "videos that were not learnt from", "videos of which some were learnt from"
"""What the figures are of, by whether the networks have seen a video of it"""


def front_matter(document: Mapping[str, Any]) -> str:
    """Lines from --- to ---, of what model.json says; any text may be in them.

    The licence is `unknown`: only whoever publishes the model can state one.
    """
    about: dict[str, Any] = {
        "license": "unknown",
        "library_name": "lstr-video",
        "pipeline_tag": "video-classification",
        "tags": ["lstr", "online-action-detection", "action-detection", "video"],
    }
    if figures := list(_figures(document)):
        about["metrics"] = list(dict.fromkeys(one["type"] for one in figures))
        is_seen = any(document["metrics"].get(name) for name in ("seen", "learnt_from"))
        result = {
            "task": {"type": "video-classification", "name": "Online action detection"},
            "dataset": {"type": "own-videos", "name": SEEN if is_seen else UNSEEN},
            "metrics": figures,
        }
        about["model-index"] = [{"name": one_line(document["title"]) or "model", "results": [result]}]
    return "\n".join(["---", *_lines(about), "---"])


def _figures(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    metrics = document["metrics"]
    ours, events = metrics.get("lstr"), metrics.get("events")
    if not isinstance(ours, Mapping):
        return
    yield from _figure("mean_average_precision", "mAP per frame", ours.get("mAP"))
    if isinstance(events, Mapping) and isinstance(events.get("together"), Mapping):
        together = events["together"]
        yield from _figure("f1", "F1 of actions at an IoU of 0.3", together["iou"]["0.3"]["f1"])
        yield from _figure("false_alarms_per_hour", "false alarms an hour", together["false_alarms_per_hour"])
    for label, one in ordered(ours.get("per_class") or {}, document).items():
        yield from _figure("average_precision", f"AP per frame of {label}", one.get("AP"))


def _figure(kind: str, name: str, value: Any) -> Iterator[dict[str, Any]]:
    """An entry of a figure; none where there is no number."""
    if isinstance(value, int | float) and math.isfinite(value):
        yield {"type": kind, "name": one_line(name), "value": round(float(value), 4)}


def _lines(value: Mapping[str, Any] | list[Any], indent: str = "") -> Iterator[str]:
    """Tables and lists as indented lines."""
    entries = [(f"{name}:", entry) for name, entry in value.items()] if isinstance(value, Mapping) else None
    for head, entry in entries or [("-", one) for one in value]:
        if not isinstance(entry, Mapping | list):
            yield f"{indent}{head} {_scalar(entry)}"
        elif entries:
            yield f"{indent}{head}"
            yield from _lines(entry, indent + "  ")
        else:  # the first line of a table stands behind the hyphen of its place in a list
            first, *rest = _lines(entry, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest


def _scalar(value: str | float) -> str:
    if not isinstance(value, str):
        return repr(value)
    if PLAIN.fullmatch(value) and value not in WORDS_OF_YAML:
        return value
    return '"' + "".join(map(_quoted, value)) + '"'


def _quoted(character: str) -> str:
    """A character between double quotation marks."""
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
