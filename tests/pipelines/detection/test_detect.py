"""Detection: causal on pixels, the same from stored features, and what it writes."""

import json

import av
import numpy as np
import pytest

from lstr.batch import predict
from lstr.checkpoint import load, save
from lstr.errors import CheckpointError
from lstr.extractors.run import FeatureRow
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import find_checkpoint, load_checkpoint, make_default
from lstr.pipelines.detection.options import OutputOptions
from lstr.pipelines.detection.source import Source
from lstr.pipelines.features.folder import open_features
from tests.support.detections import decisions_of, run_recorded, sources_of, timelines_of


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


def scores_of(path, checkpoint) -> np.ndarray:
    return np.stack([decision.scores for decision in detect(path, checkpoint)])


@pytest.mark.long
def test_the_future_does_not_change_the_past(small_set, tmp_path):
    """Pixels in, scores out: the file cut after 60 % gives the same scores for the chunks it still has."""
    whole = small_set.videos / "scene_03.mp4"
    part = cut(whole, tmp_path / "cut.mp4", 0.6)
    all_scores, cut_scores = (scores_of(path, small_set.checkpoint) for path in (whole, part))
    assert len(all_scores) == 20 and 11 <= len(cut_scores) <= 13
    assert np.abs(all_scores[: len(cut_scores)] - cut_scores).max() <= 1e-5
    assert all_scores.std(0).max() > 0.01


@pytest.mark.slow
def test_the_future_does_not_change_the_past_of_a_real_video(shared, small_set, tmp_path):
    whole = shared / "data" / "urfall" / "videos" / "fall-01.mp4"
    part = cut(whole, tmp_path / "cut.mp4", 0.6)
    all_scores, cut_scores = (scores_of(path, small_set.checkpoint) for path in (whole, part))
    assert len(all_scores) == 21 and 12 <= len(cut_scores) <= 14
    assert np.abs(all_scores[: len(cut_scores)] - cut_scores).max() <= 1e-5


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


def test_outputs(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    (source,) = sources_of(small_set.videos / "scene_00.mp4", loaded=loaded)
    output = OutputOptions(tmp_path, ("json", "jsonl", "npy", "html"))
    ended = timelines_of(run_recorded(source, loaded, output))
    names = ["scene_00.html", "scene_00.json", "scene_00.jsonl", "scene_00.scores.npy"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    timeline = json.loads((tmp_path / "scene_00.json").read_text())
    assert timeline == ended["scene_00"] and timeline["format"] == "lstr-timeline/1"
    keys = {"source", "duration", "checkpoint", "recipe", "classes", "seconds_per_chunk", "chunks", "segments", "gaps"}
    assert keys | {"speed"} <= timeline.keys()
    assert timeline["segments"], "the checkpoint has fitted this video, so it sees its actions"
    for segment in timeline["segments"]:
        assert 0 <= segment["start"] < segment["end"] <= timeline["duration"] and segment["label"] in loaded.classes
    scores = np.load(tmp_path / "scene_00.scores.npy")
    assert scores.shape == (20, 6) and scores.dtype == np.float32 and np.allclose(scores.sum(1), 1, atol=1e-4)
    lines = [json.loads(line) for line in (tmp_path / "scene_00.jsonl").read_text().splitlines()]
    chunks = [line for line in lines if "chunk" in line]
    assert all({"chunk", "time", "label", "score", "top", "latency_ms"} == line.keys() for line in chunks)
    assert [line["label"] for line in chunks] == [loaded.classes[c] for c in scores.argmax(1)]
    events = [line for line in lines if "event" in line]
    assert len(events) == 2 * len(timeline["segments"])
    assert any("random weights" in text for text in timeline["warnings"])


def test_the_writers_get_what_python_gets(small_set, tmp_path):
    """`detect` gives the very decisions of which the JSONL is made, until the source ends."""

    def timeless(lines) -> list[dict]:
        return [{key: value for key, value in line.items() if key != "latency_ms"} for line in lines]

    given = list(detect(small_set.features, small_set.checkpoint))
    assert {type(decision) for decision in given} == {Decision} and len(given) == 80
    loaded = load(small_set.checkpoint)
    for i, source in enumerate(sources_of(small_set.features, loaded=loaded)):
        written = decisions_of(run_recorded(source, loaded, OutputOptions(tmp_path, ("jsonl",))))
        mine = given[20 * i : 20 * i + 20]
        assert all(np.array_equal(a.scores, b.scores) for a, b in zip(mine, written, strict=True))
        assert all(a.events == b.events for a, b in zip(mine[:-1], written[:-1], strict=True))
        lines = [json.loads(line) for line in (tmp_path / f"{source.id}.jsonl").read_text().splitlines()]
        said = [line for decision in mine for line in decision.lines()]
        assert timeless(lines) == timeless(json.loads(json.dumps(said)))  # what is on at the end too


def test_which_checkpoint(small_set, monkeypatch):
    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(None)
    assert "-m FILE" in caught.value.hint and "lstr learn" in caught.value.hint and caught.value.exit_code == 4
    assert len(f"{caught.value}\n{caught.value.hint}".splitlines()) == 3
    left = make_default(small_set.checkpoint)
    assert find_checkpoint(None) == left and load_checkpoint(None).classes == load(small_set.checkpoint).classes
    monkeypatch.setenv("LSTR_CHECKPOINT", "elsewhere.pt")
    assert str(find_checkpoint(None)) == "elsewhere.pt" and str(find_checkpoint("given.pt")) == "given.pt"


def test_a_checkpoint_without_a_recipe_scores_features_only(small_set, tmp_path):
    loaded = load(small_set.checkpoint)
    save(tmp_path / "bare.pt", loaded.model, loaded.classes, None, {})
    bare = load(tmp_path / "bare.pt")
    assert len(decisions_of(run_recorded(sources_of(small_set.features, loaded=bare)[0], bare))) == 20
    with pytest.raises(CheckpointError, match="does not record the recipe"):
        list(run_recorded(sources_of(small_set.videos, loaded=bare)[0], bare))
