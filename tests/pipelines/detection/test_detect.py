"""Detection on recorded sources: causal on pixels, the same from stored features, one by one or several at once."""

import json
import threading
from contextlib import closing
from dataclasses import replace
from itertools import count

import av
import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.checkpoint import load, save
from lstr.errors import CheckpointError, RecipeError
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import FeatureRow
from lstr.extractors.twostream import build_twostream
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import find_checkpoint, load_checkpoint, make_default
from lstr.pipelines.detection.options import Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import FrameSource, Source
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.progress import Failed, Finished, Notice
from tests.support.detections import decisions_of, open_networks, run_recorded, sources_of, take_until
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM
from tests.support.means import Means, tiny_checkpoint
from tests.support.videos import write_video


def cut(source, target, share: float):
    """Copy the packets of the first `share` of a video, cut where every frame shown so far is complete."""
    with av.open(str(source)) as given:
        stream = given.streams.video[0]
        packets = [p for p in given.demux(stream) if p.size]
        times = [p.pts for p in packets]
        at = next(i for i in range(int(len(packets) * share), len(packets)) if max(times[:i]) < min(times[i:]))
        with av.open(str(target), "w") as written:
            copy = written.add_stream_from_template(stream)
            for packet in packets[:at]:
                packet.stream = copy
                written.mux(packet)
    return target


def scores_of(path, checkpoint, **options) -> np.ndarray:
    return np.stack([decision.scores for decision in detect(path, checkpoint, **options)])


@pytest.mark.parametrize("name", ["scene_03", pytest.param("fall-01", marks=pytest.mark.slow)])
@pytest.mark.long
def test_the_future_does_not_change_the_past(request, small_set, tmp_path, name):
    """Pixels in, scores out: the file cut after 60 % gives the same scores for the chunks it still has."""
    whole = small_set.videos / f"{name}.mp4"
    if not whole.exists():
        whole = request.getfixturevalue("shared") / "data" / "urfall" / "videos" / f"{name}.mp4"
    part = cut(whole, tmp_path / "cut.mp4", 0.6)
    all_scores, cut_scores = (scores_of(path, small_set.checkpoint) for path in (whole, part))
    assert 0.5 < len(cut_scores) / len(all_scores) < 0.7 and len(all_scores) >= 20
    assert np.abs(all_scores[: len(cut_scores)] - cut_scores).max() <= 1e-5
    assert all_scores.std(0).max() > 0.01


def test_raw_video_and_stored_features_and_the_batch_definition_agree(small_set):
    raw = scores_of(small_set.videos / "scene_03.mp4", small_set.checkpoint)
    loaded = load(small_set.checkpoint)
    folder = open_features(small_set.features)
    stored = {source.id: source for source in sources_of(small_set.features, loaded=loaded)}
    assert list(stored) == folder.ids()
    from_stored = np.stack([d.scores for d in decisions_of(run_recorded(stored["scene_03"], loaded))])
    assert np.abs(from_stored - raw).max() < 1e-4
    batch = predict(loaded.model, np.concatenate(folder.load("scene_03"), 1)).numpy()
    assert np.abs(batch - raw).max() < 1e-4


def test_each_line_is_out_before_the_next_decision(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    rgb, flow = open_features(small_set.features).load("scene_03")
    pulled = []

    def watched():
        for k in range(20):
            pulled.append(k)
            yield FeatureRow(k, (k + 1) / 4, {"rgb": rgb[k], "flow": flow[k]})

    path = tmp_path / "scene_03.jsonl"
    running = run_recorded(Source("scene_03", rows=watched()), loaded, OutputOptions(tmp_path, ("jsonl",)))
    for decision in (event for event in running if isinstance(event, Decision)):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["chunk"] for line in lines if "chunk" in line] == list(range(decision.chunk + 1))
        assert pulled == list(range(decision.chunk + 1)), "it looked at a later chunk"


def timeless(line: dict) -> dict:
    return {key: value for key, value in line.items() if key not in ("latency_ms", "speed")}


def test_the_writers_get_what_python_gets(small_set, tmp_path):
    """`detect` gives the very decisions of which the JSONL is made, until the source ends."""
    given = list(detect(small_set.features, small_set.checkpoint))
    assert {type(decision) for decision in given} == {Decision} and len(given) == 80
    loaded = load(small_set.checkpoint)
    for i, source in enumerate(sources_of(small_set.features, loaded=loaded)):
        written = decisions_of(run_recorded(source, loaded, OutputOptions(tmp_path, ("jsonl",))))
        mine = given[20 * i : 20 * i + 20]
        assert all(np.array_equal(a.scores, b.scores) for a, b in zip(mine, written, strict=True))
        assert all(a.events == b.events for a, b in zip(mine[:-1], written[:-1], strict=True))
        lines = [json.loads(line) for line in (tmp_path / f"{source.id}.jsonl").read_text().splitlines()]
        expected = json.loads(json.dumps([line for decision in mine for line in decision.lines()]))
        assert list(map(timeless, lines)) == list(map(timeless, expected))  # what is active at the end too


def test_which_checkpoint(small_set, monkeypatch):
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(None)
    assert "-m FILE" in caught.value.hint and "lstr learn" in caught.value.hint and caught.value.exit_code == 4
    left = make_default(small_set.checkpoint)
    assert find_checkpoint(None) == left and load_checkpoint(None).classes == load(small_set.checkpoint).classes
    monkeypatch.setenv("LSTR_CHECKPOINT", "elsewhere.pt")
    assert str(find_checkpoint(None)) == "elsewhere.pt" and str(find_checkpoint("given.pt")) == "given.pt"


def test_a_checkpoint_without_a_recipe_scores_features_only(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    save(tmp_path / "bare.pt", loaded.model, loaded.classes, None, {})
    bare = load(tmp_path / "bare.pt")
    assert len(decisions_of(run_recorded(sources_of(small_set.features, loaded=bare)[0], bare))) == 20
    with pytest.raises(CheckpointError, match="recipe"):
        list(run_recorded(sources_of(small_set.videos, loaded=bare)[0], bare))


@pytest.mark.long
def test_networks_that_are_not_random(finetuned, tmp_path):
    """By their folder, by files, and as options: the same scores, which other networks do not give."""
    torch.manual_seed(0)
    model = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    save(tmp_path / "c.pt", model, CLASSES, json.loads(finetuned.weights.recipe.to_json()), {})
    video, weights = next(iter(finetuned.videos.values())), finetuned.weights.path

    def scores(networks) -> np.ndarray:
        return scores_of(video, tmp_path / "c.pt", networks=networks, limits=Limits(max_chunks=2), device="cpu")

    by_folder = scores(weights)
    assert by_folder.shape == (2, 2) and np.isfinite(by_folder).all()
    assert np.array_equal(by_folder, scores({stream: weights / f"{stream}.pth" for stream in ("rgb", "flow")}))
    options = NetworkOptions(dict.fromkeys(("rgb", "flow"), str(weights)), flow_threads=1)
    assert np.array_equal(by_folder, scores(options))
    others = {stream: weights / "fold_1" / f"{stream}.pth" for stream in ("rgb", "flow")}
    with pytest.raises(RecipeError, match="sha256"):
        scores(others)
    assert not np.array_equal(by_folder, scores(others | {"allow_mismatch": True}))


def reported(events) -> list[tuple]:
    """Events without what differs from run to run."""
    kept = [event for event in events if isinstance(event, Opened | Decision | Ended | Failed)]
    return [
        (type(e).__name__, *((e.source, e.scores.tobytes()) if isinstance(e, Decision) else (e.id, None))) for e in kept
    ]


def written(folder) -> dict:
    """Files by name: scores to the byte, and JSON without the times that it took."""
    files = {path.name: path.read_bytes() for path in folder.glob("*.npy")}
    for path in folder.glob("*.json*"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        files[path.name] = [timeless(json.loads(line)) for line in lines]
    return files


@pytest.mark.long
def test_videos_at_once_are_as_each_alone(small_set, tmp_path):
    """To the byte, also beside two that cannot be read."""
    data = (small_set.videos / "scene_02.mp4").read_bytes()
    (tmp_path / "a_empty.mp4").touch()
    (tmp_path / "b_cut.mp4").write_bytes(data[: len(data) // 2])
    sources = [small_set.videos / "scene_00.mp4", tmp_path / "a_empty.mp4", tmp_path / "b_cut.mp4"]
    sources += [small_set.videos / "scene_03.mp4"]
    events, files = {}, {}
    for at_once in (1, 3):
        output = OutputOptions(tmp_path / str(at_once), ("json", "jsonl", "npy"))
        networks, limits = NetworkOptions(flow_threads=1), Limits(max_chunks=3)
        loaded = load_checkpoint(small_set.checkpoint)
        options = DetectOptions(loaded, networks=networks, limits=limits, output=output, at_once=at_once)
        events[at_once] = list(detect_sources(sources, options))
        files[at_once] = written(output.folder)
    assert reported(events[3]) == reported(events[1]) and files[3] == files[1]
    assert [event.id for event in events[3] if isinstance(event, Ended)] == ["scene_00", "scene_03"]
    result = events[3][-1].result
    assert [failure.id for failure in result.failures] == ["a_empty", "b_cut"]
    assert all(timeline["speed"]["processor_seconds_per_video_second"] > 0 for timeline in result.timelines.values())


def test_the_next_source_runs_ahead_and_no_farther(tmp_path, monkeypatch):
    monkeypatch.setattr("lstr.pipelines.detection.track.DECIDED_AHEAD", 2)
    monkeypatch.setattr("lstr.pipelines.detection.source.QUEUED", 1)
    loaded = tiny_checkpoint(tmp_path / "c.pt", ("Background", "kick"))
    read, begun, closed = [0, 0, 0], threading.Event(), threading.Event()

    def frames(place: int, chunks: int):
        try:
            for number in range(6 * chunks) if chunks else count():
                read[place] += 1
                if place == 1:
                    begun.set()
                yield np.full((8, 8, 3), number % 256, np.uint8), number / 24
        finally:
            if place == 1:
                closed.set()

    networks = open_networks(loaded, (Means(), None))
    with Session(loaded, networks, 2) as session, closing(session.events()) as events:
        for place, chunks in enumerate((5, 0, 5)):
            session.add(FrameSource(str(place), frames(place, chunks)))
        take_until(events, Opened, "0")
        assert begun.wait(60), "no chunk of the first one was asked for"
        take_until(events, Ended, "0")
        assert read[1] <= 12 * 6 and not read[2] and not closed.is_set()
    assert closed.wait(60), "who leaves in the middle leaves no thread behind"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reader of")]


def test_frames_of_another_shape_are_reported_once_for_each_shape(tmp_path):
    """A model that was trained on frames of 4:3 sees the middle of wider ones; of files and of a program's frames."""
    preset = PRESETS["grey"].having(
        {"grey": replace(PRESETS["grey"].grey, network="shufflenetv2", weights=None, size=(32, 43))}
    )
    recipe = build_twostream(preset, WeightSources(), "cpu").recipe
    model = make_model(configure(kind="rnn", rgb_dim=1024, flow_dim=0, d_model=8), 3).eval()
    save(tmp_path / "model.pt", model, ("Background", "wave", "jump"), recipe.to_dict(), {}, {}, {})
    loaded = load_checkpoint(tmp_path / "model.pt")
    shapes = {"usual": (96, 72), "wide": (128, 72), "wide1": (128, 72), "tall": (72, 128)}
    videos = [write_video(tmp_path / f"{name}.mp4", range(0, 400, 20), size) for name, size in shapes.items()]
    for sources, reports, warned in (
        (videos, ["128×72", "72×128"], [0, 1, 1, 1]),
        ([FrameSource("door", [(np.zeros((72, 128, 3), np.uint8), n / 24) for n in range(24)])], ["128×72"], [1]),
    ):
        events = list(detect_sources(sources, DetectOptions(loaded)))
        texts = [event.text for event in events if isinstance(event, Notice) and "×" in event.text]
        assert len(texts) == len(reports) and all(shape in text for shape, text in zip(reports, texts, strict=True))
        (result,) = [event.result for event in events if isinstance(event, Finished)]
        assert [sum("×" in text for text in one["warnings"]) for one in result.timelines.values()] == warned
