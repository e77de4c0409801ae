"""Videos whose feature networks have seen them: what is refused, what is marked, and where it is said."""

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


def test_seen_videos_are_refused_and_others_are_not(lstr, small_set, features):
    given = (small_set.checkpoint, features, "--labels", small_set.labels)
    code, out, err = lstr("evaluate", *given, "--subset", "training")
    assert code == 4 and out == "", "before anything is scored"
    assert "have seen 1 of 3 videos to score, first 'scene_00'" in err
    assert "lstr learn" in err and "--allow-seen" in err and len(err.splitlines()) == 2
    code, out, err = lstr("evaluate", *given, "--subset", "testing", "--json", "--set", "resamples=0")
    assert code == 0 and "seen" not in err and "seen" not in json.loads(out), err
    split = read_split(features, small_set.labels, "training")
    with pytest.raises(SeenError):
        result_of(score_split(load(small_set.checkpoint), split))


@pytest.mark.long
def test_what_is_allowed_is_marked_everywhere(lstr, small_set, features, tmp_path):
    given = (features, "--labels", small_set.labels, "--subset", "training", "--set", "resamples=0", "--allow-seen")
    folder = tmp_path / "evaluation"
    code, out, err = lstr("evaluate", small_set.checkpoint, *given, "-o", folder)
    said = "the feature networks (rgb, flow) have seen 1 of 3 videos to score, first 'scene_00'"
    assert code == 0 and f"warning: {small_set.checkpoint}: {said}" in err and "\t3, 1 seen\t" in out
    page = (folder / "report.html").read_text()
    assert said in html.unescape(page) and "<td>3, 1 seen</td>" in page
    document = json.loads((folder / "evaluation.json").read_text())
    assert document["seen"] == {"scene_00": ["rgb", "flow"]} and document["conventions"]["corrected"]["seen"] == 1
    assert said in document["warnings"][0]
    rows = list(csv.DictReader((folder / "evaluation.csv").read_text().splitlines()))
    assert [row["seen_videos"] for row in rows if row["class"] == "together"] == ["1"]
    other = tmp_path / "other.pt"
    shutil.copy(small_set.checkpoint, other)
    code, out, err = lstr("evaluate", small_set.checkpoint, other, *given)
    assert code == 0 and out.count("3, 1 seen") >= 2 and err.count("have seen 1 of 3") == 2
    code, out, _ = lstr("evaluate", small_set.checkpoint, other, *given, "--json")
    assert [row["seen"] for row in json.loads(out)["checkpoints"]] == [{"scene_00": ["rgb", "flow"]}] * 2


def test_thresholds_are_not_chosen_on_seen_videos(lstr, small_set, features, tmp_path):
    checkpoint = tmp_path / "checkpoint.pt"
    shutil.copy(small_set.checkpoint, checkpoint)
    given = (
        "evaluate",
        checkpoint,
        features,
        "--labels",
        small_set.labels,
        "--subset",
        "training",
        "--choose-thresholds",
    )
    code, _, err = lstr(*given)
    assert code == 4 and "have seen 1 of 3" in err
    assert checkpoint.read_bytes() == small_set.checkpoint.read_bytes()
    code, out, err = lstr(*given, "--allow-seen", "--json")
    assert code == 0 and "have seen 1 of 3" in err and json.loads(out)["seen"] == {"scene_00": ["rgb", "flow"]}


def test_only_streams_that_the_model_takes_count(small_set, features):
    say_seen(features, {"scene_00": [], "scene_02": ["flow"]})
    split, config = read_split(features, small_set.labels, "training"), load(small_set.checkpoint).config
    assert network_overlap(split, config) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(rgb_dim=0)) == {"scene_02": ["flow"]}
    assert network_overlap(split, config.replace(flow_dim=0)) == {}


def test_training_warns_once_and_the_checkpoint_tells(lstr, tmp_path):
    made = write_features(tmp_path / "features")
    settings = [part for name, value in TINY_SETTINGS.items() for part in ("--set", f"{name}={value}")]
    given = (
        "train",
        made.features,
        "--labels",
        made.labels,
        "--preset",
        "lstr-small",
        *settings,
        "--set",
        "train.max_steps=2",
    )
    code, _, err = lstr(*given, "-o", tmp_path / "elsewhere", "--eval-every", "1")
    assert code == 0 and "seen" not in err, "a folder without records"
    say_seen(made.features, {"v0": ["flow"], "v1": [], "v2": ["flow"], "v3": ["flow"], "v4": []})
    code, _, err = lstr(*given, "-o", tmp_path / "run", "--eval-every", "1")
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert code == 0 and len(warnings) == 2, err
    assert "(flow) have seen 2 of 3 training videos, first 'v0'" in warnings[0] and "lstr learn" in warnings[0]
    assert "have seen 1 of 2 validation videos, first 'v3'" in warnings[1] and "train.patience" in warnings[1]
    code, out, _ = lstr("info", tmp_path / "run" / "best.pt", "--json")
    told = json.loads(out)
    assert told["training_videos_seen"] == {"videos": 2, "of": 3, "streams": ["flow"]}
    assert told["metrics"]["validation"]["seen"] == 1
    say_seen(made.features, {"v3": []})
    code, out, err = lstr(
        *("evaluate", tmp_path / "run" / "best.pt", made.features, "--labels", made.labels),
        *("--subset", "validation", "--set", "resamples=0", "--json"),
    )
    assert code == 0 and "feature networks (flow) had seen 2 of its 3 videos" in err
    assert "had seen 2 of its 3" in json.loads(out)["warnings"][0] and "seen" not in json.loads(out)


def test_a_feature_folder_is_described(lstr, features):
    say_seen(features, {"scene_01": [], "scene_02": []}, folds={"scene_01": 1, "scene_02": 2})
    code, out, _ = lstr("info", features, "--json")
    assert json.loads(out)["seen_by_networks"] == {
        "all": {"videos": 1, "seen": 1},
        "fold 1": {"videos": 1, "seen": 0},
        "fold 2": {"videos": 1, "seen": 0},
    }
    code, out, _ = lstr("info", features)
    assert code == 0 and "all seen\t1" in out and "fold 1 seen\t0" in out
