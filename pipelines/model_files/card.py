"""Model cards in Markdown, generated from model.json, and descriptions of model files for commands."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.extractors.networks.weights_file import Origin
from lstr.extractors.recipe import Recipe
from lstr.labels.label_set import actions_of
from lstr.metrics import intervals
from lstr.metrics.actions import sentence
from lstr.timeline import DEFAULT

TEMPLATE = Path(__file__).with_name("card.md.jinja")
SUBSETS = ("training", "validation", "testing")
SYSTEMS = {"lstr": "this model", "time_prior": "time prior", "chance": "chance"}
WHERE = {
    "inside": "weights in this file",
    "random": "random weights, drawn from a seed",
    "published": "published weights",
}
# Heads of the columns of thresholds, and how their values are written.
RULES = {
    "on": ("starts at", "{:.3f}"),
    "off": ("ends below", "{:.3f}"),
    "min_length": ("ignored below", "{:g} s"),
    "merge_gap": ("gaps joined up to", "{:g} s"),
    "highest": ("only if highest", "yes"),
    "backdate": ("start reported earlier by", "{:g} s"),
}
# Special characters of Markdown within a line; an underscore only at the edge of a word.
STEERING = re.compile(r"[\\`*\[\]<>&~$]|(?<![^\W_])_|_(?![^\W_])")
# Special characters of Markdown at the beginning of a line.
BEGINNING = re.compile(r"[#>+=-]|(?<=\d)[.)](?=\s|$)")


def card_of(document: Mapping[str, Any], file_name: str) -> str:
    """Return the card of a model file, made from its model.json.

    Raises KeyError, TypeError, ValueError or AttributeError if an entry of model.json is missing or of another type.
    """
    from jinja2 import Environment, TemplateError

    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"md": escaped, "code": code}
    extra, config = document["checkpoint"]["extra"], document["config"]
    metrics = document["metrics"]
    stored = extra.get("data") or {}
    store = {"widths": {}, **stored["store"]} if isinstance(stored.get("store"), Mapping) else {}
    clock = Clock.from_dict(store) if store else CLOCK
    networks = dict(sorted(document["networks"].items(), reverse=True))  # rgb, flow
    origins = [Origin(**entry["origin"]) for entry in networks.values() if "origin" in entry]
    # Videos and labelled actions by subset, as far as they are recorded
    subsets = (document.get("data") or {}).get("subsets") or {}
    if not subsets and {"videos", "chunks"} <= stored.keys():
        subsets = {"training": {"videos": stored["videos"], "seconds": clock.length(stored["chunks"])}}
    names = sorted(subsets, key=lambda name: SUBSETS.index(name) if name in SUBSETS else len(SUBSETS))
    counted = {name: subsets[name]["labels"] for name in names if "labels" in subsets[name]}
    rows = []
    for name in names:
        n_labels = str(sum(counted[name].values())) if name in counted else ""
        rows.append((code(name), str(subsets[name]["videos"]), f"{subsets[name]['seconds'] / 60:.1f}", n_labels))
    actions = actions_of(document["classes"])
    by_class = [(escaped(label), *(str(n.get(label, 0)) for n in counted.values())) for label in actions if counted]
    is_measured = isinstance(metrics.get("lstr"), Mapping)
    values = {
        "document": document,
        "name": shlex.quote(plain_line(file_name)),
        "actions": actions,
        "clock": clock,
        "store": store,
        "trained": table(("videos", "number", "minutes", "labelled actions"), rows),
        "labelled": table(("labelled actions", *map(code, counted)), by_class),
        "recipe": Recipe.from_dict(document["recipe"]) if document["recipe"] is not None else None,
        "networks": networks,
        "where": WHERE,
        "model": model_of(document),
        "n_features": sum(config[n] for n in ("rgb_dim", "flow_dim") if isinstance(config.get(n), int)),
        "width": config.get("d_model") if isinstance(config.get("d_model"), int) else None,
        "is_measured": is_measured,
        # Without measurements these entries are not read: those of older files differ.
        **(_measurements(document) if is_measured else {}),
        "thresholds": table(
            ("class", *(head for head, _ in RULES.values())),
            [
                (escaped(label), *(form.format(rules[n]) if rules.get(n) else "" for n, (_, form) in RULES.items()))
                for label in document["classes"]
                if (rules := (document["thresholds"] or {}).get(label)) is not None
            ],
        ),
        "default": DEFAULT,
        "exported": exported_in_words(document) if "exported" in document else "",
        "of_imagenet": any("imagenet" in (origin.dataset or "").lower() for origin in origins),
        "versions": sorted({"lstr": document["lstr"], **document["checkpoint"]["versions"]}.items()),
    }
    try:
        text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(values)
    except TemplateError as error:
        raise KeyError(str(error)) from error
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _measurements(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables and sentences of a measured model, by their names in the template."""
    metrics = document["metrics"]
    means: list[tuple[str, ...]] = []
    for name, label in SYSTEMS.items():
        if isinstance(scores := metrics.get(name), Mapping):
            edges = (metrics.get("interval") or {}) if name == "lstr" else {}
            means.append((label, *(_number(scores.get(mean)) + _interval(edges.get(mean)) for mean in ("mAP", "mcAP"))))
    events = metrics.get("events") or {}
    sentences, together = [], events.get("together")
    if isinstance(together, Mapping):
        result = sentence(events)
        sentences.append(f"{escaped(result[0].upper() + result[1:])}.")
        if (f1 := together["iou"]["0.3"]["f1"]) is not None:
            sentences.append(f"F1 is {f1:.2f}{_interval((together.get('interval') or {}).get('f1'), 2)}.")
    found, scored = events.get("per_class") or {}, metrics["lstr"].get("per_class") or {}
    rows = []
    for label in (label for label in document["classes"] if label in scored or label in found):
        counts = found.get(label) or {}
        caught = f"{counts['found']} of {counts['labels']}" if counts.get("labels") else ""
        accuracy = _number(((counts.get("iou") or {}).get("0.3") or {}).get("f1"), 2)
        accuracy += _interval((counts.get("interval") or {}).get("f1"), 2)
        per_hour, hours = "", events.get("hours")
        if counts and hours and (edges := intervals.rate_interval(counts["false_alarms"], hours)):
            rate, within = counts["false_alarms"] / hours, intervals.interval_text(edges)
            per_hour = f"{rate:.{0 if rate >= 10 else 2}f} [{within}]" if rate else within
        average = _number((scored.get(label) or {}).get("AP"))
        rows.append((escaped(label), average, caught, accuracy, str(counts.get("false_alarms", "")), per_hour))
    variants, taken = [], document.get("taken")
    for one in sorted(document.get("tried") or (), key=lambda one: -one["mAP"]):
        variants.append((escaped(one["model"]), _number(one["mAP"]), "this file" if one["model"] == taken else ""))
    return {
        "means": table(("per frame", "mAP", "mcAP"), means),
        "events": " ".join(sentences),
        "classes": table(("class", "AP", "found", "F1", "false alarms", "per hour"), rows),
        "testing": [i for i, subset in document.get("videos", {}).items() if subset == "testing"],
        "variants": table(("model, on the same videos", "mAP", ""), variants),
    }


def _number(value: Any, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) and math.isfinite(value) else ""


def _interval(edges: Any, digits: int = 3) -> str:
    """Return an interval behind its figure; empty if it is unknown."""
    if not isinstance(edges, Iterable) or not all(isinstance(edge, int | float) for edge in edges):
        return ""
    first, second = edges
    return f" [{first:.{digits}f}, {second:.{digits}f}]"


def plain_line(text: object) -> str:
    """Return text without line breaks and invisible characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in str(text)).split())


def escaped(text: object) -> str:
    """Escape a text for one line of Markdown."""
    line = STEERING.sub(r"\\\g<0>", plain_line(text))
    start = BEGINNING.match(line) or re.match(r"\d{1,9}[.)](?=\s|$)", line)
    return f"{line[: start.end() - 1]}\\{line[start.end() - 1 :]}" if start else line


def code(text: object) -> str:
    """Return text on one line as code."""
    return f"`{plain_line(text).replace('`', chr(39))}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown themselves, without columns that are empty; empty without rows."""
    columns = [(head, "---", *cells) for head, *cells in zip(heads, *rows, strict=True) if any(cells)]
    lines = zip(*columns, strict=True)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def model_of(document: Mapping[str, Any]) -> str:
    """Return the kind of a file's model, in words; for an average how many there are of each kind."""
    if document["config"].get("kind") != "average":
        return f"a model of kind {document['config'].get('kind', 'lstr')}"
    kinds = Counter(one["kind"] for one in document["checkpoint"]["extra"].get("members") or ())
    if len(kinds) == 1:
        return f"an average of {kinds.total()} models of kind {next(iter(kinds))}"
    each = " and ".join(f"{n} of kind {kind}" for kind, n in kinds.items())
    return f"an average of {kinds.total()} models, {each}" if kinds else "an average of several models"


def exported_in_words(document: Mapping[str, Any]) -> str:
    """Return the runtime of an exported file, its streams per call, and its largest difference from torch, in words."""
    exported = document["exported"]
    alike, streams = exported.get("alike") or {}, exported["step"]["streams"]
    at_once = f", {streams} streams at a time" if streams > 1 else ""
    worst = max((alike.get(name) or 0.0 for name in ("scores", "later_scores")), default=0.0)
    near = f"; scores within {worst:.1e} of torch's" if alike else ""
    return f"by {plain_line(exported.get('runs_on', 'onnxruntime'))}{at_once}{near}"
