"""Detection on recorded sources and from Python: causal, and equal from pixels, frames and stored features."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import av
import numpy as np
import pytest

import lstr
from lstr.batch import predict
from lstr.checkpoint import load, save
from lstr.errors import CheckpointError, ConfigError, LstrError, OutputError, VideoError
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import FeatureRow
from lstr.extractors.twostream import build_twostream
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.decision import Decision, Ended, Opened
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.detector import detect
from lstr.pipelines.detection.model import find_checkpoint
from lstr.pipelines.detection.options import Limits, OutputOptions, choose_thresholds
from lstr.pipelines.detection.source import FrameSource, Source, source_frames
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.progress import Failed, Finished, Notice
from lstr.timeline import Thresholds
from tests.support.detections import ONE_THREAD, decisions_of, lines_of, run_session, scores_of, sources_of
from tests.support.videos import write_video


def frames_of(path):
    """Yield frames and times of a video, all in one array, which is overwritten each time."""
    buffer = None
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            image = frame.to_ndarray(format="rgb24")
            buffer = np.empty_like(image) if buffer is None else buffer
            buffer[:] = image
            yield buffer, frame.time


@pytest.mark.parametrize("name", ["scene_03", pytest.param("fall-01", marks=pytest.mark.slow)])
@pytest.mark.long
def test_later_frames_do_not_change_scores(request, detector, small_set, name):
    """The first 90 frames have the scores that their chunks have in the whole file."""
    video = small_set.videos / f"{name}.mp4"
    if not video.exists():
        video = request.getfixturevalue("shared") / "data" / "urfall" / "videos" / f"{name}.mp4"
    whole, part = (scores_of(detector.detect(source)) for source in (video, islice(frames_of(video), 90)))
    assert len(whole) >= 20 and len(part) == 12 and whole.std(0).max() > 0.01
    assert np.abs(whole[:12] - part).max() <= 1e-5


def test_raw_video_and_stored_features_and_the_batch_definition_agree(small_set, loaded):
    raw = scores_of(detect(small_set.videos / "scene_03.mp4", small_set.checkpoint))
    folder = open_features(small_set.features)
    sources = {source.id: source for source in sources_of(small_set.features, loaded=loaded)}
    assert list(sources) == folder.ids()
    stored = scores_of(decisions_of(run_session([sources["scene_03"]], loaded)))
    batch = predict(loaded.model, np.concatenate(folder.load("scene_03"), 1)).numpy()
    assert np.abs(stored - raw).max() < 1e-4 and np.abs(batch - raw).max() < 1e-4


def test_each_line_is_written_before_the_next_chunk_is_read(small_set, loaded, tmp_path):
    rgb, flow = open_features(small_set.features).load("scene_03")
    read = []

    def rows():
        for k in range(20):
            read.append(k)
            yield FeatureRow(k, (k + 1) / 4, {"rgb": rgb[k], "flow": flow[k]})

    output = OutputOptions(tmp_path, ("jsonl",))
    events, first, second = (run_session([Source("scene_03", rows=rows())], loaded, output=output) for _ in range(3))
    for decision in (event for event in events if isinstance(event, Decision)):
        chunks = [line["chunk"] for line in lines_of(tmp_path, "scene_03") if "chunk" in line]
        assert chunks == read == list(range(decision.chunk + 1))
    assert any(isinstance(event, Decision) for event in first) and len(decisions_of(second)) == 20
    with pytest.raises(OutputError, match="deleted while in use"):  # the second run has taken the file
        list(first)
    assert sum("chunk" in line for line in lines_of(tmp_path, "scene_03")) == 20


def without_times(line: dict) -> dict:
    return {key: value for key, value in line.items() if key not in ("latency_ms", "speed")}


def test_decisions_and_lines_agree(small_set, loaded, tmp_path):
    every = list(detect(small_set.features, small_set.checkpoint))
    assert {type(decision) for decision in every} == {Decision} and len(every) == 80
    for i, source in enumerate(sources_of(small_set.features, loaded=loaded)):
        written = decisions_of(run_session([source], loaded, output=OutputOptions(tmp_path, ("jsonl",))))
        decisions = every[20 * i : 20 * i + 20]
        assert np.array_equal(scores_of(decisions), scores_of(written))
        assert [decision.events for decision in decisions[:-1]] == [decision.events for decision in written[:-1]]
        lines = json.loads(json.dumps([line for decision in decisions for line in decision.lines()]))
        assert [*map(without_times, lines_of(tmp_path, source.id))] == [*map(without_times, lines)]


def test_the_checkpoint_of_the_environment(monkeypatch):
    monkeypatch.setenv("LSTR_CHECKPOINT", "elsewhere.pt")
    assert str(find_checkpoint(None)) == "elsewhere.pt" and str(find_checkpoint("named.pt")) == "named.pt"


def test_a_checkpoint_without_a_recipe_needs_features(small_set, loaded, tmp_path):
    save(tmp_path / "bare.pt", loaded.model, loaded.classes, None, {})
    bare = load(tmp_path / "bare.pt")
    assert len(decisions_of(run_session(sources_of(small_set.features, loaded=bare)[:1], bare))) == 20
    with pytest.raises(CheckpointError, match="recipe"):
        list(run_session(sources_of(small_set.videos, loaded=bare), bare))


def contents(folder) -> dict:
    """Return the files of a folder by name: arrays as bytes, and JSON without times."""
    files = {path.name: path.read_bytes() for path in folder.glob("*.npy")}
    for path in folder.glob("*.json*"):
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        files[path.name] = [without_times(json.loads(line)) for line in lines]
    return files


@pytest.mark.long
def test_concurrent_videos_have_the_results_of_single_ones(small_set, loaded, tmp_path, monkeypatch):
    """The results are equal to the byte, also next to two videos that cannot be read."""
    data = (small_set.videos / "scene_02.mp4").read_bytes()
    (tmp_path / "a_empty.mp4").touch()
    (tmp_path / "b_cut.mp4").write_bytes(data[: len(data) // 2])
    whole = [small_set.videos / f"{name}.mp4" for name in ("scene_00", "scene_03")]
    names = [whole[0], tmp_path / "a_empty.mp4", tmp_path / "b_cut.mp4", whole[1]]
    options = DetectOptions(loaded, networks=ONE_THREAD, limits=Limits(max_chunks=3))
    results: list = []
    for at_once in (1, 3):
        for name, value in {"default_workers": lambda: 4, "MAX_AT_ONCE": at_once, "GPU_READERS": at_once}.items():
            monkeypatch.setattr(f"lstr.pipelines.detection.detect.{name}", value)
        output = OutputOptions(tmp_path / str(at_once), ("json", "jsonl", "npy"))
        *events, finished = detect_sources(names, replace(options, output=output))
        report = [
            (event.source, event.scores.tobytes()) if isinstance(event, Decision) else (type(event), event.id)
            for event in events
            if isinstance(event, Opened | Decision | Ended | Failed)
        ]
        results.append((report, contents(output.folder)))
    assert results[0] == results[1]
    assert [*finished.result.timelines] == ["scene_00", "scene_03"]
    assert [failure.id for failure in finished.result.failures] == ["a_empty", "b_cut"]
    speeds = [timeline["speed"] for timeline in finished.result.timelines.values()]
    assert all(speed["processor_seconds_per_video_second"] > 0 for speed in speeds)


def test_a_warning_for_each_frame_shape_that_is_cropped(tmp_path):
    """A model that was trained on frames of 4:3 sees only the middle of wider ones."""
    preset = PRESETS["grey"].having(
        {"grey": replace(PRESETS["grey"].grey, network="shufflenetv2", weights=None, size=(32, 43))}
    )
    recipe = build_twostream(preset, WeightSources(), "cpu").recipe
    model = make_model(configure(kind="rnn", rgb_dim=1024, flow_dim=0, d_model=8), 3).eval()
    save(tmp_path / "model.pt", model, ("Background", "wave", "jump"), recipe.to_dict(), {}, {}, {})
    loaded = load(tmp_path / "model.pt")
    sizes = {"usual": (96, 72), "wide": (128, 72), "wide1": (128, 72), "tall": (72, 128)}
    videos = [write_video(tmp_path / f"{name}.mp4", range(0, 400, 20), size) for name, size in sizes.items()]
    for sources, shapes, warned in (
        (videos, ["128×72", "72×128"], [0, 1, 1, 1]),
        ([FrameSource("door", [(np.zeros((72, 128, 3), np.uint8), n / 24) for n in range(24)])], ["128×72"], [1]),
    ):
        events = list(detect_sources(sources, DetectOptions(loaded)))
        texts = [event.text for event in events if isinstance(event, Notice) and "×" in event.text]
        assert all(shape in text for shape, text in zip(shapes, texts, strict=True))
        (result,) = [event.result for event in events if isinstance(event, Finished)]
        assert [sum("×" in text for text in t["warnings"]) for t in result.timelines.values()] == warned


FOUR_CHUNKS = lstr.Limits(max_chunks=4)
ALWAYS = {"on": 0.01, "off": 0.01}


@pytest.fixture(scope="module")
def detector(small_set):
    with lstr.load(small_set.checkpoint, device="cpu", networks={"flow_threads": 1}) as loaded:
        yield loaded


def test_limits_of_frames_are_in_seconds(detector, small_set):
    frames = frames_of(small_set.videos / "scene_03.mp4")
    later = detector.detect(frames, limits=lstr.Limits(start=1, duration=0.5))
    assert [decision.chunk for decision in later] == [4, 5]


@pytest.mark.long
def test_concurrent_and_alternating_detections(detector, small_set):
    videos = sorted(small_set.videos.glob("*.mp4"))

    def scores(video) -> np.ndarray:
        return scores_of(detector.detect(video, limits=FOUR_CHUNKS))

    expected = [scores(video) for video in videos]
    with ThreadPoolExecutor(len(videos)) as pool:
        assert np.allclose(list(pool.map(scores, videos)), expected, atol=1e-6)
    turns = zip(*(detector.detect(video, limits=FOUR_CHUNKS) for video in videos), strict=True)
    assert np.allclose([scores_of(decisions) for decisions in zip(*turns, strict=True)], expected, atol=1e-6)


def test_actions_that_are_active_at_the_end_are_events(detector, small_set):
    decisions = detector.detect(small_set.features, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    events = list(decisions.events())
    assert {event.event for event in events} == {"started", "ended"}
    assert [*decisions.timelines] == [f"scene_0{n}" for n in range(4)]
    assert all(timeline["segments"] and timeline["chunks"] == 4 for timeline in decisions.timelines.values())
    for name in ("ended", "timeline"):
        with pytest.raises(LstrError):
            getattr(decisions, name)
    by_function = lstr.detect(small_set.features, detector, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    assert events == [event for decision in by_function for event in decision.events]


def test_several_paths(detector, small_set):
    paths = [small_set.videos / f"scene_0{n}.mp4" for n in (2, 3)]
    decisions = detector.detect(paths, thresholds=ALWAYS, limits=FOUR_CHUNKS)
    rows = [(decision.source, decision.events) for decision in decisions]
    expected = []
    for path in paths:
        single = detector.detect([path], thresholds=ALWAYS, limits=FOUR_CHUNKS)
        expected += [(decision.source, decision.events) for decision in single]
        assert {event.event for event in single.ended} == {"ended"}
        assert expected[-1][1][-len(single.ended) :] == single.ended
        assert single.timelines == {path.stem: single.timeline} and single.timeline["segments"]
    assert rows == expected and [*decisions.timelines] == ["scene_02", "scene_03"]


@pytest.mark.long
def test_a_pause_of_frames_is_a_gap(detector, small_set):
    video = islice(frames_of(small_set.videos / "scene_03.mp4"), 96)
    frames = [(image.copy(), Fraction(time) + (20 if n >= 48 else 0)) for n, (image, time) in enumerate(video)]
    decisions = list(detector.detect(frames, thresholds=ALWAYS))
    chunks = [decision.chunk for decision in decisions]
    before, after = [n for n in chunks if n < 80], [n for n in chunks if n >= 80]
    assert before and after and len(chunks) < 20, "no decision during the pause"
    (gap,) = [gap for decision in decisions for gap in decision.gaps]
    assert (gap.first, gap.end, gap.reason) == (before[-1] + 1, after[0], "unseen")


def test_a_detection_may_be_closed_early(detector, small_set):
    with detector.detect(small_set.features) as decisions:
        assert isinstance(next(decisions), Decision)
    assert list(decisions) == [] and decisions.timeline is None


def image(side: int = 32, kind=np.uint8) -> np.ndarray:
    return np.zeros((side, side, 3), kind)


@pytest.mark.parametrize(
    ("frames", "value"),
    [
        ([(image(), 0.0), (image(), 1.0), (image(), 0.5)], "frame 2 "),
        ([(image(), float("nan"))], "nan"),
        ([(image(kind=np.float32), 0.0)], "float32"),
        ([(image()[:, :, 0], 0.0)], r"\(32, 32\)"),
        ([(image(0), 0.0)], "Frame 0 "),
        ([image()], "Item 0 "),
        ([(image(), "noon")], "Item 0 "),
        ([(image(), 40 * n) for n in range(9)], "0, 40, 80, 120 s"),
    ],
)
def test_invalid_frames(frames, value):
    with pytest.raises(VideoError, match=value):
        list(source_frames(frames, 128))


def test_thresholds_of_the_checkpoint_of_all_classes_and_by_class(small_set):
    loaded = lstr.load(small_set.checkpoint)
    loaded.extra["thresholds"] = {"wave": {"on": 0.4, "off": 0.3}}
    own = {label: Thresholds() for label in loaded.classes} | {"wave": Thresholds(0.4, 0.3)}
    assert choose_thresholds(loaded) == own == choose_thresholds(loaded, {})
    assert choose_thresholds(loaded, Thresholds(0.9)) == Thresholds(0.9)
    assert choose_thresholds(loaded, {"min_length": 1, "off": None})["wave"] == Thresholds(0.4, 0.3, 1.0)
    assert choose_thresholds(loaded, {"wave": {"merge_gap": 1}}) == own | {"wave": Thresholds(0.4, 0.3, 0, 1.0)}
    assert choose_thresholds(loaded, {"backdate": 0.75})["wave"] == Thresholds(0.4, 0.3, backdate=0.75)
    assert choose_thresholds(loaded, {"wave": Thresholds(0.9)}) == own | {"wave": Thresholds(0.9)}
    for thresholds in ({"fell": Thresholds()}, {"wave": 0.4}):
        with pytest.raises(ConfigError):
            choose_thresholds(loaded, thresholds)
