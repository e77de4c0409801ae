"""What a model file is, in words for people: what it detects, by which models and networks."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lstr.extractors.weights.published_files import Origin
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND


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


def network_of(entry: Mapping[str, Any]) -> str:
    """A network, where its weights are, and what they began with under which licence, in words."""
    where = {
        "inside": "its weights are in this file",
        "random": "with random weights, made from their seed",
        "published": f"with the published weights {entry['weights']!r}, to be fetched: `lstr weights fetch`",
    }
    began = f"; origin: {Origin(**entry['origin'])}" if "origin" in entry else ""
    return f"{entry['network']}, {where[entry['from']]}{began}"
