"""Tables of what things cost: a generator of rows each, of which the first is the head."""

from collections.abc import Iterator

from records import interval, record, rounded

BUSY = 2.0  # a load from which on two cores' times are not their own


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
        ("stream, fixed grid, `model_precision=bf16`", "stream_bf16"),
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
    yield ["decisions per second", "`fast`", "`faithful`, bf16", "`faithful`", "paper, on a V100"]
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


def video_networks() -> Iterator[list]:
    """Networks that remember the frames before, and large ones, from frames to features."""
    data = record("video_networks")
    busy = ", while busy" if data["load"] > BUSY else ""
    times = f"ms a frame, 1 core{busy}", "processor s per video s", f"× real time, {data['cores']} cores{busy}"
    yield ["recipe", "image", "frames a second", *times]
    for name, row in data["recipes"].items():
        yield [
            f"`{name}`",
            f"{row['size'][1]}×{row['size'][0]}",
            4 * row["frames_a_chunk"],
            rounded(row["ms_a_frame"]),
            f"{row['processor_seconds_a_video_second']:.3f}",
            rounded(row["realtime_factor"]),
        ]


def hours() -> Iterator[list]:
    """40,000 videos of 150 s at the rates of the whole chain."""
    yield ["recipe", "chunks per second, 2 cores", "hours of 2 cores", "100 nodes of 2 cores"]
    for title, name in (("fast", "fast"), ("faithful, bf16", "faithful-bf16"), ("faithful", "faithful")):
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


def exported() -> Iterator[list]:
    """One model with torch and without: what is installed, how it starts, and what it then takes."""
    data, whole = record("exported"), record("install")["megabytes"]
    yield [
        "recipe",
        "runs on",
        "installed",
        "first decision",
        "one file: times real time",
        "memory",
        "eight cameras: cores",
        "lag p95",
        "dropped",
        "memory",
        "furthest score",
    ]
    for name, model in data["models"].items():
        for way, row in model["ways"].items():
            file, live = row["file"], row["cameras"]
            yield [
                f"`{name}`",
                way,
                f"{data['megabytes'].get(way, whole):,} MB",
                f"{file['seconds_to_first_decision']:.1f} s",
                f"{file['real_time']:.1f}",
                f"{file['peak_memory_mb']:,} MB",
                f"{live['cores']:.2f}",
                f"{live['lag_ms']['p95']:,.0f} ms",
                f"{live['dropped'] / (live['decided'] + live['dropped']):.0%}" if live["dropped"] else "none",
                f"{live['peak_memory_mb']:,} MB",
                f"{row['furthest_score']:.0e}" if row["furthest_score"] else "",
            ]


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
