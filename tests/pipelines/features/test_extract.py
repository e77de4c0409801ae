"""Extraction as a job: events, resume, options of a folder that exists, and damaged videos."""

import errno
import itertools
import json
import shutil
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from lstr.errors import ExhaustedError, OutputError, RecipeError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.files.atomic import leftovers
from lstr.files.content import append_jsonl, read_jsonl
from lstr.pipelines.failures import read_failures
from lstr.pipelines.features.extract import extract, plan
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, Plan
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import OutputFolder, create_output, read_record
from lstr.pipelines.progress import Failed, Finished, Notice, Progress, result_of
from lstr.pipelines.sampled_inputs import sampled_inputs
from tests.support.extraction import extract_all, features_in, prepare, return_value
from tests.support.finetuned import SMALL as DIS
from tests.support.injected import STAGES, inject, write_bad
from tests.support.small_set import SMALL
from tests.support.videos import remux, write_video


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(2, DIS.algorithm) as pool:
        yield pool


@pytest.fixture(scope="module")
def twostream():
    return build_twostream(DIS, WeightSources(), "cpu", "float32")


@pytest.fixture
def options(tmp_path) -> ExtractOptions:
    """RGB alone, which needs no flow."""
    recipe = SMALL.narrowed(["rgb"])
    return ExtractOptions(tmp_path / "features", device="cpu", threads=1, workers=1, recipe=recipe)


@pytest.fixture
def videos(small_set, tmp_path):
    (tmp_path / "bad.mp4").write_text("no video")
    return {"bad": tmp_path / "bad.mp4", "scene_00": small_set.videos / "scene_00.mp4"}


def test_events_in_their_order(videos, options):
    planned = plan(videos, options)
    assert not options.output.exists(), "a plan writes nothing"
    events = list(extract(videos, options))
    kinds = [Plan, OutputFolder, Notice, Failed, *[Progress] * 20, Outcome, Finished]
    assert [type(event) for event in events] == kinds
    assert events[0] == planned and [video.state for video in planned.videos] == ["unreadable", "to do"]
    assert events[1] == OutputFolder(options.output, open_features(options.output).recipe)
    assert events[3].id == "bad" and events[3].reason and events[3].hint
    assert events[4:24] == [Progress("scene_00", done, 20) for done in range(1, 21)]
    assert (events[24].id, events[24].state, events[24].chunks) == ("scene_00", "done", 20)
    summary = events[-1].result
    assert dict(summary.counts) == {"failed": 1, "done": 1} and [o.id for o in summary.failed] == ["bad"]
    assert dict(result_of(extract(videos, options)).counts) == {"failed": 1, "kept": 1}


def test_a_job_that_is_closed_ends_what_it_started(videos, options):
    events = extract(videos, options)
    assert next(event for event in events if isinstance(event, Progress)).what == "scene_00"
    events.close()
    names = {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert not {"reader", "networks", "batches", "looks"} & names
    assert open_features(options.output).ids() == [] and not leftovers(options.output)
    assert [failure["id"] for failure in read_failures(options.output)] == ["bad"]


@pytest.mark.parametrize("video_id", ["../../x", "/x/a", "a/../../b", "", 7, "x" * 300])
def test_an_id_is_the_name_of_a_file_inside_the_folder(small_set, options, video_id):
    with pytest.raises(OutputError) as caught:
        result_of(extract({video_id: small_set.videos / "scene_00.mp4"}, options))
    assert caught.value.hint and not options.output.exists()


@pytest.mark.parametrize("when", [Outcome, Progress], ids=["between videos", "within a video"])
def test_a_folder_that_is_deleted_meanwhile_ends_the_job(small_set, tmp_path, when):
    chosen = ExtractOptions(tmp_path / "features", device="cpu", recipe=PRESETS["difference"])
    with closing(extract(find_videos([small_set.videos]), chosen)) as job:
        next(event for event in job if isinstance(event, when))
        shutil.rmtree(tmp_path / "features")
        with pytest.raises(OutputError):
            list(job)


def test_a_folder_keeps_the_shape_of_its_first_videos(tmp_path):
    wide = write_video(tmp_path / "wide.mp4", range(0, 400, 20), (128, 72))
    tall = write_video(tmp_path / "tall.mp4", range(0, 400, 20), (72, 128))
    made = ExtractOptions(tmp_path / "features", recipe=PRESETS["grey"], device="cpu")
    assert prepare({"0": wide}, made, None)[1].recipe.grey.size == (97, 172)
    twostream, folder = prepare({"1": tall}, made, None)
    assert twostream.recipe.grey.size == folder.recipe.grey.size == (97, 172)
    other = replace(made, output=tmp_path / "others")
    assert prepare({"1": tall}, other, None)[1].recipe.grey.size == (172, 97)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"recipe": replace(SMALL, flow=replace(SMALL.flow, crops=10))}, "flow.crops"),
        ({"calibrate": None, "precision": "bf16"}, "precision"),
        ({"calibrate": "list.txt"}, "calibrated"),
    ],
)
def test_options_that_contradict_the_folder(small_set, workers, tmp_path, changes, value):
    made = {"device": "cpu", "recipe": SMALL, "calibrate": small_set.labels} | changes
    if made["calibrate"] == "list.txt":
        made["calibrate"] = tmp_path / "list.txt"
        made["calibrate"].write_text("scene_03\n")
    if open_features(small_set.features).recipe.precision == made.get("precision"):
        made["precision"] = "float32"
    with pytest.raises(RecipeError, match=value):
        prepare(find_videos([small_set.videos]), ExtractOptions(small_set.features, **made), workers)


@pytest.mark.long
def test_videos_at_once_are_as_each_alone(videos, small_set, workers, twostream, tmp_path):
    """To the byte, with seconds of their own, beside one that cannot be read."""
    videos["scene_01"] = small_set.videos / "scene_01.mp4"
    folders = [create_output(tmp_path / str(n), twostream.recipe, {}) for n in (1, 3)]
    one, three = (extract_all(videos, folder, twostream, workers, at_once=int(folder.path.name)) for folder in folders)
    assert sorted((o.id, o.state, o.chunks) for o in one) == sorted((o.id, o.state, o.chunks) for o in three)
    for video_id in ("scene_00", "scene_01"):
        for a, b in zip(features_in(folders[0], video_id), features_in(folders[1], video_id), strict=True):
            assert a.tobytes() == b.tobytes()
        seconds = read_record(folders[1].record(video_id))["seconds"]
        assert 0 < seconds["flow_network"] <= seconds["total"] * twostream.options.threads


def same_rows(one, other):
    for a, b in zip(one, other, strict=True):
        for stream, found in a.features.items():
            assert np.abs(found - b.features[stream]).max() <= 1e-5 * found.max()


@pytest.mark.long
def test_rows_do_not_depend_on_later_chunks(small_set, workers, twostream):
    def rows(n):
        chunks = open_chunks(small_set.videos / "scene_00.mp4", SMALL.long_side)[2]
        return list(twostream.rows((c for c in chunks if c.index < n), workers))

    whole, part = rows(20), rows(7)
    assert [r.index for r in whole] == list(range(20)) and [r.end_time for r in part] == [0.25 * k for k in range(1, 8)]
    same_rows(whole[:7], part)


def test_a_live_chunk_is_not_kept_waiting(small_set, workers, twostream):
    """Its row is out before the source has the next chunk; of a file, more are read first."""
    chunks = list(itertools.islice(open_chunks(small_set.videos / "scene_00.mp4", SMALL.long_side)[2], 3))
    rows, taken = [], threading.Semaphore(0)

    def live():
        for chunk in chunks:
            yield chunk
            assert taken.acquire(timeout=60), "the next chunk was waited for before this one's row was given"

    for row in twostream.rows(live(), workers, live=True):
        rows.append(row)
        taken.release()
    assert [row.index for row in rows] == [0, 1, 2]
    same_rows(rows, twostream.rows(chunks, workers))


@pytest.mark.long
def test_damaged_and_tiny_videos_fail_alone(lstr, small_set, shared, tmp_path):
    """Without a file, unless what precedes the damage is asked for; the record says what was kept."""
    data = remux(small_set.videos / "scene_00.mp4", tmp_path / "whole.mkv").read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) * 2 // 3])
    tiny = shared / "data" / "odd_videos" / "moviepy" / "bitmap.mp4"  # too small for DIS
    output = tmp_path / "features"
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'cut.mkv'}\n\n{tiny}\r\n")
    command = ["extract", "-o", output, "--recipe", small_set.recipe, "--set", "recipe.flow_algorithm=dis", "--json"]
    code, out, _ = lstr(*command, "--list", tmp_path / "list.txt")
    told = json.loads(out)
    assert code == 3 and {failure["id"] for failure in told["failures"]} == {"cut", "bitmap"} and told["done"] == 0
    assert not list(output.rglob("*.npy")) and not list(output.rglob("records/*"))
    code, out, err = lstr(*command, tmp_path / "cut.mkv", "--allow-damaged")
    told = json.loads(out)
    assert (told["done"], told["kept"], told["failed"]) == (1, 0, 0)
    assert set(told["stages"]) == {"decode", "flow", "rgb_network", "flow_network"}
    record = json.loads((output / "records" / "cut.json").read_text())
    assert code == 0 and f"{record['chunks']} of {record['announced_chunks']} chunks" in err
    assert 0 < told["chunks"] == record["chunks"] < 20 and record["decode_errors"] == 1
    assert told["realtime_factor"] == pytest.approx(told["chunks"] / 4 / told["seconds"], rel=0.02)
    assert record["frames_24fps"] == record["chunks"] * 6 + record["tail_frames_dropped"]
    assert [len(array) for array in open_features(output).load("cut")] == [record["chunks"]] * 2
    assert [failure["id"] for failure in read_failures(output)] == ["bitmap"]


@pytest.fixture(scope="module")
def bad_and_good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_bad(folder / "bad.mp4")
    write_video(folder / "good.mp4", range(0, 600, 20))
    return find_videos([folder])


@pytest.fixture
def extract_both(twostream, bad_and_good, workers, tmp_path):
    """Extract all videos; outcomes by id, and the folder."""
    folder = create_output(tmp_path / "features", twostream.recipe, {})

    def run(at_once=1):
        outcomes = extract_all(bad_and_good, folder, twostream, workers, at_once=at_once)
        return {outcome.id: outcome for outcome in outcomes}, folder

    return run


@pytest.mark.parametrize("stage", STAGES)
def test_an_unforeseen_error_at_any_stage_is_one_videos_failure(extract_both, bad_and_good, monkeypatch, stage):
    with monkeypatch.context() as patch:
        inject(patch.setattr, stage, AttributeError("'NoneType' object has no attribute 'width'\nand more"))
        outcomes, folder = extract_both()
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}
    bad, log = outcomes["bad"], folder.path / "logs" / "bad.log"
    assert "AttributeError" in bad.reason and "\n" not in bad.reason
    assert str(bad_and_good["bad"]) in bad.reason and str(log) in bad.hint
    assert log.read_text().startswith("Traceback")
    (line,) = read_jsonl(folder.path / "failed.jsonl")
    assert line == {"id": "bad", "source": str(bad_and_good["bad"]), "reason": bad.reason, "log": "logs/bad.log"}
    assert open_features(folder.path).ids() == ["good"]
    if stage == "decode":  # the next run, without the error, removes the failure
        assert {o.state for o in extract_both()[0].values()} == {"kept", "done"}
        assert not log.exists() and (folder.path / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_a_disk_of_the_source_that_fails_is_no_lost_output(extract_both, monkeypatch):
    inject(monkeypatch.setattr, "decode", OSError(errno.EIO, "Input/output error"))
    outcomes, _ = extract_both()
    assert {i: outcome.state for i, outcome in outcomes.items()} == {"bad": "failed", "good": "done"}


@pytest.mark.parametrize(
    ("stage", "error", "raised"),
    [
        ("write", OSError(errno.ENOSPC, "No space left on device"), OutputError),
        ("decode", OSError(errno.ENOSPC, "No space left on device"), OutputError),
        ("flow", MemoryError(), ExhaustedError),
        ("network", RuntimeError("CUDA error: an illegal memory access was encountered"), ExhaustedError),
        ("decode", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_full_disk_or_memory_ends_the_run(extract_both, monkeypatch, stage, error, raised):
    """With several videos at once too, and none of its threads is left."""
    inject(monkeypatch.setattr, stage, error)
    with pytest.raises(raised) as caught:
        extract_both(at_once=2)
    assert raised is KeyboardInterrupt or (caught.value.hint and "\n" not in str(caught.value))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("merged")]


def test_a_codec_that_ffmpeg_does_not_know(bad_and_good, twostream, workers, tmp_path):
    """A Dolby Vision AV1 file: its video stream has no decoder, which PyAV gives as None."""
    content = shutil.copy(bad_and_good["good"], tmp_path / "dolby.mp4").read_bytes()
    at = content.index(b"avc1", content.index(b"stsd"))
    (tmp_path / "dolby.mp4").write_bytes(content[:at] + b"dav1" + content[at + 4 :])
    folder = create_output(tmp_path / "features", twostream.recipe, {})
    both = {"dolby": tmp_path / "dolby.mp4", "good": bad_and_good["good"]}
    outcomes = extract_all(both, folder, twostream, workers)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"] and outcomes[0].hint
    assert not (folder.path / "logs").exists(), "an expected error needs no traceback"


@pytest.mark.long
def test_calibration_skips_it(bad_and_good, workers, monkeypatch):
    twostream = build_twostream(DIS.narrowed(("flow",)), WeightSources(), "cpu", "float32")
    inject(monkeypatch.setattr, "flow", KeyError("codec"))
    images = return_value(sampled_inputs(twostream, bad_and_good, workers, 8, "calibration"))
    assert 0 < len(images["flow"]) < 8


def test_garbage_in_failed_jsonl_is_no_obstacle(extract_both):
    _, folder = extract_both()
    path = folder.path / "failed.jsonl"
    lines = ['{"id": 7}', "[1]", '"x"', "null", "{", "9" * 5000, '{"id": "gone", "reason": "it was"}', "[" * 10**5]
    path.write_bytes("\n".join(lines).encode() + b'\n\xff\n{"id": "cut by a ki')
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone"]
    append_jsonl(path, {"id": "ü \udcff", "reason": "it broke"})
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone", "ü \udcff"]
    assert {outcome.state for outcome in extract_both()[0].values()} == {"kept"}
    assert json.loads(path.read_text().splitlines()[0]) == {"id": "gone", "reason": "it was"}
