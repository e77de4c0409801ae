"""The tables of README and docs that are made from benchmarks/*.json.

A line `<!-- table: NAME -->` stands before each of them. `python docs/tables.py` writes them anew; a test fails when
one differs from its record.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"<!-- table: ([a-z0-9-]+) -->\n\n?((?:\|.*\n)*)\n*")


def record(name: str) -> dict:
    """A record of benchmarks/ by its name without ending."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))


def interval(bounds: Iterable[float]) -> str:
    """[low, high] with three digits."""
    low, high = bounds
    return f"[{low:.3f}, {high:.3f}]"


def scored(result: dict, metric: str = "mAP") -> str:
    """A metric with its interval."""
    return f"{result[metric]:.3f} {interval(result['interval'][metric])}"


def results() -> Iterator[list]:
    """README's one table: models on random and on trained networks, beside the time prior."""
    finetuned, kinds = record("finetuned"), record("kinds")
    yield ["features, model", "UT-Interaction mAP", "UR Fall mAP"]
    cells = [scored(kinds[name]["rnn"]) for name in ("ut_interaction", "urfall")]
    yield ["`--recipe live`, the RNN that `lstr learn` takes for little video", *cells]
    for title, key in (
        ("trained by `lstr finetune`, RGB and flow, LSTR", "finetuned both: lstr"),
        ("trained by `lstr finetune`, flow alone, LSTR", "finetuned flow: lstr"),
        ("random networks, RGB and flow, LSTR", "random both: lstr"),
        ("none: the time prior, which sees no video", "labels: time_prior"),
    ):
        cells = [finetuned[name][key] for name in ("ut_interaction", "urfall")]
        yield [title, *(f"{cell['mAP']:.3f}" if "labels" in key else scored(cell) for cell in cells)]


def learnt() -> Iterator[list]:
    """What `lstr learn` makes of each set, in how long."""
    data = record("learn")
    yield ["", "videos: learnt from, held out", "caught", "false alarms", "late", "mAP", "time prior", "took"]
    for name in ("ut_interaction", "urfall", "demo"):
        one = data[name]
        videos, together = one["videos"], one["events"]["together"]
        yield [
            one["title"],
            f"{videos['training']}, {videos['testing']}",
            f"{together['found']} of {together['labels']}",
            f"{together['false_alarms']} in {60 * one['events']['hours']:.1f} min",
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
    data = record("learn")["ut_interaction"]
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
    yield ["", "mAP", "95 % interval", "lead over 8 s", "seeds"]
    for name, entries in seeds.items():
        base, lead = seeds.get("oracle-32" if name in data["oracles"] else "memory-0"), ""
        if base and base is not entries:
            low, high = percentiles([a - b for a, b in zip(_drawn(entries), _drawn(base), strict=True)])
            lead = f"{_mean(entries) - _mean(base):+.3f} ({low:+.3f} to {high:+.3f})"
        low, high = percentiles(_drawn(entries))
        yield [f"`{name}`", f"{_mean(entries):.3f}", f"{low:.3f} to {high:.3f}", lead, len(entries)]


def _mean(entries: list[dict]) -> float:
    return sum(entry["mAP"] for entry in entries) / len(entries)


def _drawn(entries: list[dict]) -> list[float]:
    """mAP of each resample, the mean over seeds."""
    columns = zip(*(entry["resampled_mAP"] for entry in entries), strict=True)
    return [sum(column) / len(column) for column in columns]


def percentiles(values: list[float]) -> tuple[float, float]:
    """The bounds that 95 % of the values lie between."""
    import numpy as np

    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def tvl1() -> Iterator[list]:
    """The compiled TV-L1 kernel beside OpenCV's."""
    yield ["frame", "OpenCV 5, pairs per second", "compiled, pairs per second", "ratio", "equal to the bit"]
    for row in record("tvl1")["tvl1"]:
        yield [
            "×".join(map(str, row["size"])),
            f"{row['opencv_pairs_per_second']:.1f}",
            f"{row['native_pairs_per_second']:.1f}",
            f"{row['ratio']:.1f} ×",
            f"{row['bit_equal_pairs']} of {row['pairs']} pairs",
        ]


def step() -> Iterator[list]:
    """LSTR alone, from features to scores."""
    data = record("lstr-step")
    yield ["", "steps per second", "p50 ms", "p95 ms", "against recomputing"]
    for title, key in (
        ("window recomputed at each chunk", "recompute"),
        ("stream, fixed grid", "stream"),
        ("stream, sliding grid", "stream_sliding"),
        ("stream, fixed grid, `--model-precision bf16`", "stream_bf16"),
        ("16 streams in one step", "batched_16"),
    ):
        row = data[key]
        times = [f"{row[name]:.1f}" if row[name] < 10 else f"{row[name]:.0f}" for name in ("p50_ms", "p95_ms")]
        yield [title, f"{row['steps_per_second']:.0f}", *times, f"{row['ratio']:.1f} ×"]


def chain() -> Iterator[list]:
    """From a video to decisions, by recipe, beside the paper's own runtime table."""
    names = ("fast", "faithful-bf16", "faithful")
    data = [record(f"chain-{name}") for name in names]
    paper = data[0]["paper"]
    yield ["decisions per second", "`fast`", "`faithful --precision bf16`", "`faithful`", "paper, on a V100"]
    for title, key in (
        ("TV-L1 flow", "flow"),
        ("RGB features", "rgb_features"),
        ("flow features", "flow_features"),
        ("LSTR", "lstr"),
    ):
        yield [title, *(f"{d['stages'][key]['decisions_per_second']:.1f}" for d in data), paper[key]]
    whole = [d["end_to_end"] for d in data]
    yield ["one after the other", *(f"{d['serial']['decisions_per_second']:.1f}" for d in whole), paper["serial"]]
    yield ["overlapped, as the commands run", *(f"{d['overlapped']['decisions_per_second']:.1f}" for d in whole), "-"]
    yield ["times real time", *(f"{d['overlapped']['realtime_factor']:.2f}" for d in whole), "-"]
    delays = whole[0]["overlapped"]["latency_ms"]
    yield ["live latency, p50 / p95 ms", f"{delays['p50']:.0f} / {delays['p95']:.0f}", "-", "-", "-"]


def hours() -> Iterator[list]:
    """40,000 videos of 150 s at the rates of the whole chain."""
    yield ["recipe", "chunks per second, 2 cores", "hours of 2 cores", "100 nodes of 2 cores"]
    for title, name in (("fast", "fast"), ("faithful --precision bf16", "faithful-bf16"), ("faithful", "faithful")):
        rate = record(f"chain-{name}")["end_to_end"]["overlapped"]["decisions_per_second"]
        total = 40_000 * 150 * 4 / rate / 3600
        yield [f"`{title}`", f"{rate:.2f}", f"{total:,.0f}", f"{total / 100:.0f} h"]


def evaluation() -> Iterator[list]:
    """A video evaluated at once, beside its windows recomputed."""
    data = record("batch-evaluation")
    yield ["grid", "chunks of the video", "16 windows recomputed together", "the whole video at once", "ratio"]
    for preset in ("thumos14", "thumos14-published"):
        for row in data[preset]["videos"]:
            chunks = f"{row['chunks']}, the mean of the test split" if row["chunks"] == 1057 else row["chunks"]
            times = [f"{row[name]:.1f}" for name in ("recomputed_ms", "at_once_ms")]
            yield [data[preset]["grid"], chunks, *times, f"{row['ratio']:.1f} ×"]


def recipes() -> Iterator[list]:
    """What `lstr bench` says of one machine."""
    data = record("recipes")
    yield ["recipe", "runtime", "precision", "processor s per video s", "times real time", "cameras", "lag p50 / p95"]
    for name, row in data["recipes"].items():
        for one in row["variants"]:
            best = all(one[key] == row["best"][key] for key in ("runtime", "precision"))
            delays = row["best"]["latency_ms"]
            lag = f"{delays['p50']:.0f} / {delays['p95']:.0f} ms" if best else ""
            figures = [f"{one['processor_seconds_per_second']:.3f}", f"{one['real_time']:.1f}", one["cameras"]]
            yield [f"`{name}`", one["runtime"], one["precision"], *figures, lag]


def cameras() -> Iterator[list]:
    """Lag, drops and cost of real-time streams that one process watches."""
    yield ["", "streams", "seconds", "lag p50", "lag p95", "dropped", "cores per stream", "memory"]
    for name, run in record("many-streams")["runs"].items():
        for row in run["rows"]:
            lag = [f"{row['lag_ms'][p]:.0f} ms" for p in ("p50", "p95")]
            end = [row["dropped"], f"{row['cores_per_stream']:.3f}", f"{row['peak_memory_mb']:,} MB"]
            yield [f"`{name}`", row["streams"], f"{row['seconds']:.0f}", *lag, *end]


def memory() -> Iterator[list]:
    """What an extraction holds after each step of its start, and at most."""
    rows = record("memory-parts")["megabytes"]
    yield ["megabytes", *rows]
    for step in next(iter(rows.values())):
        yield [step, *(f"{row[step]:,}" if step in row else "" for row in rows.values())]


def frontier() -> Iterator[list]:
    """Accuracy and speed of recipes for networks of one's own."""
    data = record("frontier")
    yield ["", "what", "times real time", "processor s per video s", "UT-Interaction mAP", "UR Fall mAP"]
    speed, accuracy = data["speed"]["points"], data["accuracy"]
    for name in sorted(speed, key=lambda point: speed[point]["real_time"]):
        cells = []
        for rows in accuracy.values():
            row = rows.get(name)
            cells.append(f"{row['mAP']:.3f} {interval(row['interval'])}" if row else "-")
        cost = [f"{speed[name]['real_time']:.1f}", f"{speed[name]['processor_seconds_per_second']:.3f}"]
        yield [f"`{name}`", data["points"][name]["about"], *cost, *cells]


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


def kind_speeds() -> Iterator[list]:
    """One stream of each kind at its published size, and a step of its training."""
    data = record("models")["kinds"]
    yield [
        "kind",
        "decisions/s, 1 core",
        "2 cores",
        "against LSTR",
        "bf16, 1 core",
        "int8, 1 core",
        "training: windows a step",
        "processor s a step",
        "wait for data",
    ]
    for kind, row in data.items():
        stream, fewer, training = row["stream"], row["precisions"], row.get("training")
        cells = [rounded(stream[cores]["steps_per_second"]) for cores in ("1", "2")]
        cells += [f"{stream['1']['ratio_to_lstr']:.2f} ×"]
        cells += [rounded(fewer[bits]["steps_per_second"]) if bits in fewer else "" for bits in ("bf16", "int8")]
        if training:
            cells += [str(training["batch_size"]), rounded(training["processor_seconds_a_step"])]
            cells += [f"{training['data_wait']:.1%}"]
        yield [f"`{kind}`", *cells, *[""] * (8 - len(cells))]


def rounded(value: float) -> str:
    """Two digits that count, or all before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


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
    ]
    for row in rows.values():
        falls, per_frame = row["falls"], row["per_frame"]
        lead = falls.get(against)
        cells = [
            *(f"{falls['by_gap'][gap]:.2f}" for gap in gaps),
            f"{falls['accuracy']:.3f} {interval(falls['interval'])}",
        ]
        cells += [f"{lead['difference']:+.3f} {interval(lead['interval'])}" if lead else ""]
        cells += [f"{per_frame['mAP']:.3f} {interval(per_frame['interval'])}", f"{row['processor_seconds']:.0f}"]
        yield [row["about"], *cells]
    rule = data["rule"]
    cells = [*(f"{rule['by_gap'][gap]:.2f}" for gap in gaps), f"{rule['accuracy']:.3f} {interval(rule['interval'])}"]
    yield ["a hug detector and the rule itself", *cells, "", "", ""]


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
            cells += [f"{lead['difference']:+.3f} {interval(lead['interval'])}" if row and name != "none" else ""]
        recalled = data["joined"].get(name, {}).get("falls")
        cells += [f"{recalled['accuracy']:.3f} {interval(recalled['interval'])}" if recalled else ""]
        in_all = [data[of_set].get(name) for of_set in (*sets, "joined")]
        seeds = (row["seeds"] if isinstance(row["seeds"], int) else len(row["seeds"]) for row in in_all if row)
        yield [about, *cells, ", ".join(map(str, seeds))]


def parity() -> Iterator[list]:
    """The published code beside this one."""
    yield ["", "largest difference", "of"]
    for row in record("published-parity")["sizes"]["small"]["rows"]:
        yield [row["what"], f"{row['largest_difference']:.1e}" if row["largest_difference"] else "0", row["of"]]


TABLES: dict[str, Callable[[], Iterator[list]]] = {
    "kinds": kinds,
    "recall": recall,
    "parity": parity,
    "joined": joined,
    "small-memory": small_memory,
    "results": results,
    "learnt": learnt,
    "random-networks": random_networks,
    "finetuned-networks": finetuned_networks,
    "held-out": held_out,
    "synthetic": synthetic,
    "tvl1": tvl1,
    "step": step,
    "chain": chain,
    "recipes": recipes,
    "cameras": cameras,
    "frontier": frontier,
    "kind-speeds": kind_speeds,
    "memory": memory,
    "hours": hours,
    "evaluation": evaluation,
}


def markdown(rows: Iterable[list]) -> str:
    """Rows, of which the first is the head, as a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    head = lines[0].count("|") - 1
    return "\n".join([lines[0], "|" + "---|" * head, *lines[1:]]).replace("|  |", "| |").replace("|  |", "| |") + "\n"


def pages() -> list[Path]:
    """README and every page of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_tables(text: str) -> str:
    """A page with each marked table as its record has it."""
    return MARK.sub(lambda mark: f"<!-- table: {mark[1]} -->\n\n{markdown(TABLES[mark[1]]())}\n", text)


def main() -> int:
    """Write the tables; with --check only say which pages would change, and leave with 1 if any would."""
    changed = [page for page in pages() if with_tables(page.read_text(encoding="utf-8")) != page.read_text("utf-8")]
    for page in changed:
        print(page.relative_to(ROOT))
        if "--check" not in sys.argv:
            page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return int("--check" in sys.argv and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
