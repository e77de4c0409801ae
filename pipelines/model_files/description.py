"""The model card of a model file: what model.json says, in Markdown, for people."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lstr.chunk import FEATURES_PER_SECOND
from lstr.extractors.recipe import INT8, Recipe
from lstr.extractors.weights.published_files import Origin
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.timeline import DEFAULT

BY_FOLDS = (
    "This model has learnt from all of its videos, so these figures are of others that were made in the same way: "
    "{in_folds}each of the {videos} videos was scored by a model and by feature networks that have not learnt "
    "from it. {chosen} Per frame:"
)
CHOSEN = {
    True: "Its actions were decided by thresholds that were chosen on the other videos. Those of this file, and the "
    "way in which the model was made, were chosen on the scores of all.",
    False: "The thresholds, and the way in which the model was made, were chosen on these scores.",
}
"""What the thresholds of a measurement were chosen on, by whether those of each video were chosen without it"""
SHOWN = 20  # videos that are named; model.json has all


def describe(document: Mapping[str, Any], name: str) -> str:
    """The card of a model file called `name`, from its model.json."""
    parts = [
        f"# {_line(document['title'])}",
        *(["**A demo model.** It has only seen drawings; on other videos it means nothing."] * is_demo(document)),
        "## What it detects\n\n" + _detects(document),
        "## What it was trained on\n\n" + _trained(document),
        "## How well\n\n" + _measured(document["metrics"]),
        "## Thresholds\n\n" + _thresholds(document),
        "## Limits\n\n" + _limits(document),
        "## How to use it\n\n" + _use(document, name),
    ]
    return "\n\n".join(parts) + "\n"


def is_demo(document: Mapping[str, Any]) -> bool:
    """Whether a model is for show alone."""
    return document.get("demo") is True


def actions_of(document: Mapping[str, Any]) -> list[str]:
    """The classes that are actions."""
    return [label for label in document["classes"] if label not in (BACKGROUND, AMBIGUOUS)]


def _detects(document: Mapping[str, Any]) -> str:
    actions = actions_of(document)
    listed = "\n".join(f"- {_line(label)}" for label in actions)
    rate = f"Each {1 / FEATURES_PER_SECOND:g} s of a video it says which of these is happening, without looking ahead:"
    return f"{rate}\n\n{listed}" if actions else "It has no class of an action."


def _trained(document: Mapping[str, Any]) -> str:
    seen, recipe = document["seen"], Recipe.from_dict(document["recipe"])
    known = sum(sha256 is not None for sha256 in seen.values())
    names = ", ".join(f"`{_line(video_id)}`" for video_id in sorted(seen)[:SHOWN])
    more = f" and {len(seen) - SHOWN} more" if len(seen) > SHOWN else ""
    videos = f"{len(seen)} videos, {known} of them known by content (SHA-256): {names}{more}." if seen else ""
    networks = [f"- {stream}: {network_of(entry)}" for stream, entry in document["networks"].items()]
    how = f"Features are made by recipe `{recipe.id}`, with these networks:"
    sees = f"What sees the features is {_line(model_of(document))}."
    return "\n\n".join(filter(None, (videos, how, "\n".join(networks), sees)))


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
    return f"by {_line(exported.get('runs_on', 'onnxruntime'))}{at_once}{near}"


def network_of(entry: Mapping[str, Any]) -> str:
    """A network, where its weights are, and what they began with under which licence, in words."""
    where = {
        "inside": "its weights are in this file",
        "random": "with random weights, made from their seed",
        "published": f"with the published weights {entry['weights']!r}, to be fetched: `lstr weights fetch`",
    }
    began = f"; origin: {_line(Origin(**entry['origin']))}" if "origin" in entry else ""
    return f"{entry['network']}, {where[entry['from']]}{began}"


def _measured(metrics: Mapping[str, Any]) -> str:
    """What `lstr evaluate --json` found, as far as it is here."""
    ours = metrics.get("lstr")
    if not isinstance(ours, Mapping):
        return "Nobody has recorded how well it does: `lstr evaluate` measures it."
    systems = {"lstr": "this model", "time_prior": "time prior", "chance": "chance"}
    means = [
        (label, _number(metrics[name].get("mAP")), _number(metrics[name].get("mcAP")))
        for name, label in systems.items()
        if isinstance(metrics.get(name), Mapping)
    ]
    videos = f"On {metrics['videos']} held-out videos, per frame:\n\n" if "videos" in metrics else "Per frame:\n\n"
    if "folds" in metrics:
        in_folds = f"in {metrics['folds']} folds, " if metrics["folds"] != 1 else ""
        chosen = CHOSEN["decided_by_others" in metrics]
        videos = BY_FOLDS.format(in_folds=in_folds, videos=metrics["videos"], chosen=chosen) + "\n\n"
    text = videos + _table(("", "mAP", "mcAP"), means)
    events = metrics.get("events")
    found: Mapping[str, Any] = events.get("per_class") or {} if isinstance(events, Mapping) else {}
    scored: Mapping[str, Any] = ours.get("per_class") or {}
    rows = []
    for label in dict.fromkeys((*scored, *found)):
        one, counts = scored.get(label) or {}, found.get(label) or {}
        caught = f"{counts['found']} of {counts['labels']}" if counts.get("labels") else ""
        rows.append((_line(label), _number(one.get("AP")), caught, str(counts.get("false_alarms", ""))))
    heads = ("class", "AP", "found", "false alarms")
    width = 4 if found else 2
    return text + ("\n\n" + _table(heads[:width], [row[:width] for row in rows]) if rows else "")


def _thresholds(document: Mapping[str, Any]) -> str:
    stored = document["thresholds"]
    if not stored:
        return f"The usual ones: an action begins at a score of {DEFAULT.on:g} and ends below {DEFAULT.off:g}."
    rows = [(_line(label), _number(rules.get("on")), _number(rules.get("off"))) for label, rules in stored.items()]
    return _table(("class", "begins at", "ends below"), rows)


def _limits(document: Mapping[str, Any]) -> str:
    limits = [
        "It knows the actions above alone, as they looked in its training videos: camera, place and people count."
    ]
    if any(entry["from"] == "random" for entry in document["networks"].values()):
        limits.append("Some of its feature networks carry random weights: expect little of it.")
    if document["seen"]:
        limits.append("On a video that it was trained on it does better than on a new one.")
    if "exported" in document:
        limits.append(f"It was exported to run without torch, {exported_in_words(document)}. It cannot be trained on.")
    if INT8 in document:
        limits.append(_int8(document[INT8]))
    return "\n".join(f"- {limit}" for limit in limits)


def _int8(measured: Mapping[str, Any]) -> str:
    """What it costs that its networks compute in int8."""
    cosines = ", ".join(f"{stream} {found['mean']:.4f}" for stream, found in measured["cosine"].items())
    cost, text = measured.get("mAP"), f"Its networks compute in int8 (cosine to float32: {cosines}"
    if cost:
        text += f"; mAP {cost['int8']:.3f}, in float32 {cost['float32']:.3f}"
    return text + ")."


def _use(document: Mapping[str, Any], name: str) -> str:
    published = any(entry["from"] == "published" for entry in document["networks"].values())
    first = "It needs published networks: `lstr weights list` shows how to get them.\n\n" if published else ""
    return f"{first}```sh\nlstr detect video.mp4 -m {name} -o timeline\nlstr info {name}\n```"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def _line(text: Any) -> str:
    """Text on one line, that starts nothing in Markdown."""
    return " ".join(str(text).split()).replace("`", "'").replace("<", "&lt;")
