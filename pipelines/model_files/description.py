"""What a model file is, in words for people: what it detects, by which models and networks."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lstr.extractors.networks.weights_file import Origin
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.model_files.markdown import one_line


def is_demo(document: Mapping[str, Any]) -> bool:
    """Whether a model is for show alone."""
    return document.get("demo") is True


def actions_of(document: Mapping[str, Any]) -> list[str]:
    """The classes that are actions."""
    return [label for label in document["classes"] if label not in (BACKGROUND, AMBIGUOUS)]


def ordered(by_class: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Entries by class in the order of the classes, whatever order a file has them in."""
    return {label: by_class[label] for label in document["classes"] if label in by_class}


def is_average(document: Mapping[str, Any]) -> bool:
    """Whether a file has several models, whose scores are averaged."""
    return document["config"].get("kind") == "average"


def model_of(document: Mapping[str, Any]) -> str:
    """The model of a file by its kind, in words; of an average how many of each kind."""
    if not is_average(document):
        return f"a model of kind {document['config'].get('kind', 'lstr')}"
    members = document["checkpoint"]["extra"].get("members")
    kinds = Counter(one["kind"] for one in members) if members else Counter[str]()
    if len(kinds) == 1:
        return f"an average of {kinds.total()} models of kind {next(iter(kinds))}"
    each = " and ".join(f"{n} of kind {kind}" for kind, n in kinds.items())
    return f"an average of {kinds.total()} models, {each}" if kinds else "an average of several models"


def exported_in_words(document: Mapping[str, Any]) -> str:
    """What runs the graphs of an exported file, how many streams at once, and how near they are to torch."""
    exported = document["exported"]
    alike, streams = exported.get("alike") or {}, exported["step"]["streams"]
    at_once = f", {streams} streams at a time" if streams > 1 else ""
    worst = max((alike.get(name) or 0.0 for name in ("scores", "later_scores")), default=0.0)
    near = f"; scores within {worst:.1e} of torch's" if alike else ""
    return f"by {one_line(exported.get('runs_on', 'onnxruntime'))}{at_once}{near}"


def network_of(entry: Mapping[str, Any], size: tuple[int, int]) -> str:
    """A network, height and width of what it sees in pixels, where its weights are, and what they began with under
    which licence, in words."""
    where = {
        "inside": "its weights are in this file",
        "random": "with random weights, made from their seed",
        "published": f"with the published weights {entry['weights']!r}, to be fetched: `lstr weights fetch`",
    }
    began = f"; origin: {Origin(**entry['origin'])}" if "origin" in entry else ""
    return f"{entry['network']} on {size[1]} × {size[0]} pixels, {where[entry['from']]}{began}"
