"""What a model card says of how good a model is, with intervals, and how that was measured."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lstr.metrics import rates
from lstr.metrics.actions import length_text
from lstr.pipelines.model_files.description import code, escaped, ordered, table

SYSTEMS = {"lstr": "this model", "time_prior": "time prior", "chance": "chance"}
SHOWN = 20  # videos of a fold that are named
BY_FOLDS = (
    "This model has learnt from all of its videos, so these figures are of others that were made in the same way: "
    "{in_folds}each of the {videos} videos was scored by a model and by feature networks that have not learnt "
    "from it. {chosen}"
)
# What the thresholds of a measurement were chosen on, by whether those of each video were chosen without it
CHOSEN = {
    True: "Its actions were decided by thresholds that were chosen on the other videos. Those of this file, and the "
    "way in which the model was made, were chosen on the scores of all.",
    False: "The thresholds, and the way in which the model was made, were chosen on these scores.",
}
INTERVALS = (
    "In brackets, and where only a bound is given, are 95 % intervals: of mAP, mcAP and F1 by {resamples} resamples of "
    "the videos, of false alarms by their count, which leaves much open in little video. An action is found by a "
    "detection that overlaps its label with an IoU of 0.3 or starts within a second of it; F1 is of that IoU alone."
)


def measured(document: Mapping[str, Any]) -> str:
    """What `lstr evaluate --json` found, as far as it is here; the videos that each part was measured on."""
    metrics = document["metrics"]
    if not isinstance(metrics.get("lstr"), Mapping):
        return "Nobody has recorded how well it does: `lstr evaluate` measures it."
    resamples = (metrics.get("interval") or {}).get("resamples")
    parts = (
        _how(metrics),
        table(("per frame", "mAP", "mcAP"), _means(metrics)),
        _events(metrics.get("events") or {}),
        _classes(document),
        INTERVALS.format(resamples=resamples) if resamples else "",
        _videos(document),
        _ways(document),
    )
    return "\n\n".join(filter(None, parts))


def _how(metrics: Mapping[str, Any]) -> str:
    if "folds" in metrics:
        in_folds = f"in {metrics['folds']} folds, " if metrics["folds"] != 1 else ""
        chosen = CHOSEN["decided_by_others" in metrics]
        return BY_FOLDS.format(in_folds=in_folds, videos=metrics["videos"], chosen=chosen)
    seen = " The networks of its features have seen some of them, which flatters it." if metrics.get("seen") else ""
    if learnt := metrics.get("learnt_from"):
        return f"On {metrics['videos']} videos, of which it has learnt from {len(learnt)}: new ones score lower.{seen}"
    return f"On {metrics['videos']} held-out videos.{seen}" if "videos" in metrics else ""


def _means(metrics: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    edges = metrics.get("interval") or {}
    for name, label in SYSTEMS.items():
        if isinstance(found := metrics.get(name), Mapping):
            within = edges if name == "lstr" else {}
            yield (label, *(f"{_number(found.get(mean))}{_edges(within.get(mean))}" for mean in ("mAP", "mcAP")))


def _events(events: Mapping[str, Any]) -> str:
    """All classes together, in sentences."""
    together = events.get("together")
    if not isinstance(together, Mapping):
        return ""
    hours, false = events["hours"], together["false_alarms"]
    edges = rates.rate_interval(false, hours)
    rate = f": {_rate(false, hours)}" if edges else ""
    said = [
        f"Of {together['labels']} labelled actions {together['found']} were found, with {false} false alarms in "
        f"{length_text(hours)} of video{rate} an hour."
    ]
    f1 = together["iou"]["0.3"]["f1"]
    if f1 is not None:
        said.append(f"F1 is {f1:.2f}{_edges((together.get('interval') or {}).get('f1'), 2)}.")
    delay = together.get("delay") or {}
    if delay.get("p50") is not None:
        said.append(f"Half of what was found was announced {delay['p50']:.1f} s after its start, or sooner.")
    return " ".join(said)


def _classes(document: Mapping[str, Any]) -> str:
    metrics = document["metrics"]
    events = metrics.get("events") or {}
    found, scored = events.get("per_class") or {}, metrics["lstr"].get("per_class") or {}
    rows = []
    for label in ordered(scored | found, document):
        one, counts = scored.get(label) or {}, found.get(label) or {}
        caught = f"{counts['found']} of {counts['labels']}" if counts.get("labels") else ""
        f1 = ((counts.get("iou") or {}).get("0.3") or {}).get("f1")
        within = _edges((counts.get("interval") or {}).get("f1"), 2)
        rate = _rate(counts["false_alarms"], events["hours"]) if counts and events.get("hours") else ""
        cells = (caught, f"{_number(f1, 2)}{within}", str(counts.get("false_alarms", "")), rate)
        rows.append((escaped(label), _number(one.get("AP")), *cells))
    heads = ("class", "AP", "found", "F1", "false alarms", "an hour")
    width = len(heads) if found else 2
    return table(heads[:width], [row[:width] for row in rows])


def _rate(count: int, hours: float) -> str:
    """False alarms an hour with the interval of their count."""
    edges = rates.rate_interval(count, hours)
    if edges is None:
        return ""
    within = rates.interval_text(edges)
    return f"{count / hours:.{0 if count / hours >= 10 else 2}f} [{within}]" if count else within


def _videos(document: Mapping[str, Any]) -> str:
    """Which videos were scored by what lacked them."""
    lacked = {f"fold {at}": ids for at, ids in enumerate(document.get("folds") or (), start=1)}
    testing = [i for i, subset in (document.get("videos") or {}).items() if subset == "testing"] if not lacked else []
    named = {f"what lacked {name}": ids for name, ids in lacked.items()} | (
        {"the model itself": testing} if testing else {}
    )
    return "\n".join(f"- Scored by {what}: {_listed(ids)}" for what, ids in named.items())


def _listed(ids: Sequence[str]) -> str:
    names = ", ".join(code(video_id.rpartition("/")[2]) for video_id in ids[:SHOWN])
    return names + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")


def _ways(document: Mapping[str, Any]) -> str:
    best = sorted(document.get("tried") or (), key=lambda way: -way["mAP"])
    rows = [
        (escaped(way["model"]), _number(way["mAP"]), "this file" if way["model"] == document.get("taken") else "")
        for way in best
    ]
    return table(("model, on the same videos", "mAP", ""), rows)


def _number(value: Any, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) and math.isfinite(value) else ""


def _edges(edges: Any, digits: int = 3) -> str:
    """An interval behind its figure; nothing where there is none."""
    if not isinstance(edges, Sequence) or not all(isinstance(edge, int | float) for edge in edges):
        return ""
    return f" [{edges[0]:.{digits}f}, {edges[1]:.{digits}f}]"
