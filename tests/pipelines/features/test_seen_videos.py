"""Videos that the feature networks were trained on: refused, or marked in every report."""

import csv
import html
import json
import shutil

import pytest

from lstr.checkpoint import load
from lstr.errors import SeenError
from lstr.files.content import write_json
from lstr.pipelines.evaluation.scoring import score_split
from lstr.pipelines.features.dataset import network_overlap, read_split
from lstr.pipelines.progress import result_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS, write_features


def record_training_videos(features, seen: dict[str, list[str]], folds: dict | None = None) -> None:
    """Record the streams with networks that were trained on each video, and its fold."""
    for video_id, streams in seen.items():
        path = features / "records" / f"{video_id}.json"
        record = json.loads(path.read_text()) if path.exists() else {"id": video_id}
        record |= {"networks": {"rgb": "0" * 64, "flow": "1" * 64}, "fold": (folds or {}).get(video_id)}
        write_json(path, record | {"seen": streams})


@pytest.fixture
def features(small_set, tmp_path):
    """The networks were trained on the first of three training videos; the third has no such record."""
    shutil.copytree(small_set.features, tmp_path / "features")
    record_training_videos(tmp_path / "features", {"scene_00": ["rgb", "flow"], "scene_01": []})
    return tmp_path / "features"


def test_evaluation_refuses_training_videos(lstr, small_set, features, tmp_path):
    checkpoint = shutil.copy(small_set.checkpoint, tmp_path / "checkpoint.pt")
    command = ("evaluate", checkpoint, features, "--labels", small_set.labels)
    for options in ((), ("--choose-thresholds",)):
        assert_error(lstr(*command, "--subset", "training", *options), 4, "1 of 3", "scene_00", "--allow-seen")
    assert checkpoint.read_bytes() == small_set.checkpoint.read_bytes()
    code, out, err = lstr(*command, "--subset", "testing", "--json", "--set", "resamples=0")
    assert code == 0 and "seen" not in err and "seen" not in json.loads(out), err
    split = read_split(features, small_set.labels, "training")
    with pytest.raises(SeenError):
        result_of(score_split(load(checkpoint), split))


@pytest.mark.long
def test_allowed_training_videos_are_in_every_report(lstr, small_set, features, tmp_path):
    options = (features, "--labels", small_set.labels, "--subset", "training", "--set", "resamples=0", "--allow-seen")
    folder, seen = tmp_path / "evaluation", {"scene_00": ["rgb", "flow"]}
    code, out, err = lstr("evaluate", small_set.checkpoint, *options, "-o", folder, "--all")
    document = json.loads((folder / "evaluation.json").read_text())
    warning = document["warnings"][0]
    assert code == 0 and f"warning: {small_set.checkpoint}: " in err and "1 of 3" in warning and warning in err
    assert "1 seen" in out and warning in html.unescape((folder / "report.html").read_text())
    assert document["seen"] == seen and document["conventions"]["corrected"]["seen"] == 1
    rows = list(csv.DictReader((folder / "evaluation.csv").read_text().splitlines()))
    assert [row["seen_videos"] for row in rows if row["class"] == "together"] == ["1"]
    other = shutil.copy(small_set.checkpoint, tmp_path / "other.pt")
    code, out, err = lstr("evaluate", small_set.checkpoint, other, *options, "--json")
    assert [row["seen"] for row in json.loads(out)["checkpoints"]] == [seen] * 2 and err.count("1 of 3") == 2
    code, out, err = lstr("evaluate", other, *options, "--choose-thresholds", "--json")
    assert code == 0 and "1 of 3" in err and json.loads(out)["seen"] == seen


def test_only_the_streams_of_the_model_count(small_set, features):
    record_training_videos(features, {"scene_00": [], "scene_02": ["flow"]})
    split, config = read_split(features, small_set.labels, "training"), load(small_set.checkpoint).config
    assert network_overlap(split, config) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(rgb_dim=0)) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(flow_dim=0)) == {}


def test_training_records_the_overlap_in_the_checkpoint(lstr, tmp_path):
    feature_set = write_features(tmp_path / "features")
    features, labels, run = feature_set.features, ("--labels", feature_set.labels), tmp_path / "run"
    settings = [f"--set={name}={value}" for name, value in TINY_SETTINGS.items()] + ["--set=train.max_steps=2"]
    train = ("train", features, *labels, "--preset", "lstr-small", *settings, "--eval-every", "1")
    code, _, err = lstr(*train, "-o", tmp_path / "without records")
    assert code == 0 and "warning: " not in err
    record_training_videos(features, {"v0": ["flow"], "v1": [], "v2": ["flow"], "v3": ["flow"], "v4": []})
    code, _, err = lstr(*train, "-o", run)
    training, validation = (line for line in err.splitlines() if line.startswith("warning: "))
    assert code == 0 and "flow" in training and "2 of 3" in training and "v0" in training
    assert "1 of 2" in validation and "v3" in validation
    described = json.loads(lstr("info", run / "best.pt", "--json")[1])
    assert described["training_videos_seen"] == {"videos": 2, "of": 3, "streams": ["flow"]}
    assert described["metrics"]["validation"]["seen"] == 1
    record_training_videos(features, {"v3": []})
    options = ("--subset", "validation", "--set", "resamples=0", "--json")
    code, out, _ = lstr("evaluate", run / "best.pt", features, *labels, *options)
    assert code == 0 and "seen" not in json.loads(out)


def test_info_counts_training_videos_by_fold(lstr, features):
    record_training_videos(features, {"scene_01": [], "scene_02": []}, folds={"scene_01": 1, "scene_02": 2})
    assert json.loads(lstr("info", features, "--json")[1])["seen_by_networks"] == {
        "all": {"videos": 1, "seen": 1},
        "fold 1": {"videos": 1, "seen": 0},
        "fold 2": {"videos": 1, "seen": 0},
    }
