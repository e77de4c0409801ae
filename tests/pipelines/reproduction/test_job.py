"""The job of reproducing: seeds, going on after an end anywhere, and what the command says."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lstr import reproduce as lstr_call
from lstr.errors import ConfigError, LabelsError
from lstr.pipelines.progress import Finished, result_of
from lstr.pipelines.reproduction.job import Doing, Planned, plan, reproduce
from lstr.pipelines.reproduction.options import ReproduceOptions
from lstr.pipelines.reproduction.plan import BEST, LAST, PUBLISHED, STANDARD
from tests.support.mistakes import mistake
from tests.support.synthetic_set import TESTING, write_synthetic

TINY = {
    **{"model.d_model": "16", "model.d_feedforward": "16", "model.work_length": "16"},
    **{"train.max_steps": "6", "train.log_every": "1", "train.save_seconds": "0"},
}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("synthetic"), 24, 8, 64)


@pytest.fixture
def options(synthetic, tmp_path) -> ReproduceOptions:
    return ReproduceOptions("miniroad", [synthetic], output=tmp_path / "out", seeds=2, settings=TINY)


def test_a_dry_run_writes_nothing(options, tmp_path):
    *_, planned, finished = plan(options)
    assert isinstance(planned, Planned) and isinstance(finished, Finished) and not list(tmp_path.iterdir())
    found = finished.result
    assert (found.preset, found.seeds, found.steps) == ("miniroad-thumos14", (0, 1), 6)
    assert found.weights == (BEST, LAST) and found.train.eval_every == 1, "as published"
    assert "train.eval_every" not in found.changed and found.seconds(2) == 2 * found.seconds(1) > 0
    assert json.loads(json.dumps(found.to_dict()))["rows"][0]["published"] == 71.8


@pytest.mark.long
def test_it_goes_on_where_it_was_and_with_more_seeds(options, tmp_path):
    whole = result_of(reproduce(options))
    assert whole.document["finished"] and not whole.document["comparable"]
    stopped = replace(options, output=tmp_path / "stopped", seeds=1)
    job = reproduce(stopped)
    for event in job:
        if isinstance(event, Doing) and event.done == 3:
            break
    job.close()
    assert (tmp_path / "stopped" / "seed-0" / "resume.pt").exists()
    one = result_of(reproduce(stopped))
    events = []
    two = result_of(reproduce(replace(stopped, seeds=2)), events.append)
    assert {event.seed for event in events if isinstance(event, Doing)} == {1}, "the first is not trained again"
    for found, seeds in ((one, 1), (two, 2)):
        values = [line.values for line in whole.lines]
        assert [[*line.values] for line in found.lines] == [[*value][:seeds] for value in values]
    left = [event.left for event in events if isinstance(event, Doing)]
    assert left[-1] < left[0] and min(left) >= 0
    again = []
    call = lstr_call("miniroad", stopped.features, stopped.output, show=again.append, seeds=2, settings=TINY)
    assert call.verdicts == two.verdicts and call.path == tmp_path / "stopped" / "reproduce.json"
    assert not [event for event in again if isinstance(event, Doing)]
    (told,) = [event for event in again if isinstance(event, Planned)]
    assert told.finished == (0, 1) and told.plan.pace is None


@pytest.mark.long
def test_a_folder_of_other_settings_or_data_is_refused(options, synthetic, tmp_path):
    result_of(reproduce(replace(options, seeds=1)))
    for job in (reproduce, plan):
        with pytest.raises(ConfigError, match="train.max_steps was 6, is 7"):
            list(job(replace(options, settings={**TINY, "train.max_steps": "7"})))
    other = shutil.copytree(synthetic.parent, tmp_path / "data") / "THUMOS"
    (other / "synthetic.json").unlink()
    with pytest.raises(ConfigError, match="not as published: another"):
        list(reproduce(replace(options, features=[other], seeds=1)))
    shorter = other / "target_perframe" / f"{TESTING[0]}.npy"
    np.save(shorter, np.roll(np.load(shorter), 3, axis=0))
    with pytest.raises(ConfigError, match="testing: another"):
        list(reproduce(replace(options, features=[other], seeds=1)))
    for text in ("[]", "{}", "no JSON"):
        (options.output / "config.json").write_text(text)
        with pytest.raises(ConfigError, match="no file of a reproduction"):
            list(reproduce(options))


@pytest.mark.long
def test_both_protocols_where_they_differ(synthetic, tmp_path):
    """OadTR's code scores whole windows alone, and takes the ambiguous class out of its softmax."""
    settings = {**TINY, "model.n_heads": "2", "model.decoder_heads": "2", "model.decoder_feedforward": "16"}
    settings |= {"model.l_enc": "1", "model.l_dec": "1", "train.max_steps": "1"}
    options = ReproduceOptions("oadtr", [synthetic], output=tmp_path / "out", seeds=1, settings=settings)
    found = result_of(reproduce(options))
    assert found.plan.protocols == (PUBLISHED, STANDARD) and found.plan.weights == (LAST,)
    scores = found.results[0]["scores"][LAST]
    assert scores[PUBLISHED]["chunks"] < scores[STANDARD]["chunks"]
    assert [line.protocol for line in found.lines] == [PUBLISHED, STANDARD]


def test_missing_features_end_it_unless_they_are_allowed(synthetic, tmp_path):
    data = shutil.copytree(synthetic.parent, tmp_path / "data")
    for path in (data / "THUMOS").glob(f"*_*/{TESTING[0]}.npy"):
        path.unlink() if path.parent.name != "target_perframe" else None
    options = ReproduceOptions("rnn", [data / "THUMOS"], output=tmp_path / "out", settings=TINY)
    with pytest.raises(LabelsError, match=TESTING[0]):
        list(plan(options))
    found = result_of(plan(replace(options, skip_missing=True)))
    (videos,) = [one for one in found.data if one.what == "testing videos"]
    assert videos.here.startswith(f"1, without 212: {TESTING[0]}")


def test_other_data_are_no_row(feature_set, tmp_path):
    """Labels of other classes: what is trained is told, and the row is THUMOS'14's."""
    options = ReproduceOptions("miniroad", [feature_set.features], output=tmp_path / "out", settings=TINY)
    found = result_of(plan(options))
    assert [one.what for one in found.data] == ["data set"] and found.rows[0].published == 71.8
    assert "data set: another, by its classes; published: THUMOS'14" in found.rows[0].reasons


def test_a_row_compares_where_all_is_as_published(synthetic, tmp_path, monkeypatch):
    """By the real data set alone, which no test has: here nothing is said of the videos, and the width is published."""
    from lstr.pipelines.reproduction import plan as planning

    monkeypatch.setattr(planning, "differences", lambda *_: iter(()))
    data = shutil.copytree(synthetic, tmp_path / "THUMOS")
    for name, width in (("rgb_kinetics_resnet50", 2048), ("flow_kinetics_bninception", 1024)):
        for path in (data / name).glob("*.npy"):
            np.save(path, np.zeros((64, width), np.float32))
    labels = synthetic.parent / "data_info.json"
    options = ReproduceOptions("miniroad", [data], labels=labels, output=tmp_path / "out", device="cpu")
    (row,) = result_of(planning_only(options)).rows
    assert row.reasons == ()


def planning_only(options: ReproduceOptions):
    """A plan without a pace, for the published size takes a while to measure."""
    from lstr.pipelines.reproduction.plan import prepare

    prepared = yield from prepare(options)
    yield Finished(prepared.plan)


@pytest.mark.long
def test_the_command(lstr, synthetic, tmp_path):
    words = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    given = ("--features", synthetic, "-o", tmp_path / "out", "--seeds", "2", *words)
    code, out, err = lstr("reproduce", "miniroad", *given, "--dry-run")
    assert code == 0 and not out and "MiniROAD's README" in err and "for 2 seeds" in err
    assert "synthetic data" in err and "without 197" in err and not (tmp_path / "out").exists()
    code, out, err = lstr("reproduce", "miniroad", *given)
    assert code == 0 and "left in all" in err and f"written: {tmp_path / 'out' / 'reproduce.json'}" in err
    title, header, *lines = out.splitlines()
    assert "seed 0\tseed 1\tmean ± deviation\tcompares" in header and "in percent" in title
    assert lines[0].endswith("synthetic data: not comparable") and "71.8" in lines[0]
    assert lines[-1].startswith("mAP: not comparable with the published 71.8: synthetic data")
    code, out, _ = lstr("reproduce", "miniroad", *given, "--json")
    document = json.loads(out)
    assert code == 0 and document["comparable"] is False and len(document["results"]) == 2
    assert document == json.loads((tmp_path / "out" / "reproduce.json").read_text())


def test_mistakes_are_one_sentence(lstr, synthetic, tmp_path, monkeypatch):
    given = ("--features", synthetic)
    mistake(lstr("reproduce", "nothing", *given), 2, "no kind 'nothing'", "miniroad")
    mistake(lstr("reproduce", "lstr", *given, "--preset", "mat-thumos14"), 2, "is of kind mat", "thumos14-published")
    mistake(lstr("reproduce", "lstr", *given, "--set", "model.kind=mat"), 2, "lstr is to be reproduced")
    mistake(lstr("reproduce", "lstr", "--features", tmp_path), 2, "data_info.json or labels.json", "--labels FILE")
    mistake(lstr("reproduce", "lstr", "--features", tmp_path / "none"), 2, "none does not exist", "ls")
    mistake(lstr("reproduce", "lstr", *given, "--seeds", "0"), 2, "--seeds")
    mistake(lstr("reproduce", "lstr"), 2, "--features")
    monkeypatch.setenv("WORLD_SIZE", "2")
    mistake(lstr("reproduce", "lstr", *given), 2, "one process", "torchrun")
    with pytest.raises(ConfigError, match="0 seeds"):
        ReproduceOptions("lstr", [synthetic], seeds=0)
