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
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics import intervals
from lstr.metrics.actions import length_text
from lstr.timeline import DEFAULT

TEMPLATE = Path(__file__).with_name("card.md.jinja")
SUBSETS = ("training", "validation", "testing")
SYSTEMS = {"lstr": "this model", "time_prior": "time prior", "chance": "chance"}
MAX_VIDEOS = 20  # listed on the card; model.json has all
WHERE = {
    "inside": "weights in this file",
    "random": "random weights, drawn from a seed",
    "published": "published weights",
}
# Special characters of Markdown within a line; an underscore only at the edge of a word.
STEERING = re.compile(r"[\\`*\[\]<>&~$]|(?<![^\W_])_|_(?![^\W_])")
# Special characters of Markdown at the beginning of a line.
BEGINNING = re.compile(r"[#>+=-]|(?<=\d)[.)](?=\s|$)")


def card_of(document: Mapping[str, Any], name: str) -> str:
    """Return the card of a model file called `name`, made from its model.json.

    Raises KeyError, TypeError, ValueError or AttributeError if an entry of model.json is missing or of another type.
    """
    from jinja2 import Environment, TemplateError

    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"md": escaped, "code": code, "names": _names}
    extra, config = document["checkpoint"]["extra"], document["config"]
    metrics, seen = document["metrics"], document["seen"]
    store = (extra.get("data") or {}).get("store")
    store = {"widths": {}, **store} if isinstance(store, Mapping) else {}
    clock = Clock.from_dict(store) if store else CLOCK
    networks = dict(sorted(document["networks"].items(), reverse=True))  # rgb, flow
    origins = [Origin(**entry["origin"]) for entry in networks.values() if "origin" in entry]
    trained, labelled = _training_tables(document, clock)
    is_measured = isinstance(metrics.get("lstr"), Mapping)
    # Without measurements these entries are not read: those of older files differ.
    videos = (document.get("videos") or {}) if is_measured else {}
    tried = sorted(document.get("tried") or (), key=lambda one: -one["mAP"]) if is_measured else []
    means: list[tuple[str, ...]] = []
    for name_of_scores, label in SYSTEMS.items() if is_measured else ():
        if isinstance(found := metrics.get(name_of_scores), Mapping):
            edges = (metrics.get("interval") or {}) if name_of_scores == "lstr" else {}
            means.append((label, *(_number(found.get(mean)) + _interval(edges.get(mean)) for mean in ("mAP", "mcAP"))))
    values = {
        "document": document,
        "name": shlex.quote(plain_line(name)),
        "is_demo": document.get("demo") is True,
        "actions": actions_of(document),
        "clock": clock,
        "store": store,
        "trained": trained,
        "labelled": labelled,
        "seen": seen,
        "files": (document.get("data") or {}).get("files") or sorted(video_id.rpartition("/")[2] for video_id in seen),
        "recipe": Recipe.from_dict(document["recipe"]) if document["recipe"] is not None else None,
        "networks": networks,
        "where": WHERE,
        "input_of": _input_of,
        "model": model_of(document),
        "preset": extra.get("preset"),
        "n_features": sum(config[n] for n in ("rgb_dim", "flow_dim") if isinstance(config.get(n), int)),
        "width": config.get("d_model") if isinstance(config.get("d_model"), int) else None,
        "is_measured": is_measured,
        "metrics": metrics,
        "means": table(("per frame", "mAP", "mcAP"), means),
        "events": _events(metrics.get("events") or {}) if is_measured else "",
        "classes": _classes(document) if is_measured else "",
        "testing": [i for i, subset in videos.items() if subset == "testing"],
        "variants": table(
            ("model, on the same videos", "mAP", ""),
            [
                (escaped(m["model"]), _number(m["mAP"]), "this file" if m["model"] == document.get("taken") else "")
                for m in tried
            ],
        ),
        "thresholds": table(
            ("class", "starts at", "ends below"),
            [
                (escaped(label), *(f"{rules[edge]:.3f}" if edge in rules else "" for edge in ("on", "off")))
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


def _names(video_ids: Sequence[str]) -> str:
    """Return the names of the files of videos, without their folders."""
    more = f" and {len(video_ids) - MAX_VIDEOS} more" if len(video_ids) > MAX_VIDEOS else ""
    return ", ".join(code(video_id.rpartition("/")[2]) for video_id in video_ids[:MAX_VIDEOS]) + more


def _training_tables(document: Mapping[str, Any], clock: Clock) -> tuple[str, str]:
    """Return the tables of videos by subset, and of labelled actions by class, as far as they are recorded."""
    subsets = (document.get("data") or {}).get("subsets") or {}
    stored = document["checkpoint"]["extra"].get("data") or {}
    if not subsets and {"videos", "chunks"} <= stored.keys():
        subsets = {"training": {"videos": stored["videos"], "seconds": clock.length(stored["chunks"])}}
    names = sorted(subsets, key=lambda name: SUBSETS.index(name) if name in SUBSETS else len(SUBSETS))
    rows = []
    for name in names:
        one = subsets[name]
        n_labels = str(sum(one["labels"].values())) if "labels" in one else ""
        rows.append((code(name), str(one["videos"]), f"{one['seconds'] / 60:.1f}", n_labels))
    counted = [name for name in names if "labels" in subsets[name]]
    by_class = [
        (escaped(label), *(str(subsets[name]["labels"].get(label, 0)) for name in counted))
        for label in actions_of(document)
        if counted
    ]
    heads = ("videos", "number", "minutes", "labelled actions")
    return table(heads, rows), table(("labelled actions", *map(code, counted)), by_class)


def _input_of(part: NetworkRecipe, recipe: Recipe) -> str:
    """Return a phrase for the input of a network, in pixels."""
    if part.size:
        share = f"the middle of the frame, {100 / part.margin:.0f} % of each side,"
        seen = "the whole frame" if part.margin == 1 else share
        return f"{seen} at {part.size[1]} × {part.size[0]} pixels; less of a frame of another shape"
    crops = "the middle" if part.crops == 1 else f"{part.crops} crops"
    return f"{crops} at {recipe.crop} × {recipe.crop} pixels, from frames with a shorter side of {recipe.short_side}"


def _events(events: Mapping[str, Any]) -> str:
    """Return sentences on the detections of all classes together."""
    together = events.get("together")
    if not isinstance(together, Mapping):
        return ""
    hours, n_false = events["hours"], together["false_alarms"]
    rate = f": {_rate(n_false, hours)}" if intervals.rate_interval(n_false, hours) else ""
    sentences = [
        f"Of {together['labels']} labelled actions {together['found']} were found, with {n_false} false alarms in "
        f"{length_text(hours)} of video{rate} an hour."
    ]
    f1, delay = together["iou"]["0.3"]["f1"], together.get("delay") or {}
    if f1 is not None:
        sentences.append(f"F1 is {f1:.2f}{_interval((together.get('interval') or {}).get('f1'), 2)}.")
    if delay.get("p50") is not None:
        sentences.append(f"Half of the found actions were reported within {delay['p50']:.1f} s of their start.")
    return " ".join(sentences)


def _classes(document: Mapping[str, Any]) -> str:
    metrics = document["metrics"]
    events = metrics.get("events") or {}
    found, scored = events.get("per_class") or {}, metrics["lstr"].get("per_class") or {}
    rows = []
    for label in (label for label in document["classes"] if label in scored or label in found):
        counts = found.get(label) or {}
        caught = f"{counts['found']} of {counts['labels']}" if counts.get("labels") else ""
        f1 = _number(((counts.get("iou") or {}).get("0.3") or {}).get("f1"), 2)
        f1 += _interval((counts.get("interval") or {}).get("f1"), 2)
        rate = _rate(counts["false_alarms"], events["hours"]) if counts and events.get("hours") else ""
        average = _number((scored.get(label) or {}).get("AP"))
        rows.append((escaped(label), average, caught, f1, str(counts.get("false_alarms", "")), rate))
    heads = ("class", "AP", "found", "F1", "false alarms", "an hour")
    width = len(heads) if found else 2
    return table(heads[:width], [row[:width] for row in rows])


def _rate(count: int, hours: float) -> str:
    """Return false alarms per hour with the interval of their count."""
    edges = intervals.rate_interval(count, hours)
    if edges is None:
        return ""
    within = intervals.interval_text(edges)
    return f"{count / hours:.{0 if count / hours >= 10 else 2}f} [{within}]" if count else within


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
    """Return a table of cells that are Markdown themselves; empty without rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return text if len(lines) > 2 else ""


def actions_of(document: Mapping[str, Any]) -> list[str]:
    """Return the classes that are actions."""
    return [label for label in document["classes"] if label not in (BACKGROUND, AMBIGUOUS)]


def model_of(document: Mapping[str, Any]) -> str:
    """Return the kind of a file's model, in words; for an average how many there are of each kind."""
    if document["config"].get("kind") != "average":
        return f"a model of kind {document['config'].get('kind', 'lstr')}"
    members = document["checkpoint"]["extra"].get("members")
    kinds = Counter(one["kind"] for one in members) if members else Counter[str]()
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


def network_of(entry: Mapping[str, Any], size: tuple[int, int]) -> str:
    """Return a network in words: the size of its input, and the place, origin and licence of its weights."""
    where = WHERE[entry["from"]]
    if entry["from"] == "published":
        where += f" {entry['weights']!r}, to be fetched: `lstr weights fetch`"
    origin = f"; origin: {Origin(**entry['origin'])}" if "origin" in entry else ""
    return f"{entry['network']} on {size[1]} × {size[0]} pixels, {where}{origin}"
