"""Extraction as a job: resume, failures, interruption, plans."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from lstr.errors import ExhaustedError, MissingPathError, OutputError, RecipeError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.inputs import find_videos
from lstr.extractors.video.reader import open_chunks
from lstr.pipelines.features.extract import extract
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.features.output_folder import create_output, open_output, read_record
from lstr.pipelines.features.video import training_ids
from lstr.pipelines.progress import Progress
from tests.support.extraction import extracted, features_in, prepared
from tests.support.processes import heed_interrupts
from tests.support.small_set import SMALL
from tests.support.videos import remux, write_video

SHAPES = ((128, 72), (72, 128))


@pytest.fixture(scope="module")
def workers():
    with FlowWorkers(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def twostream():
    return build_twostream(SMALL, WeightSources(), "cpu", "float32")


def options(small_set, **changed) -> ExtractOptions:
    """Those that the small set was extracted with, but for what is changed."""
    made = {"device": "cpu", "recipe": SMALL, "calibrate": small_set.labels}
    return ExtractOptions(small_set.features, **(made | changed))


def test_running_again_keeps_what_is_done(small_set, workers):
    videos = find_videos([small_set.videos])
    twostream, folder = prepared(videos, options(small_set), workers)
    before = {p: p.stat().st_mtime_ns for p in folder.path.rglob("*.npy")}
    assert {o.state for o in extracted(videos, folder, twostream, workers)} == {"kept"}
    assert before == {p: p.stat().st_mtime_ns for p in folder.path.rglob("*.npy")}


def test_a_folder_keeps_the_shape_of_the_videos_it_was_begun_with(tmp_path):
    wide, tall = (write_video(tmp_path / f"{n}.mp4", range(0, 400, 20), size) for n, size in enumerate(SHAPES))
    made = ExtractOptions(tmp_path / "features", recipe=PRESETS["grey"], device="cpu")
    assert prepared({"0": wide}, made, None)[1].recipe.grey.size == (97, 172)
    twostream, folder = prepared({"1": tall}, made, None)
    assert twostream.recipe.grey.size == folder.recipe.grey.size == (97, 172)
    other = replace(made, output=tmp_path / "others")
    assert prepared({"1": tall}, other, None)[1].recipe.grey.size == (172, 97)


def test_a_video_that_changed_is_to_be_done_again(small_set, tmp_path):
    folder, source = open_output(small_set.features), small_set.videos / "scene_00.mp4"
    copy = Path(shutil.copy2(source, tmp_path))
    assert folder.find_record("scene_00", source) and folder.find_record("scene_00", copy)
    os.utime(copy, (1, 1))
    assert not folder.find_record("scene_00", copy)


@pytest.mark.long
def test_videos_at_once_are_as_each_alone(small_set, workers, twostream, tmp_path, monkeypatch):
    """To the byte, with seconds of their own, beside one that cannot be read; what stops all stops all."""
    videos = dict(list(find_videos([small_set.videos]).items())[:2])
    (tmp_path / "bad.mp4").write_text("no video")
    folders = [create_output(tmp_path / str(n), twostream.recipe, {}) for n in range(3)]
    one, three = (
        extracted(videos | {"bad": tmp_path / "bad.mp4"}, folder, twostream, workers, at_once=n)
        for folder, n in zip(folders, (1, 3), strict=False)
    )
    assert sorted((o.id, o.state, o.chunks) for o in one) == sorted((o.id, o.state, o.chunks) for o in three)
    for video_id in videos:
        for a, b in zip(features_in(folders[0], video_id), features_in(folders[1], video_id), strict=True):
            assert a.tobytes() == b.tobytes()
        seconds = read_record(folders[1].record(video_id))["seconds"]
        assert 0 < seconds["flow_network"] <= seconds["total"] * twostream.options.threads
    monkeypatch.setattr(twostream, "_batch", Mock(side_effect=MemoryError("no room")))
    with pytest.raises(ExhaustedError, match="Memory ran out"):
        extracted(videos, folders[2], twostream, workers, at_once=3)
    assert not open_features(folders[2].path).ids() and not [
        t for t in threading.enumerate() if t.name.startswith("merged")
    ]


@pytest.mark.parametrize("when", [Outcome, Progress], ids=["between videos", "within a video"])
def test_a_folder_that_is_deleted_meanwhile_ends_all(small_set, tmp_path, when):
    """What was done went with it, and was told as done."""
    chosen = ExtractOptions(tmp_path / "features", device="cpu", recipe=PRESETS["difference"])
    with closing(extract(find_videos([small_set.videos]), chosen)) as job:
        next(event for event in job if isinstance(event, when))
        shutil.rmtree(tmp_path / "features")
        with pytest.raises(OutputError, match=r"features/?\S* cannot be written .(it was deleted|No such file)"):
            list(job)


@pytest.mark.long
def test_rows_do_not_depend_on_later_chunks(small_set, workers, twostream):
    path = small_set.videos / "scene_00.mp4"

    def rows(n):
        chunks = open_chunks(path, SMALL.long_side)[2]
        return list(twostream.rows((c for c in chunks if c.index < n), workers))

    whole, part = rows(20), rows(7)
    assert [r.index for r in whole] == list(range(20)) and [r.end_time for r in part] == [0.25 * k for k in range(1, 8)]
    for a, b in zip(whole, part, strict=False):
        for stream, found in a.features.items():
            assert np.abs(found - b.features[stream]).max() <= 1e-5 * found.max()


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
    for a, b in zip(rows, twostream.rows(chunks, workers), strict=True):
        for stream, found in a.features.items():
            assert np.abs(found - b.features[stream]).max() <= 1e-5 * found.max()


def test_calibration_lists(small_set, tmp_path):
    videos = find_videos([small_set.videos])
    assert training_ids(small_set.labels, videos) == ["scene_00", "scene_01", "scene_02"]
    listed = tmp_path / "list.txt"
    listed.write_text(f"scene_03\n\n{small_set.videos / 'scene_01.mp4'}\n")
    assert training_ids(listed, videos) == ["scene_01", "scene_03"]
    listed.write_text("other\n")
    with pytest.raises(MissingPathError, match="names none"):
        training_ids(listed, videos)


def test_options_that_contradict_the_folder(small_set, workers, tmp_path):
    videos = find_videos([small_set.videos])
    crops = replace(SMALL, flow=replace(SMALL.flow, crops=10))
    with pytest.raises(RecipeError, match="flow.crops"):
        prepared(videos, options(small_set, recipe=crops), workers)
    begun = open_features(small_set.features).recipe.precision
    other = next(precision for precision in ("float32", "bf16") if precision != begun)
    with pytest.raises(RecipeError, match="precision"):
        prepared(videos, options(small_set, calibrate=None, precision=other), workers)
    listed = tmp_path / "list.txt"
    listed.write_text("scene_03\n")
    with pytest.raises(RecipeError, match="calibrated on other videos"):
        prepared(videos, options(small_set, calibrate=listed), workers)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_interruption_keeps_what_is_finished(small_set, tmp_path, sent):
    """A real signal after the first video: nothing half-written that counts, and the rest on a rerun.

    No worker outlives the run, not even where nobody could tell it to end.
    """
    output = tmp_path / "features"
    command = [sys.executable, "-m", "lstr_cli.main", "extract", str(small_set.videos), "-o", str(output)]
    command += ["--recipe", "fast", "--workers", "2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heed_interrupts
    )
    deadline = time.monotonic() + 120
    while not (output / "records" / "scene_00.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    # Ctrl-C reaches the whole process group, a kill only the process
    os.killpg(process.pid, sent) if sent == signal.SIGINT else process.send_signal(sent)
    _, err = process.communicate(timeout=120)  # until the last worker has closed it too
    while of_session(process.pid) and time.monotonic() < deadline + 120:
        time.sleep(0.02)
    assert not of_session(process.pid)
    if sent == signal.SIGINT:
        assert process.returncode == 130 and "error: Interrupted." in err and "Traceback" not in err
        assert not list(output.rglob(".*.tmp-*"))
    folder = open_features(output)
    done = folder.ids()
    assert "scene_00" in done and len(done) < 4
    assert all(len(folder.load(i)[0]) == 20 for i in done)
    if sent == signal.SIGINT:
        return
    again = subprocess.run([*command[:-1], "1"], capture_output=True, text=True, timeout=240)
    assert again.returncode == 0, again.stderr
    assert f"{4 - len(done)} done, {len(done)} kept, 0 failed" in again.stderr
    assert len(open_features(output).ids()) == 4


def of_session(session: int) -> list[str]:
    """The processes of a session that are still there, but for those that are dead and not yet buried."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of, *_ = path.read_text().rpartition(")")[2].split()
            stats += [path.parent.name] if int(of) == session and state != "Z" else []
    return stats


@pytest.mark.long
def test_damaged_videos(lstr, small_set, tmp_path):
    """Failed, without a file, unless what precedes the damage is asked for; the record says what was kept."""
    data = remux(small_set.videos / "scene_00.mp4", tmp_path / "whole.mkv").read_bytes()
    (tmp_path / "cut.mkv").write_bytes(data[: len(data) * 2 // 3])
    output = tmp_path / "features"
    command = [
        "extract",
        tmp_path / "cut.mkv",
        "-o",
        output,
        "--recipe",
        small_set.recipe,
        "--set",
        "recipe.flow_algorithm=dis",
    ]
    code, _, err = lstr(*command)
    assert code == 3 and "cut.mkv is damaged" in err and "--allow-damaged" in err
    assert not list(output.rglob("*.npy")) and not list(output.rglob("records/*"))
    code, _, err = lstr(*command, "--allow-damaged")
    record = json.loads((output / "records" / "cut.json").read_text())
    assert code == 0 and f"damaged: {record['chunks']} of {record['announced_chunks']} chunks were kept" in err
    assert 0 < record["chunks"] < 20 and record["decode_errors"] == 1
    assert record["frames_24fps"] == record["chunks"] * 6 + record["tail_frames_dropped"]
    assert [len(array) for array in open_features(output).load("cut")] == [record["chunks"]] * 2
    assert (output / "failed.jsonl").read_text() == ""


def test_a_video_too_small_for_dis_fails_alone(lstr, small_set, shared, tmp_path):
    tiny = shared / "data" / "odd_videos" / "moviepy" / "bitmap.mp4"
    videos = [tiny, small_set.videos / "scene_00.mp4"]
    code, _, err = lstr(
        "extract",
        *videos,
        "-o",
        tmp_path / "features",
        "--recipe",
        small_set.recipe,
        "--set",
        "recipe.flow_algorithm=dis",
    )
    assert code == 3 and "too small for DIS flow" in err and "1 done" in err
