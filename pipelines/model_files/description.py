"""What a model file is, in words, and text from anywhere as a part of a Markdown page."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lstr.extractors.networks.weights_file import Origin
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND

# What means something within a line; a low line does so at the edge of a word alone.
STEERING = re.compile(r"[\\`*\[\]<>&~$]|(?<![^\W_])_|_(?![^\W_])")
# What means something at the beginning of a line.
BEGINNING = re.compile(r"[#>+=-]|(?<=\d)[.)](?=\s|$)")


def one_line(text: object) -> str:
    """Return text without line breaks, and without characters that no reader would see."""
    return " ".join("".join(character if character.isprintable() else " " for character in str(text)).split())


def escaped(text: object) -> str:
    """Return text on one line that Markdown shows as it is."""
    line = STEERING.sub(r"\\\g<0>", one_line(text))
    start = BEGINNING.match(line) or re.match(r"\d{1,9}[.)](?=\s|$)", line)
    return f"{line[: start.end() - 1]}\\{line[start.end() - 1 :]}" if start else line


def code(text: object) -> str:
    """Return text on one line as code."""
    return f"`{one_line(text).replace('`', chr(39))}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown themselves; empty without rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return text if len(lines) > 2 else ""


def is_demo(document: Mapping[str, Any]) -> bool:
    """Return whether a model is only for show."""
    return document.get("demo") is True


def actions_of(document: Mapping[str, Any]) -> list[str]:
    """Return the classes that are actions."""
    return [label for label in document["classes"] if label not in (BACKGROUND, AMBIGUOUS)]


def ordered(by_class: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries by class in the order of the classes."""
    return {label: by_class[label] for label in document["classes"] if label in by_class}


def is_average(document: Mapping[str, Any]) -> bool:
    """Return whether a file has several models, whose scores are averaged."""
    return document["config"].get("kind") == "average"


def model_of(document: Mapping[str, Any]) -> str:
    """Return the kind of a file's model, in words; for an average how many there are of each kind."""
    if not is_average(document):
        return f"a model of kind {document['config'].get('kind', 'lstr')}"
    members = document["checkpoint"]["extra"].get("members")
    kinds = Counter(one["kind"] for one in members) if members else Counter[str]()
    if len(kinds) == 1:
        return f"an average of {kinds.total()} models of kind {next(iter(kinds))}"
    each = " and ".join(f"{n} of kind {kind}" for kind, n in kinds.items())
    return f"an average of {kinds.total()} models, {each}" if kinds else "an average of several models"


def exported_in_words(document: Mapping[str, Any]) -> str:
    """Return what runs the graphs of an exported file, how many streams at once, and how near they are to torch."""
    exported = document["exported"]
    alike, streams = exported.get("alike") or {}, exported["step"]["streams"]
    at_once = f", {streams} streams at a time" if streams > 1 else ""
    worst = max((alike.get(name) or 0.0 for name in ("scores", "later_scores")), default=0.0)
    near = f"; scores within {worst:.1e} of torch's" if alike else ""
    return f"by {one_line(exported.get('runs_on', 'onnxruntime'))}{at_once}{near}"


def network_of(entry: Mapping[str, Any], size: tuple[int, int]) -> str:
    """Return a network, the size of what it sees, where its weights are, and their origin and licence, in words."""
    where = {
        "inside": "its weights are in this file",
        "random": "with random weights, made from their seed",
        "published": f"with the published weights {entry['weights']!r}, to be fetched: `lstr weights fetch`",
    }
    began = f"; origin: {Origin(**entry['origin'])}" if "origin" in entry else ""
    return f"{entry['network']} on {size[1]} × {size[0]} pixels, {where[entry['from']]}{began}"
