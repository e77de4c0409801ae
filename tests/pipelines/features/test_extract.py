"""The extraction job: plan, events, resumed runs, contradicting options, damaged videos, and unexpected errors."""

import errno
import json
import shutil
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lstr.errors import ExhaustedError, OutputError, RecipeError
from lstr.extractors.flow import workers as flow
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import find_videos
from lstr.files.atomic import leftovers
from lstr.files.content import append_jsonl, read_jsonl
from lstr.pipelines.failures import read_failures
from lstr.pipelines.features import extraction
from lstr.pipelines.features.extract import extract, plan
from lstr.pipelines.features.extraction import PROCESS_MEMORY_BYTES as MEMORY
from lstr.pipelines.features.extraction import ExtractOptions, Outcome, Plan, free_memory, make_plan, share
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import OutputFolder, create_output
from lstr.pipelines.features.video import new_networks, resume_networks, sampled_inputs
from lstr.pipelines.progress import Failed, Finished, Notice, Progress, result_of
from tests.support.extraction import assert_same_features, extract_all, return_value
from tests.support.finetuned import SMALL as DIS
from tests.support.injected import inject, write_bad
from tests.support.small_set import DIMS, SMALL
from tests.support.videos import remux, write_video


def prepare(videos, options, flow):
    """Return the networks and the folder of a resumed or new extraction."""
    return resume_networks(videos, options) or return_value(new_networks(videos, options, flow))


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(2, DIS.algorithm) as pool:
        yield pool


@pytest.fixture(scope="module")
def twostream():
    return build_twostream(DIS, WeightSources(), "cpu", "float32")


@pytest.fixture
def folder(twostream, tmp_path):
    return create_output(tmp_path / "features", twostream.recipe, {})


@pytest.fixture
def options(tmp_path) -> ExtractOptions:
    """Options for RGB features, which need no flow."""
    recipe = SMALL.narrowed(["rgb"])
    return ExtractOptions(tmp_path / "features", device="cpu", threads=1, workers=1, recipe=recipe)


@pytest.fixture
def videos(small_set, tmp_path):
    (tmp_path / "bad.mp4").write_text("not a video")
    return {"bad": tmp_path / "bad.mp4", "scene_00": small_set.videos / "scene_00.mp4"}


def test_events_have_a_fixed_order(videos, options):
    planned = plan(videos, options)
    assert not options.output.exists(), "a plan writes nothing"
    assert (planned.row_bytes, planned.rate) == (4 * DIMS[0], None), "no finished videos"
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


def test_a_closed_job_ends_its_threads(videos, options):
    events = extract(videos, options)
    assert next(event for event in events if isinstance(event, Progress)).what == "scene_00"
    events.close()
    names = {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert not {"reader", "networks", "batches", "looks"} & names
    assert open_features(options.output).ids() == [] and not leftovers(options.output)
    assert [failure["id"] for failure in read_failures(options.output)] == ["bad"]


@pytest.mark.parametrize("video_id", ["../../x", "/x/a", "a/../../b", "", 7, "x" * 300])
def test_an_id_that_is_not_a_file_name_is_refused(small_set, options, video_id):
    with pytest.raises(OutputError):
        result_of(extract({video_id: small_set.videos / "scene_00.mp4"}, options))
    assert not options.output.exists()


@pytest.mark.parametrize("event_type", [Outcome, Progress], ids=["between videos", "within a video"])
def test_a_deleted_output_folder_ends_the_job(small_set, options, event_type):
    with closing(extract(find_videos([small_set.videos]), options)) as job:
        next(event for event in job if isinstance(event, event_type))
        shutil.rmtree(options.output)
        with pytest.raises(OutputError):
            list(job)


def test_the_first_videos_determine_the_shape_of_the_frames(tmp_path):
    wide = write_video(tmp_path / "wide.mp4", range(0, 400, 20), (128, 72))
    tall = write_video(tmp_path / "tall.mp4", range(0, 400, 20), (72, 128))
    options = ExtractOptions(tmp_path / "features", recipe=PRESETS["grey"], device="cpu")
    assert prepare({"0": wide}, options, None)[1].recipe.grey.size == (97, 172)
    twostream, folder = prepare({"1": tall}, options, None)
    assert twostream.recipe.grey.size == folder.recipe.grey.size == (97, 172)
    options = replace(options, output=tmp_path / "new")
    assert prepare({"1": tall}, options, None)[1].recipe.grey.size == (172, 97)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"recipe": replace(SMALL, flow=replace(SMALL.flow, crops=10))}, "flow.crops"),
        ({"calibrate": None, "precision": "bf16"}, "precision"),
        ({"calibrate": None, "precision": "float32"}, "precision"),
        ({"calibrate": Path("list.csv")}, "calibrated"),
    ],
)
def test_options_that_contradict_the_folder_are_refused(small_set, workers, tmp_path, monkeypatch, changes, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("video,start,end,label\nscene_03,0,1,walk\n")
    if open_features(small_set.features).recipe.precision == changes.get("precision"):
        pytest.skip("the precision of this machine")
    options = {"device": "cpu", "recipe": SMALL, "calibrate": small_set.labels} | changes
    with pytest.raises(RecipeError, match=value):
        prepare(find_videos([small_set.videos]), ExtractOptions(small_set.features, **options), workers)


@pytest.mark.long
def test_features_do_not_depend_on_the_number_of_videos_at_once(videos, small_set, workers, twostream, tmp_path):
    videos["scene_01"] = small_set.videos / "scene_01.mp4"
    folders = {n: create_output(tmp_path / str(n), twostream.recipe, {}) for n in (1, 3)}
    outcomes = [extract_all(videos, folder, twostream, workers, at_once=n) for n, folder in folders.items()]
    assert len({tuple(sorted((o.id, o.state, o.chunks) for o in run)) for run in outcomes}) == 1
    for video_id in ("scene_00", "scene_01"):
        assert_same_features(folders[1], folders[3], video_id)
        seconds = open_features(folders[3].path).read_record(video_id)["seconds"]
        assert 0 < seconds["flow_network"] <= seconds["total"] * twostream.options.threads


@pytest.mark.long
def test_a_damaged_video_has_no_features_unless_allowed(lstr, small_set, shared, tmp_path):
    data = remux(small_set.videos / "scene_00.mp4", tmp_path / "whole.mkv").read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) * 2 // 3])
    tiny = shared / "data" / "odd_videos" / "moviepy" / "bitmap.mp4"  # too small for DIS
    output = tmp_path / "features"
    (tmp_path / "list.txt").write_text(f"{tmp_path / 'cut.mkv'}\n\n{tiny}\r\n")
    command = ["extract", "-o", output, "--recipe", small_set.recipe, "--set", "recipe.flow_algorithm=dis", "--json"]
    code, out, _ = lstr(*command, "--list", tmp_path / "list.txt")
    summary = json.loads(out)
    assert code == 3 and {failure["id"] for failure in summary["failures"]} == {"cut", "bitmap"}
    assert summary["done"] == 0 and not list(output.rglob("*.npy")) and not list(output.rglob("records/*"))
    code, out, err = lstr(*command, tmp_path / "cut.mkv", "--allow-damaged")
    summary = json.loads(out)
    assert (summary["done"], summary["kept"], summary["failed"]) == (1, 0, 0)
    assert set(summary["stages"]) == {"decode", "flow", "rgb_network", "flow_network"}
    record = json.loads((output / "records" / "cut.json").read_text())
    assert code == 0 and f"{record['chunks']} of {record['announced_chunks']} chunks" in err
    assert 0 < summary["chunks"] == record["chunks"] < 20 and record["decode_errors"] == 1
    assert summary["realtime_factor"] == pytest.approx(summary["chunks"] / 4 / summary["seconds"], rel=0.02)
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
def extract_both(twostream, bad_and_good, workers, folder):
    """Extract both videos, and return the state of each."""

    def run(at_once=1):
        outcomes = extract_all(bad_and_good, folder, twostream, workers, at_once=at_once)
        return {outcome.id: outcome.state for outcome in outcomes}

    return run


@pytest.mark.parametrize("stage", ["probe", "decode", "flow", "network", "write"])
def test_an_unexpected_error_fails_only_its_video(extract_both, folder, bad_and_good, monkeypatch, stage):
    with monkeypatch.context() as patch:
        inject(patch.setattr, stage, AttributeError("'NoneType' object has no attribute 'width'\nand more"))
        assert extract_both() == {"bad": "failed", "good": "done"}
    (failure,) = read_jsonl(folder.path / "failed.jsonl")
    reason, log = failure.pop("reason"), folder.path / "logs" / "bad.log"
    assert failure == {"id": "bad", "source": str(bad_and_good["bad"]), "log": "logs/bad.log"}
    assert "AttributeError" in reason and "\n" not in reason and str(bad_and_good["bad"]) in reason
    assert log.read_text().startswith("Traceback") and open_features(folder.path).ids() == ["good"]
    if stage == "decode":  # the next run, without the error, removes the failure
        assert set(extract_both().values()) == {"kept", "done"}
        assert not log.exists() and (folder.path / "failed.jsonl").read_text() == ""


@pytest.mark.long
def test_an_unreadable_source_does_not_end_the_run(extract_both, monkeypatch):
    inject(monkeypatch.setattr, "decode", OSError(errno.EIO, "Input/output error"))
    assert extract_both() == {"bad": "failed", "good": "done"}


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
def test_a_full_disk_or_memory_ends_the_run_and_its_threads(extract_both, monkeypatch, stage, error, raised):
    inject(monkeypatch.setattr, stage, error)
    with pytest.raises(raised) as caught:
        extract_both(at_once=2)
    assert raised is KeyboardInterrupt or (caught.value.hint and "\n" not in str(caught.value))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("merged")]


def test_an_unknown_codec_fails_the_video(bad_and_good, twostream, workers, folder, tmp_path):
    """As in a Dolby Vision AV1 file; PyAV reports its codec as None."""
    content = bad_and_good["good"].read_bytes()
    at = content.index(b"avc1", content.index(b"stsd"))
    (tmp_path / "dolby.mp4").write_bytes(content[:at] + b"dav1" + content[at + 4 :])
    sources = {"dolby": tmp_path / "dolby.mp4", "good": bad_and_good["good"]}
    outcomes = extract_all(sources, folder, twostream, workers)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"] and outcomes[0].hint
    assert not (folder.path / "logs").exists(), "an expected error needs no traceback"


@pytest.mark.long
def test_calibration_skips_videos_with_errors(bad_and_good, workers, monkeypatch):
    twostream = build_twostream(DIS.narrowed(("flow",)), WeightSources(), "cpu", "float32")
    inject(monkeypatch.setattr, "flow", KeyError("codec"))
    images = return_value(sampled_inputs(twostream, bad_and_good, workers, 8))
    assert 0 < len(images["flow"]) < 8


def test_invalid_lines_in_failed_jsonl_are_ignored(extract_both, folder):
    path, failure = folder.path / "failed.jsonl", {"id": "gone", "reason": "it was"}
    lines = ['{"id": 7}', "[1]", '"x"', "null", "{", "9" * 5000, json.dumps(failure), "[" * 10**5]
    path.write_bytes("\n".join(lines).encode() + b'\n\xff\n{"id": "cut by a ki')
    append_jsonl(path, {"id": "ü \udcff", "reason": "it broke"})
    assert [failure["id"] for failure in read_failures(folder.path)] == ["gone", "ü \udcff"]
    assert set(extract_both().values()) == {"done"}
    assert json.loads(path.read_text().splitlines()[0]) == failure


PLENTY = 2**40  # bytes


def test_a_plan_counts_finished_and_remaining_videos(lstr, small_set, tmp_path):
    """Of five videos one is new, one failed before, one failed and is done now, one is unreadable."""
    videos, features = tmp_path / "videos", tmp_path / "features"
    shutil.copytree(small_set.videos, videos)
    shutil.copytree(small_set.features, features)
    (videos / "bad.mp4").write_text("not a video")
    for video_id in ("scene_00", "scene_01"):
        (features / "records" / f"{video_id}.json").unlink()
    for video_id in ("scene_01", "scene_02"):
        append_jsonl(features / "failed.jsonl", {"id": video_id, "source": "x", "reason": "it was damaged"})
    before = sorted(features.rglob("*"))
    plan = make_plan(find_videos([videos]), ExtractOptions(features, recipe=SMALL), "cpu", lambda n: (2, n))
    states = {"bad": "unreadable", "scene_00": "to do", "scene_01": "to do", "scene_02": "done", "scene_03": "done"}
    assert {video.id: video.state for video in plan.videos} == states
    counts = plan.to_dict()
    assert counts["hours"] == 20 / 3600 and counts["hours_to_do"] == 10 / 3600 and counts["chunks_to_do"] == 40
    assert 40 * 4 * sum(DIMS) < counts["bytes"] < 41 * 4 * sum(DIMS) < counts["free_bytes"]
    records = [open_features(features).read_record(video_id) for video_id in ("scene_02", "scene_03")]
    seconds = sum(record["seconds"]["total"] * record["threads"] for record in records)
    assert counts["seconds"] == pytest.approx(seconds / 6)
    expected = {"files": 5, "done": 2, "to_do": 2, "unreadable": 1, "failed_before": 1, "processes": 2, "threads": 3}
    assert counts.items() >= expected.items()
    code, out, err = lstr("extract", videos, "-o", features, "--recipe", small_set.recipe, "--dry-run")
    assert code == 0 and err == "" and all(video_id in out for video_id in states)
    assert sorted(features.rglob("*")) == before


@pytest.mark.parametrize(
    ("cores", "gpus", "memory", "n_videos", "options", "expected"),
    [
        (2, 0, PLENTY, 100, {}, (1, 2)),  # two processes of one thread were no faster, and take twice the memory
        (16, 0, PLENTY, 100, {}, (4, 4)),
        (16, 0, PLENTY, 2, {}, (2, 8)),
        (16, 0, 3 * MEMORY, 100, {}, (3, 5)),
        (64, 0, MEMORY // 2, 100, {}, (1, 64)),
        (16, 1, PLENTY, 100, {}, (1, 16)),
        (16, 8, PLENTY, 1000, {}, (8, 2)),
        (4, 8, PLENTY, 1000, {}, (4, 1)),
        (16, 0, PLENTY, 100, {"processes": 8}, (8, 2)),
        (16, 0, PLENTY, 100, {"threads": 1}, (16, 1)),
        (16, 0, PLENTY, 100, {"processes": 2, "threads": 3}, (2, 3)),
    ],
)
def test_processes_and_threads_fit_the_machine(cores, gpus, memory, n_videos, options, expected):
    assert share(n_videos, cores, gpus, memory, **options) == expected


def test_cores_and_memory_are_limited_by_a_container(monkeypatch, tmp_path):
    cores, free = flow.default_workers(), free_memory()
    quota, limit = tmp_path / "cpu.max", tmp_path / "memory.max"
    monkeypatch.setattr(flow, "CPU_QUOTA", quota)
    monkeypatch.setattr(extraction, "MEMORY_LIMIT", limit)
    quota.write_text("max 100000\n")
    limit.write_text("max\n")
    assert flow.default_workers() >= cores and free_memory() > free / 2
    quota.write_text("50000 100000\n")
    limit.write_text("1000000\n")
    assert (flow.default_workers(), free_memory()) == (1, 1000000)
    limit.unlink()
    monkeypatch.setattr(extraction, "MEMORY_INFO", tmp_path / "missing")  # as on macOS: all memory counts as free
    assert free < free_memory() < 2**50
