"""Videos whose feature networks have seen them: what is refused, what is marked, and where it is reported."""

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


def say_seen(features, seen: dict[str, list[str] | None], folds: dict | None = None) -> None:
    """Let the records say what extraction with trained weights says; None leaves out the entry."""
    for video_id, streams in seen.items():
        path = features / "records" / f"{video_id}.json"
        record = json.loads(path.read_text()) if path.exists() else {"id": video_id}
        record |= {"networks": {"rgb": "0" * 64, "flow": "1" * 64}, "fold": (folds or {}).get(video_id)}
        write_json(path, record if streams is None else record | {"seen": streams})


@pytest.fixture
def features(small_set, tmp_path):
    """Of three training videos one is seen, one is not, and of one nothing is said."""
    shutil.copytree(small_set.features, tmp_path / "features")
    say_seen(tmp_path / "features", {"scene_00": ["rgb", "flow"], "scene_01": [], "scene_02": None})
    return tmp_path / "features"


def test_seen_videos_are_refused_and_others_are_not(lstr, small_set, features, tmp_path):
    checkpoint = shutil.copy(small_set.checkpoint, tmp_path / "checkpoint.pt")
    given = ("evaluate", checkpoint, features, "--labels", small_set.labels)
    for more in ((), ("--choose-thresholds",)):
        assert_error(lstr(*given, "--subset", "training", *more), 4, "1 of 3", "scene_00", "--allow-seen")
    assert checkpoint.read_bytes() == small_set.checkpoint.read_bytes()
    code, out, err = lstr(*given, "--subset", "testing", "--json", "--set", "resamples=0")
    assert code == 0 and "seen" not in err and "seen" not in json.loads(out), err
    split = read_split(features, small_set.labels, "training")
    with pytest.raises(SeenError):
        result_of(score_split(load(checkpoint), split))


@pytest.mark.long
def test_what_is_allowed_is_marked_everywhere(lstr, small_set, features, tmp_path):
    given = (features, "--labels", small_set.labels, "--subset", "training", "--set", "resamples=0", "--allow-seen")
    folder, seen = tmp_path / "evaluation", {"scene_00": ["rgb", "flow"]}
    code, out, err = lstr("evaluate", small_set.checkpoint, *given, "-o", folder)
    document = json.loads((folder / "evaluation.json").read_text())
    warning = document["warnings"][0]
    assert code == 0 and f"warning: {small_set.checkpoint}: " in err and "1 of 3" in warning and warning in err
    assert "1 seen" in out and warning in html.unescape((folder / "report.html").read_text())
    assert document["seen"] == seen and document["conventions"]["corrected"]["seen"] == 1
    rows = list(csv.DictReader((folder / "evaluation.csv").read_text().splitlines()))
    assert [row["seen_videos"] for row in rows if row["class"] == "together"] == ["1"]
    other = shutil.copy(small_set.checkpoint, tmp_path / "other.pt")
    code, out, err = lstr("evaluate", small_set.checkpoint, other, *given, "--json")
    assert [row["seen"] for row in json.loads(out)["checkpoints"]] == [seen] * 2 and err.count("1 of 3") == 2
    code, out, err = lstr("evaluate", other, *given, "--choose-thresholds", "--json")
    assert code == 0 and "1 of 3" in err and json.loads(out)["seen"] == seen


def test_only_streams_that_the_model_takes_count(small_set, features):
    say_seen(features, {"scene_00": [], "scene_02": ["flow"]})
    split, config = read_split(features, small_set.labels, "training"), load(small_set.checkpoint).config
    assert network_overlap(split, config) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(rgb_dim=0)) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(flow_dim=0)) == {}


def test_training_warns_once_and_the_checkpoint_records_it(lstr, tmp_path):
    made = write_features(tmp_path / "features")
    settings = [part for name, value in TINY_SETTINGS.items() for part in ("--set", f"{name}={value}")]
    given = ("train", made.features, "--labels", made.labels, "--preset", "lstr-small", *settings)
    given += ("--set", "train.max_steps=2", "--eval-every", "1")
    code, _, err = lstr(*given, "-o", tmp_path / "elsewhere")
    assert code == 0 and "seen" not in err, "a folder without records"
    say_seen(made.features, {"v0": ["flow"], "v1": [], "v2": ["flow"], "v3": ["flow"], "v4": []})
    code, _, err = lstr(*given, "-o", tmp_path / "run")
    training, validation = (line for line in err.splitlines() if line.startswith("warning: "))
    assert code == 0 and "flow" in training and "2 of 3" in training and "v0" in training
    assert "1 of 2" in validation and "v3" in validation
    told = json.loads(lstr("info", tmp_path / "run" / "best.pt", "--json")[1])
    assert told["training_videos_seen"] == {"videos": 2, "of": 3, "streams": ["flow"]}
    assert told["metrics"]["validation"]["seen"] == 1
    say_seen(made.features, {"v3": []})
    evaluate = ("evaluate", tmp_path / "run" / "best.pt", made.features, "--labels", made.labels)
    code, out, err = lstr(*evaluate, "--subset", "validation", "--set", "resamples=0", "--json")
    document = json.loads(out)
    assert code == 0 and document["warnings"][0] in err and "2 of its 3" in err and "seen" not in document


def test_a_feature_folder_is_described(lstr, features):
    say_seen(features, {"scene_01": [], "scene_02": []}, folds={"scene_01": 1, "scene_02": 2})
    code, out, _ = lstr("info", features, "--json")
    assert json.loads(out)["seen_by_networks"] == {
        "all": {"videos": 1, "seen": 1},
        "fold 1": {"videos": 1, "seen": 0},
        "fold 2": {"videos": 1, "seen": 0},
    }
