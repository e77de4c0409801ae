"""Tables of how well models do: a generator of rows each, of which the first is the head."""

from collections.abc import Iterator

from records import interval, percentiles, record, scored

from lstr.metrics.rates import interval_text, rate_interval

SETS = ("ut_interaction", "urfall")


def results() -> Iterator[list]:
    """README's one table: models on random and on trained networks, beside the time prior."""
    finetuned, kinds = record("finetuned"), record("kinds")
    yield ["features, model", "UT-Interaction mAP", "UR Fall mAP"]
    yield ["**`lstr learn` by default**, networks that begin with ImageNet weights", *map(_by_default, SETS)]
    cells = [scored(kinds[name]["rnn"]) for name in SETS]
    yield ["`--recipe smallest`, the RNN that `lstr learn` takes for little video", *cells]
    for title, key in (
        ("trained by `lstr finetune`, RGB and flow, LSTR", "finetuned both: lstr"),
        ("trained by `lstr finetune`, flow alone, LSTR", "finetuned flow: lstr"),
        ("random networks, RGB and flow, LSTR", "random both: lstr"),
        ("none: the time prior, which sees no video", "labels: time_prior"),
    ):
        cells = [finetuned[name][key] for name in SETS]
        yield [title, *(f"{cell['mAP']:.3f}" if "labels" in key else scored(cell) for cell in cells)]


def _default_runs(name: str) -> list[dict]:
    """The runs of `lstr learn` by default without a time, one for each seed."""
    runs = record("few-videos")
    return [run for key, run in sorted(runs.items()) if key.startswith(f"{name}-default-unbounded-")]


def _by_default(name: str) -> str:
    runs = _default_runs(name)
    if len(runs) == 1:
        return scored(runs[0])
    low, high = min(run["mAP"] for run in runs), max(run["mAP"] for run in runs)
    return f"{low:.3f} to {high:.3f} by {len(runs)} seeds"


PARTS = {
    "small-change": "changes alone, a network as ImageNet taught it",
    "small-grey": "greys alone",
    "small-difference": "differences alone",
    "small": "all three joined, features of networks that lack each video",
    "small-seen": "all three joined, features of networks that know the videos",
    "average over streams": "average of the three that see one stream",
    "average over streams and small-seen": "that and the model that sees all three",
}
"""What the default is made of, by the names of a run's record."""


def parts() -> Iterator[list]:
    """What each part of the default is worth."""
    runs = {name: _default_runs(name) for name in SETS}
    of_all = ", ".join(str(at) for at in range(len(runs["ut_interaction"])))
    yield ["what the model is made of", f"UT-Interaction mAP, seeds {of_all}", "UR Fall mAP, the same"]
    kinds = record("kinds")
    smallest = [f"{kinds[name]['rnn']['mAP']:.3f}" for name in SETS]
    yield ["before: differences of 64 pixels, from random weights (`--recipe smallest`)", *smallest]
    for key, title in PARTS.items():
        yield [title, *(", ".join(f"{_tried(run)[key]:.3f}" for run in runs[name]) for name in SETS)]
    yield ["what was taken: that, the best of its models by two seeds", *(_taken(runs[name]) for name in SETS)]


def _tried(run: dict) -> dict[str, float]:
    return {one["model"]: one["mAP"] for one in run["tried"]}


def _taken(runs: list[dict]) -> str:
    return ", ".join(f"**{run['mAP']:.3f}**" for run in runs)


def learnt() -> Iterator[list]:
    """What `lstr learn` makes of each set, in how long."""
    data = record("learn")
    yield ["", "videos: learnt from, held out", "caught", "false alarms", "late", "mAP", "time prior", "took"]
    for name in ("ut_interaction-dis", "urfall-dis", "demo"):
        one = data[name]
        videos, together, hours = one["videos"], one["events"]["together"], one["events"]["hours"]
        rates = interval_text(rate_interval(together["false_alarms"], hours))
        yield [
            one["title"],
            f"{videos['training']}, {videos['testing']}",
            f"{together['found']} of {together['labels']}",
            f"{together['false_alarms']} in {60 * hours:.1f} min: {rates} an hour",
            f"{together['delay']['p50']:.2f} s",
            f"{one['lstr']['mAP']:.3f} {interval(one['interval']['mAP'])}",
            f"{one['time_prior']['mAP']:.3f}",
            f"{one['seconds'] / 60:.1f} min",
        ]


def random_networks() -> Iterator[list]:
    """Real videos, features of random networks."""
    data = record("real-data")
    yield ["", "UT-Interaction mAP", "mcAP", "UR Fall mAP", "mcAP"]
    for title, key in (
        ("LSTR", "lstr"),
        ("RNN (LSTM)", "rnn"),
        ("linear on the mean of the last 4 chunks", "linear_4_chunks"),
        ("linear on one chunk", "linear_1_chunk"),
        ("time prior", "time_prior"),
        ("chance", "chance"),
    ):
        cells = [data[name][key] for name in ("ut_interaction", "urfall")]
        yield [title, *(scored(cell, metric) for cell in cells for metric in ("mAP", "mcAP"))]


def finetuned_networks() -> Iterator[list]:
    """What training the feature networks adds."""
    data = record("finetuned")
    ut, ur = data["ut_interaction"], data["urfall"]
    yield ["features", *(f"UT: {name}" for name in ("linear, 1 chunk", "linear, 4 chunks", "RNN", "LSTR"))] + [
        f"UR Fall: {name}" for name in ("linear, 4 chunks", "LSTR")
    ]
    for kind, word in (("random", "random"), ("finetuned", "fine-tuned")):
        for stream, name in (("flow", "flow"), ("rgb", "RGB"), ("both", "both")):
            key = f"{kind} {stream}: "
            yield [
                f"{word}, {name}",
                f"{ut[key + 'linear_1_chunk']['mAP']:.3f}",
                f"{ut[key + 'linear_4_chunks']['mAP']:.3f}",
                scored(ut[key + "rnn"]),
                scored(ut[key + "lstr"]),
                f"{ur[key + 'linear_4_chunks']['mAP']:.3f}",
                scored(ur[key + "lstr"]),
            ]


def held_out() -> Iterator[list]:
    """Each class of the three held-out sequences that the pictures show."""
    data = record("learn")["ut_interaction-dis"]
    yield ["class", "found", "false alarms", "late", "chunks", "AP", "time prior AP", "chance AP"]
    systems = [data[name]["per_class"] for name in ("lstr", "time_prior", "chance")]
    for label in sorted(systems[0], key=lambda name: -systems[0][name]["AP"]):
        one = data["events"]["per_class"][label]
        late = "" if one["delay"]["p50"] is None else f"{one['delay']['p50']:.1f} s"
        scores = [f"{system[label]['AP']:.3f}" for system in systems]
        counts = [f"{one['found']} of {one['labels']}", one["false_alarms"], late]
        yield [label, *counts, systems[0][label]["positives"], *scores]
    together = data["events"]["together"]
    counts = [f"{together['found']} of {together['labels']}", together["false_alarms"]]
    late = f"{together['delay']['p50']:.1f} s"
    yield ["all", *counts, late, "", *(f"{data[name]['mAP']:.3f}" for name in ("lstr", "time_prior", "chance"))]


def synthetic() -> Iterator[list]:
    """Oracles and rows on synthetic features, each beside the one that sees 8 s."""
    data = record("thumos-synthetic")
    seeds: dict[str, list[dict]] = {name: [entry] for name, entry in data["oracles"].items()}
    for entry in data["rows"]:
        seeds.setdefault(entry["row"], []).append(entry)
    yield ["", "mAP", "95 % interval", "lead over 8 s", "training labels", "epochs", "seeds"]
    for name, entries in seeds.items():
        base, lead = seeds.get("oracle-32" if name in data["oracles"] else "memory-0"), ""
        if base and base is not entries:
            low, high = percentiles([a - b for a, b in zip(_drawn(entries), _drawn(base), strict=True)])
            lead = f"{_mean(entries) - _mean(base):+.3f} ({low:+.3f} to {high:+.3f})"
        low, high = percentiles(_drawn(entries))
        known = [entry["mAP_of_training_labels"] for entry in entries if "mAP_of_training_labels" in entry]
        trained = f"{sum(known) / len(known):.3f}" if known else ""
        epochs = ", ".join(str(len(entry["epochs"])) for entry in entries if "epochs" in entry)
        yield [f"`{name}`", f"{_mean(entries):.3f}", f"{low:.3f} to {high:.3f}", lead, trained, epochs, len(entries)]


def _mean(entries: list[dict]) -> float:
    return sum(entry["mAP"] for entry in entries) / len(entries)


def _drawn(entries: list[dict]) -> list[float]:
    """mAP of each resample, the mean over seeds."""
    columns = zip(*(entry["resampled_mAP"] for entry in entries), strict=True)
    return [sum(column) / len(column) for column in columns]


def kinds() -> Iterator[list]:
    """Every kind of model on the same features of real videos, best first."""
    data, sets = record("kinds"), ("ut_interaction", "urfall")
    yield ["", "UT-Interaction mAP", "by fold", "UR Fall mAP", "by fold", "seconds to train"]
    for kind in sorted(data[sets[0]], key=lambda name: -data[sets[0]][name]["mAP"]):
        cells, seconds = [], []
        for name in sets:
            row = data[name][kind]
            cells += [scored(row), " ".join(f"{value:.2f}" for value in row.get("mAP_by_fold", ()))]
            seconds += [f"{row['processor_seconds']:.0f}"] if "processor_seconds" in row else []
        yield [f"`{kind}`" if seconds and kind != "linear" else kind.replace("_", " "), *cells, ", ".join(seconds)]


def protocols() -> Iterator[list]:
    """The same scores by the standard evaluation and by TOAD's."""
    data = record("protocols")
    yield ["labels", "scores", "standard mAP", "mAP by TOAD's protocol", "worth"]
    for name, title in (("thumos14", "THUMOS'14"), ("ut_interaction", "UT-Interaction"), ("urfall", "UR Fall")):
        for kind, row in data[name]["kinds"].items():
            shown = kind if " " in kind or kind in ("linear", "chance") else f"`{kind}`"
            yield [title, shown, f"{row['standard mAP']:.3f}", f"{row['toad mAP']:.3f}", f"{row['gain']:+.3f}"]


def edge_losses() -> Iterator[list]:
    """Losses that know edges and hard negatives, each alone, on both sets."""
    data = record("edge-losses")
    sets = _both(data)
    yield ["loss", *(f"{name}: {what}" for name in sets for what in ("mAP", "ahead", "event F1"))]
    for variant in data["urfall"]:
        cells = []
        for rows in sets.values():
            row, ahead = rows[variant], rows[variant]["ahead of as it is"]["mAP"]
            gain = _lead(ahead) if ahead["difference"] else ""
            cells += [f"{row['mAP']:.3f}", gain, f"{row['f1']:.3f}"]
        yield [variant, *cells]


def unlabelled() -> Iterator[list]:
    """What videos without labels add to few with labels, on both sets."""
    return _trials("unlabelled", "learnt from")


def tuning() -> Iterator[list]:
    """What each setting of finetuning for few videos is worth, on both sets."""
    return _trials("tuning", "changed")


def other_cameras() -> Iterator[list]:
    """An RNN on other cameras than it learnt from, by what was done to the pictures that taught its network."""
    sets = _both(record("other-cameras"))
    ways = [*sets["UR Fall"]]
    last = ways[-1]
    yield ["held-out videos", *(f"{name}: {of}" for name in sets for of in (*ways, "ahead"))]
    for system in (one for one in sets["UR Fall"][last] if one.startswith("small: ")):
        cells = []
        for rows in sets.values():
            cells += [f"{rows[way][system]['mAP']:.3f}" for way in ways]
            cells += [_lead(rows[last][system][f"ahead of {ways[0]}"]["mAP"])]
        yield [system.removeprefix("small: "), *cells]


def _trials(benchmark: str, what: str) -> Iterator[list]:
    """Ways to train a network for few videos: its own scores, an RNN's, and how far ahead that is of another way's."""
    data = record(benchmark)
    sets = _both(data)
    yield [what, *(f"{name}: {system}" for name in sets for system in ("network's own", "RNN", "RNN ahead"))]
    for way in data["urfall"]:
        cells = []
        for rows in sets.values():
            head, model = rows[way].get("head"), rows[way]["small"]
            ahead = next(one for entry, one in model.items() if entry.startswith("ahead of"))["mAP"]
            gain = _lead(ahead) if ahead["difference"] else ""
            cells += [f"{head['mAP']:.3f}" if head else "", f"{model['mAP']:.3f}", gain]
        yield [way, *cells]


def instances(name: str) -> Iterator[list]:
    """Kinds of model on a set by the instances that they tell as these end, best first."""
    rows = record("instances")[name]
    yield [
        "",
        "instance mAP",
        "at IoU 0.3",
        "0.5",
        "0.7",
        "start mAP",
        "segment F1 at 50 %",
        "edit score",
        "event F1, start within 1 s",
        "mAP over chunks",
    ]
    for kind in sorted(rows, key=lambda kind: -rows[kind]["instances"]["mean"]):
        row = rows[kind]
        at = dict(zip(row["instances"]["ious"], row["instances"]["mAP"], strict=True))
        told = _short(row["instances"]["mean"], row["instances"]["interval"]["mean"])
        by_start = row["events"]["onset"]["1.0"]["f1"], row["events"]["interval"]["f1_onset_1.0"]
        yield [
            kind.replace("_", " ") if kind == "time_prior" else f"`{kind}`",
            told,
            *(f"{at[least]:.2f}" for least in (0.3, 0.5, 0.7)),
            _short(row["starts"]["mean"], row["starts"]["interval"]["mean"]),
            _short(row["segments"]["F1"][-1], row["segments"]["interval"]["F1"][-1]),
            _short(row["segments"]["edit"], row["segments"]["interval"]["edit"]),
            _short(*by_start),
            _short(row["frames"]["mAP"], row["frames"]["interval"]["mAP"]),
        ]


def _both(data: dict) -> dict[str, dict]:
    """What a record says of the two small sets, by their titles."""
    return {"UT-Interaction": data["ut_interaction"], "UR Fall": data["urfall"]}


def _lead(ahead: dict) -> str:
    """How far something is ahead, with its interval."""
    return f"{ahead['difference']:+.3f} {interval(ahead['interval'])}"


def _short(value: float | None, edges: list[float] | None) -> str:
    """A value and its interval with two digits."""
    if value is None:
        return ""
    return f"{value:.2f}" + (f" [{edges[0]:.2f}, {edges[1]:.2f}]" if edges else "")


def recall() -> Iterator[list]:
    """Actions called right by the cue's distance; in brackets where not all of the cue is in the memory."""
    data = record("recall")["rows"]
    gaps = [one["gap"] for one in next(iter(next(iter(data.values())).values()))["gaps"]]
    yield ["", *(f"{gap:g} s" for gap in gaps), "steps"]
    for name, seeds in data.items():
        for seed, entry in seeds.items():
            shares = [
                f"{one['accuracy']:.2f}" if one["in_memory"] else f"({one['accuracy']:.2f})" for one in entry["gaps"]
            ]
            title = f"`{name}`" + (f", seed {seed}" if len(seeds) > 1 else "")
            yield [title, *shares, f"{entry['steps']:,}"]


def joined() -> Iterator[list]:
    """Falls called right in joined videos, by the seconds since the hug, and the lead over no long memory."""
    data = record("joined")
    rows, against = data["rows"], "ahead of lstr-0s"
    gaps = [f"{gap:g}" for gap in data["joined"]["scored_gaps"]]
    yield [
        "",
        *(f"{gap} s" for gap in gaps),
        "all falls",
        "ahead of no long memory",
        "mAP of A and B",
        "processor s",
        "seeds",
    ]
    for row in rows.values():
        falls, per_frame = row["falls"], row["per_frame"]
        lead = falls.get(against)
        cells = [
            *(f"{falls['by_gap'][gap]:.2f}" for gap in gaps),
            f"{falls['accuracy']:.3f} {interval(falls['interval'])}",
        ]
        cells += [_lead(lead) if lead else ""]
        cells += [f"{per_frame['mAP']:.3f} {interval(per_frame['interval'])}", f"{row['processor_seconds']:.0f}"]
        yield [row["about"], *cells, len(row["seeds"])]
    rule = data["rule"]
    cells = [*(f"{rule['by_gap'][gap]:.2f}" for gap in gaps), f"{rule['accuracy']:.3f} {interval(rule['interval'])}"]
    yield ["a hug detector and the rule itself", *cells, "", "", "", ""]


def small_memory() -> Iterator[list]:
    """What each way to have a long memory comes to on few videos, and whether it still recalls."""
    data, sets = record("small-memory"), {"ut_interaction": "UT-Interaction", "urfall": "UR Fall"}
    heads = [f"{title}: {what}" for title in sets.values() for what in ("training", "test mAP", "ahead of none")]
    yield ["long memory", *heads, "joined: falls called right", "seeds"]
    for name, about in {"none": "none", **data["settings"]}.items():
        cells = []
        for row in (data[of_set].get(name) for of_set in sets):
            lead = row and row["ahead of none"]
            cells += [f"{row['mAP_of_training_videos']:.3f}", f"{row['mAP']:.3f}"] if row else ["", ""]
            cells += [_lead(lead) if row and name != "none" else ""]
        recalled = data["joined"].get(name, {}).get("falls")
        cells += [f"{recalled['accuracy']:.3f} {interval(recalled['interval'])}" if recalled else ""]
        in_all = [data[of_set].get(name) for of_set in (*sets, "joined")]
        seeds = (row["seeds"] if isinstance(row["seeds"], int) else len(row["seeds"]) for row in in_all if row)
        yield [about, *cells, ", ".join(map(str, seeds))]


def parity() -> Iterator[list]:
    """The published code beside this one, at each size that was compared."""
    sizes = record("published-parity")["sizes"]
    titles = {"small": "width 64", "full": "published size"}
    yield ["largest difference", *(cell for name in sizes for cell in (titles[name], "of"))]
    for together in zip(*(size["rows"] for size in sizes.values()), strict=True):
        cells = []
        for row in together:
            cells += [f"{row['largest_difference']:.1e}" if row["largest_difference"] else "0", row["of"]]
        yield [together[0]["what"], *cells]
