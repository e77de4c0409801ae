"""Figures of an evaluation, for its page and for papers, by matplotlib; readable in light and dark mode."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lstr.labels.label_set import AMBIGUOUS
from lstr.metrics import per_frame as metrics
from lstr.metrics.intervals import rate_interval
from lstr.pipelines.evaluation.scoring import Scores
from lstr.pipelines.pages.figure import INK, PAGE_WIDTH, PLAIN, SOFT, shorten
from lstr.pipelines.pages.palette import DETECTION, EMPHASIS, colour_of, colours_of

# Maximum numbers of classes in figures, and of points per curve
MAX_CURVES, MAX_CONFUSED, MAX_LINES, MAX_POINTS = 60, 20, 8, 500


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


@rc_context(PLAIN)
def draw_classes(names: Sequence[str], documents: Sequence[dict]) -> Figure:
    """Draw the AP of each class as bars, one per checkpoint, sorted by the first one, with a mark for chance."""
    first = documents[0]["lstr"]["per_class"]
    labels = sorted(first, key=lambda label: first[label]["AP"])
    thick = 0.8 / len(documents)
    figure, axes = _figure(0.8 + 0.2 * len(labels) * max(1.0, 0.6 * len(documents)))
    at = np.arange(len(labels))
    for i, (name, document) in enumerate(zip(names, documents, strict=True)):
        values = [document["lstr"]["per_class"].get(label, {}).get("AP", math.nan) for label in labels]
        offset = ((len(documents) - 1) / 2 - i) * thick
        axes.barh(at + offset, values, thick * 0.92, color=colour_of(i), label=name)
    if "chance" in documents[0]:
        chance = [documents[0]["chance"]["per_class"][label]["AP"] for label in labels]
        axes.plot(chance, at, "|", color=INK, markersize=8, label="chance")
    axes.set(yticks=at, yticklabels=labels, xlim=(0, 1), xlabel="AP", ylim=(-0.6, len(labels) - 0.4))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", lw=0.6)
    if len(documents) > 1 or "chance" in documents[0]:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@rc_context(PLAIN | {"hatch.linewidth": 0.8})
def draw_event_counts(document: dict) -> Figure:
    """Draw the actions of each class as bars: detected ones filled, missed ones hollow, then false alarms hatched."""
    of_class = {
        name: one for name, one in document["events"]["per_class"].items() if one["labels"] or one["detections"]
    }
    share = {name: one["found"] / one["labels"] if one["labels"] else 0.0 for name, one in of_class.items()}
    names = sorted(of_class, key=lambda name: (share[name], -of_class[name]["false_alarms"]))
    figure, axes = _figure(0.8 + 0.22 * max(1, len(names)))
    at = np.arange(len(names))
    left = np.zeros(len(names))
    for key, look in (
        ("found", {"color": DETECTION}),
        ("missed", {"facecolor": "none", "edgecolor": DETECTION, "lw": 0.8}),
        ("false_alarms", {"facecolor": "none", "edgecolor": EMPHASIS, "hatch": "/////", "lw": 0.8}),
    ):
        counts = np.array([of_class[name][key] for name in names], dtype=float)
        width = np.where(counts > 0, counts, np.nan)  # an empty bar would have an outline
        axes.barh(at, width, 0.62, left, label=key.replace("_", " "), **look)
        left += counts
    axes.set(
        yticks=at, yticklabels=[shorten(name, 18) for name in names], xlabel="actions", ylim=(-0.6, len(names) - 0.4)
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", lw=0.6)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@rc_context(PLAIN)
def draw_operating_curves(document: dict) -> Figure:
    """Draw recall against false alarms per hour, for each class and for all together.

    A line is the maximum recall of any level up to a number of false alarms. Dots are the current thresholds; the line
    through the dot of all classes is the interval of its rate.
    """
    events = document["events"]
    curves, in_use = events["operating_curves"], events["per_class"]
    labelled = sorted((name for name, one in in_use.items() if one["labels"]), key=lambda name: -in_use[name]["labels"])
    colours = colours_of(document["confusion"]["classes"])
    figure, axes = _figure(3.4)
    lines = [(name, curves["per_class"][name], in_use[name], colours[name], 1.1) for name in labelled[:MAX_LINES]]
    lines.append(("together", curves["together"], events["together"], INK, 2.2))
    end = 1.0
    for name, points, one, colour, width in lines:
        found = sorted(
            (p["false_alarms_per_hour"], p["recall"])
            for p in points
            if p["recall"] is not None and p["false_alarms_per_hour"] is not None
        )
        if not found:
            continue
        alarms, recall = np.array(found).T
        axes.step(alarms, np.maximum.accumulate(recall), color=colour, lw=width, where="post", label=shorten(name, 18))
        dot = one["false_alarms_per_hour"], one["found"] / one["labels"]
        axes.plot(*dot, "o", color=colour, ms=5, clip_on=False)
        edges = rate_interval(one["false_alarms"], events["hours"]) if name == "together" else None
        if edges:
            axes.plot(edges, [dot[1]] * 2, color=colour, lw=0.8, clip_on=False)
        end = max(end, alarms[-1], dot[0], *(edges or ()))
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)  # shows both 0 and hundreds
    axes.set(xlim=(-0.05, end * 1.1), ylim=(0, 1.02), xlabel="false alarms per hour", ylabel="recall")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(lw=0.6)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@rc_context(PLAIN)
def draw_delay_curve(document: dict) -> Figure:
    """Draw the highest event F1 up to a mean delay, of all classes together."""
    figure, axes = _figure(2.3)
    points = document["events"]["delay_curve"]
    delays, f1 = [point["delay"] for point in points], [point["f1"] for point in points]
    axes.step(delays, f1, "o-", color=DETECTION, lw=1.4, ms=4, where="post", clip_on=False)
    axes.set(ylim=(0, 1.02), xlabel="mean seconds until actions are reported", ylabel="F1")
    axes.grid(lw=0.6)
    return figure


@rc_context(PLAIN)
def draw_precision_recall(scores: Scores, targets: np.ndarray, classes: Sequence[str]) -> Figure:
    """Draw a precision-recall curve per class, at most for the most frequent classes; scores and targets (N, C)."""
    from sklearn.metrics import precision_recall_curve

    on = targets > 0
    keep = metrics.counted(on, classes)
    scores, on = scores[keep], on[keep]
    shown = sorted(metrics.scored_columns(on, classes), key=lambda column: -on[:, column[0]].sum())[:MAX_CURVES]
    columns = min(3, max(1, len(shown)))
    rows = max(1, math.ceil(len(shown) / columns))
    figure = Figure(figsize=(PAGE_WIDTH, 0.4 + 1.35 * rows), layout="constrained")
    grid = np.asarray(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True))
    for axes in grid.ravel()[len(shown) :]:
        axes.set_visible(False)
    colours = colours_of(classes)
    for axes, (column, name) in zip(grid.ravel(), shown, strict=False):
        precision, recall, _ = precision_recall_curve(on[:, column], scores[:, column])
        points = np.unique(np.searchsorted(-recall, -np.linspace(1, 0, MAX_POINTS // 2)))
        axes.step(recall[points], precision[points], color=colours[name], lw=1.2, where="post")
        axes.axhline(on[:, column].mean(), color=SOFT, lw=0.8, ls=":")
        value = metrics.average_precision(scores[:, column], on[:, column])
        axes.set_title(f"{shorten(name, 13)} {value:.2f}", fontsize=8)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axes.grid(lw=0.5)
    figure.supxlabel("recall", fontsize=9, color=SOFT)
    figure.supylabel("precision", fontsize=9, color=SOFT)
    return figure


@rc_context(PLAIN)
def draw_confusion(document: dict) -> Figure:
    """Draw the confusion matrix of wrong chunks, for the classes with most of them."""
    classes, counts = document["confusion"]["classes"], np.array(document["confusion"]["counts"])
    open_to = [i for i, name in enumerate(classes) if name != AMBIGUOUS]
    busy = (counts.sum(axis=0) + counts.sum(axis=1))[open_to]
    chosen = sorted(np.array(open_to)[np.argsort(-busy, kind="stable")[:MAX_CONFUSED]].tolist())
    shown = counts[np.ix_(chosen, chosen)]
    names = [shorten(classes[i], 18) for i in chosen]
    # the names are vertical below the image
    figure, axes = _figure(0.8 + 0.1 * max(8, *map(len, names)) + 0.19 * len(chosen))
    # most errors are with background; the square root keeps the others visible
    norm = PowerNorm(0.5, 0, max(1, shown.max()))
    image = axes.imshow(np.ma.masked_equal(shown, 0), cmap="viridis", norm=norm, aspect="auto")
    at = range(len(chosen))
    axes.set(xticks=at, yticks=at, ylabel="is", xlabel="decided")
    axes.set_xticklabels(names, rotation=90, fontsize=7.5)
    axes.set_yticklabels(names, fontsize=7.5)
    if len(chosen) <= 10:
        for (row, column), count in np.ndenumerate(shown):
            if count:
                bright = norm(count) > 0.5
                axes.text(
                    column, row, str(count), ha="center", va="center", fontsize=7.5, color="#000" if bright else "#fff"
                )
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("chunks", color=SOFT)
    return figure


@rc_context(PLAIN)
def draw_delay(document: dict) -> Figure:
    """Draw a histogram of the seconds from an action's start to its first correct decision."""
    delay = document["delay"]
    figure, axes = _figure(2.3)
    seconds = np.array(delay["seconds"])
    end = max(1.0, math.ceil(np.percentile(seconds, 98))) if len(seconds) else 1.0
    axes.hist(np.minimum(seconds, end), bins=np.linspace(0, end, 41).tolist(), color=DETECTION)
    if len(seconds):
        axes.axvline(delay["median"], color=EMPHASIS, lw=1.4)
    missed = delay["actions"] - delay["detected"]
    middle = f"median {delay['median']:.2f} s, " if len(seconds) else ""
    axes.set_title(f"{middle}{missed} of {delay['actions']} actions never detected", color=INK)
    axes.set(xlabel="seconds from the start to the first correct decision", ylabel="actions", xlim=(0, end))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", lw=0.6)
    return figure


@rc_context(PLAIN)
def draw_anticipation(document: dict) -> Figure:
    """Draw mAP and mcAP by the anticipation time."""
    rows = document["anticipation"]
    figure, axes = _figure(2.1)
    for mean, colour in (("mAP", colour_of(0)), ("mcAP", colour_of(1))):
        values = [math.nan if row[mean] is None else row[mean] for row in rows]
        axes.plot([row["seconds"] for row in rows], values, "o-", color=colour, ms=4, lw=1.4, label=mean)
    axes.set(xlabel="seconds ahead")
    axes.grid(axis="y", lw=0.6)
    axes.legend()
    return figure
