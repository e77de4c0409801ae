"""The model card of a model file: what model.json says, in Markdown, for people."""

import shlex
from collections.abc import Mapping
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.extractors.networks.weights_file import Origin
from lstr.extractors.recipe import INT8, NetworkRecipe, Recipe
from lstr.pipelines.model_files.card_figures import measured
from lstr.pipelines.model_files.description import (
    actions_of,
    code,
    escaped,
    exported_in_words,
    is_demo,
    model_of,
    one_line,
    ordered,
    table,
)
from lstr.timeline import DEFAULT

SUBSETS = ("training", "validation", "testing")
SHOWN = 20  # videos that are named; model.json has all
USE = (
    "Let no decision about the safety, health or rights of anybody rest on it alone: it misses actions and raises "
    "false alarms, as often as is said above on videos like its own, and nobody knows how often on others."
)
IMAGENET = (
    "ImageNet's pictures were given for research that earns nothing; whether that binds weights that were trained on "
    "them is not settled."
)
UNLICENSED = (
    "Nobody has stated a licence of the model itself. Whoever publishes it writes one into the first lines of this "
    "card, in place of `unknown`."
)

RANDOM = "trained from random weights, as far as is recorded"


def card_of(document: Mapping[str, Any], name: str) -> str:
    """The card of a model file called `name`, from its model.json, whatever order the entries of that are in."""
    networks = dict(sorted(document["networks"].items(), reverse=True))  # rgb, flow
    document = {**document, "networks": networks}
    parts = [
        f"# {escaped(document['title'])}",
        *(["**A demo model.** It has only seen drawings; on other videos it means nothing."] * is_demo(document)),
        "## What it detects\n\n" + _detects(document),
        "## What it was trained on\n\n" + _trained(document),
        "## What is inside\n\n" + _inside(document),
        "## How well\n\n" + measured(document),
        "## Thresholds\n\n" + _thresholds(document),
        "## Limits\n\n" + _limits(document),
        "## Licences\n\n" + _licences(document),
        "## Software\n\n" + _software(document),
        "## How to use it\n\n" + _use(document, name),
    ]
    return "\n\n".join(parts) + "\n"


def _detects(document: Mapping[str, Any]) -> str:
    listed = "\n".join(f"- {escaped(label)}" for label in actions_of(document))
    length = _clock(document).seconds
    rate = f"Each {length:.4g} s of a video it says which of these is happening, without looking ahead:"
    return f"{rate}\n\n{listed}" if listed else "It has no class of an action."


def _trained(document: Mapping[str, Any]) -> str:
    """How much of what, as far as it is recorded; videos by the names of their files alone."""
    data, seen = document.get("data") or {}, document["seen"]
    known = sum(sha256 is not None for sha256 in seen.values())
    files = data.get("files") or sorted({video_id.rpartition("/")[2] for video_id in seen})
    names = ", ".join(map(code, files[:SHOWN])) + (f" and {len(files) - SHOWN} more" if len(files) > SHOWN else "")
    videos = f"Its networks and its model have seen {len(seen)} videos, {known} of them known by content (SHA-256)."
    subsets = data.get("subsets") or {}
    stored = document["checkpoint"]["extra"].get("data") or {}
    if not subsets and {"videos", "chunks"} <= stored.keys():
        subsets = {"training": {"videos": stored["videos"], "seconds": _clock(document).length(stored["chunks"])}}
    subsets = {
        name: subsets[name]
        for name in sorted(subsets, key=lambda name: SUBSETS.index(name) if name in SUBSETS else len(SUBSETS))
    }
    rows = [
        (
            code(subset),
            str(one["videos"]),
            f"{one['seconds'] / 60:.1f}",
            str(sum(one["labels"].values())) if "labels" in one else "",
        )
        for subset, one in subsets.items()
    ]
    counts = {subset: one["labels"] for subset, one in subsets.items() if "labels" in one}
    by_class = [
        (escaped(label), *(str(labels.get(label, 0)) for labels in counts.values()))
        for label in actions_of(document)
        if counts
    ]
    parts = (
        table(("videos", "number", "minutes", "labelled actions"), rows),
        table(("labelled actions", *map(code, counts)), by_class),
        *((videos, f"The files were called {names}.") if seen else ()),
    )
    return "\n\n".join(filter(None, parts)) or "That is not recorded."


def _store(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is stated of the features of other people that a model has learnt from."""
    store = (document["checkpoint"]["extra"].get("data") or {}).get("store")
    return store if isinstance(store, Mapping) else {}


def _clock(document: Mapping[str, Any]) -> Clock:
    return Clock.from_dict(_store(document)) if _store(document) else CLOCK


def _of_others(document: Mapping[str, Any], sees: str) -> str:
    """What features of other people are, as far as it is stated."""
    store = _store(document)
    parts = [f"{escaped(str(s))}: {escaped(str(width))} wide" for s, width in dict(store.get("widths") or {}).items()]
    named = f" ({escaped(str(store['name']))})" if store.get("name") else ""
    rate = f"{float(_clock(document).rate):.4g} a second"
    return f"It takes features of other people{named}, {rate}, {', '.join(parts)}; no video.\n\n{sees}"


def _inside(document: Mapping[str, Any]) -> str:
    preset = document["checkpoint"]["extra"].get("preset")
    named = f", as preset {code(preset)}" if preset else ""
    sees = f"What sees the features is {escaped(model_of(document))}{named}, of {_widths(document['config'])}."
    if document["recipe"] is None:
        return _of_others(document, sees)
    recipe = Recipe.from_dict(document["recipe"])
    parts = recipe.parts
    networks = [
        f"- {stream}: {code(entry['network'])}, {_where(entry)}; it sees {_pictures(parts[stream], recipe)}"
        for stream, entry in document["networks"].items()
    ]
    flow = f" Optical flow: {code(recipe.flow_algorithm)}." if recipe.flow_algorithm else ""
    how = (
        f"Features are made by recipe {code(recipe.id)}, of pictures whose longer side has {recipe.long_side} pixels "
        f"at most, {recipe.fps} a second, in {recipe.precision}.{flow} Feature networks:"
    )
    return "\n\n".join((how, "\n".join(networks), sees))


def _where(entry: Mapping[str, Any]) -> str:
    """Where the weights of a network are."""
    return {
        "inside": "its weights are in this file",
        "random": "with random weights, made from their seed",
        "published": f"with the published weights {code(entry['weights'])}, to be fetched: `lstr weights fetch`",
    }[entry["from"]]


def _pictures(part: NetworkRecipe, recipe: Recipe) -> str:
    """What goes into a network, in pixels."""
    if part.size:
        share = f"the middle of the picture, {100 / part.margin:.0f} % of each side,"
        seen = "the whole picture" if part.margin == 1 else share
        return f"{seen} at {part.size[1]} × {part.size[0]} pixels; less of a picture of another shape"
    crops = "the middle" if part.crops == 1 else f"{part.crops} crops"
    return f"{crops} at {recipe.crop} × {recipe.crop} pixels, of pictures whose shorter side has {recipe.short_side}"


def _widths(config: Mapping[str, Any]) -> str:
    """How wide the features of a model are, and the model."""
    features = sum(value for name in ("rgb_dim", "flow_dim") if isinstance(value := config.get(name), int))
    width = f", itself {config['d_model']} wide" if isinstance(config.get("d_model"), int) else ""
    return f"{features} features of a chunk{width}"


def _thresholds(document: Mapping[str, Any]) -> str:
    stored = document["thresholds"]
    if not stored:
        return f"The usual ones: an action begins at a score of {DEFAULT.on:g} and ends below {DEFAULT.off:g}."
    rows = [
        (escaped(label), *(f"{rules[edge]:.3f}" if edge in rules else "" for edge in ("on", "off")))
        for label, rules in ordered(stored, document).items()
    ]
    return table(("class", "begins at", "ends below"), rows)


def _limits(document: Mapping[str, Any]) -> str:
    limits = [
        USE,
        "It knows the actions above alone, as they looked in its training videos: camera, place and people count.",
    ]
    if any(entry["from"] == "random" for entry in document["networks"].values()):
        limits.append("Some of its feature networks carry random weights: expect little of it.")
    if document["seen"]:
        limits.append("On a video that it was trained on it does better than on a new one.")
    if "exported" in document:
        limits.append(
            f"It was exported to run without torch, {escaped(exported_in_words(document))}. It cannot be trained on."
        )
    if INT8 in document:
        limits.append(_int8(document[INT8]))
    return "\n".join(f"- {limit}" for limit in limits)


def _int8(found: Mapping[str, Any]) -> str:
    """What it costs that its networks compute in int8."""
    cosines = ", ".join(f"{stream} {of['mean']:.4f}" for stream, of in found["cosine"].items())
    cost, text = found.get("mAP"), f"Its networks compute in int8 (cosine to float32: {cosines}"
    if cost and None not in cost.values():  # of videos without an action there is none
        text += f"; mAP {cost['int8']:.3f}, in float32 {cost['float32']:.3f}"
    return text + ")."


def _licences(document: Mapping[str, Any]) -> str:
    """What the weights inside began with, and under which terms."""
    lines, datasets = [], []
    for stream, entry in document["networks"].items():
        if "origin" in entry:
            origin = Origin(**entry["origin"])
            datasets.append((origin.dataset or "").lower())
            lines.append(f"- {stream}: began with {_origin(origin)}")
        else:
            random = "random weights" if entry["from"] == "random" else RANDOM
            lines.append(f"- {stream}: {random}")
    terms = IMAGENET if any("imagenet" in dataset for dataset in datasets) else ""
    return "\n\n".join(filter(None, (UNLICENSED, "\n".join(lines), terms)))


def _origin(origin: Origin) -> str:
    licence = f"licence {escaped(origin.licence)}" if origin.licence else "of a licence that is not known here"
    trained = f", trained on {escaped(origin.dataset)}" if origin.dataset else ""
    place = f", from {code(origin.address)}" if origin.address else ""
    return f"{code(origin.file)}{trained}, {licence}{place} (SHA-256 {code(origin.sha256)})"


def _software(document: Mapping[str, Any]) -> str:
    versions = {"lstr": document["lstr"], **document["checkpoint"]["versions"]}
    return (
        "Made with "
        + ", ".join(f"{escaped(name)} {escaped(version)}" for name, version in sorted(versions.items()))
        + "."
    )


def _use(document: Mapping[str, Any], name: str) -> str:
    typed = shlex.quote(one_line(name))
    published = any(entry["from"] == "published" for entry in document["networks"].values())
    first = "It needs published networks: `lstr weights list` shows how to get them.\n\n" if published else ""
    source = "video.mp4" if document["recipe"] else "FEATURES"
    return f"{first}```sh\nlstr detect {source} -m {typed} -o timeline\nlstr info {typed}\n```"
