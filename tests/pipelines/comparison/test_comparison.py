"""Model files on videos that none of them has seen, each by features of its own."""

import csv
import io
import json
import shutil

import pytest
import torch

from lstr.checkpoints.checkpoint import save
from lstr.kinds import configure, make_model
from lstr.labels.label_set import AMBIGUOUS
from lstr.pipelines.comparison.job import unseen
from lstr.pipelines.datasets.seen_videos import SeenError
from lstr.pipelines.model_files.averaging import write_average
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.weights.folder import open_weights
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES


@pytest.fixture(scope="module")
def models(finetuned, tmp_path_factory):
    """Two files with the same networks, which have seen two of the three videos, and another model each."""
    folder = tmp_path_factory.mktemp("compared")
    for seed, name in enumerate(("old", "new")):
        torch.manual_seed(seed)
        model = make_model(configure(**TINY), len(CLASSES)).eval()
        path, recipe = folder / f"{name}.pt", json.loads(finetuned.weights.recipe.to_json())
        save(path, model, CLASSES, recipe, {"training_videos": []}, {})
        write_model(folder / f"{name}.lstr", path, finetuned.weights.path, {"videos": {"scene_09": "validation"}})
    entries = {
        i: {"subset": "training", "annotations": [{"label": "fall", "segment": [1, 2]}]} for i in finetuned.videos
    }
    (folder / "labels.json").write_text(json.dumps({"classes": list(CLASSES[1:]), "database": entries}))
    return folder


def videos_of(finetuned):
    return str(next(iter(finetuned.videos.values())).parent)


@pytest.mark.long
def test_they_are_compared_on_what_neither_has_seen(lstr, finetuned, models, tmp_path):
    """A person may have left a part of a video open: of that the models know no class."""
    left = next(i for i in finetuned.videos if i not in finetuned.training)
    labels = json.loads((models / "labels.json").read_text())
    labels["classes"].append(AMBIGUOUS)
    labels["database"][left]["annotations"].append({"label": AMBIGUOUS, "segment": [0, 0.5]})
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    words = ("evaluate", models / "old.lstr", models / "new.lstr", videos_of(finetuned), tmp_path / "labels.json")
    code, out, err = lstr(*words, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["videos"] == [left] and [one["name"] for one in document["checkpoints"]] == ["old", "new"]
    assert AMBIGUOUS not in document["checkpoints"][0]["lstr"]["per_class"]
    row = document["comparison"][0]
    old, new = (one["lstr"]["mAP"] for one in document["checkpoints"])
    assert (row["mAP"]["old"], row["mAP"]["new"]) == (old, new) and old != new
    assert document["better"] is None and "cannot be told from fewer than 6 videos" in document["sentence"]
    assert "left out, for one of the two has seen them: " in err


@pytest.mark.long
def test_what_cannot_be_compared(lstr, finetuned, models, tmp_path):
    old, new = models / "old.lstr", models / "new.lstr"
    seen = [finetuned.videos[i] for i in finetuned.training]
    code, _, err = lstr("evaluate", old, new, *seen, models / "labels.json")
    assert code == 4 and "no labelled video of 2 that neither" in err and "hint: " in err
    for words in ((old, models / "labels.json"), (videos_of(finetuned), models / "labels.json"), (old, old)):
        code, _, err = lstr("evaluate", *words)
        assert code == 2 and "model files, videos and labels" in err
    for more in ("--published", "--allow-seen", "--choose-thresholds", "--set=model.n_heads=2", "--set=rgb_features=x"):
        code, _, err = lstr("evaluate", old, new, videos_of(finetuned), models / "labels.json", more)
        assert code == 2 and "is for checkpoints on features" in err, err
    code, _, err = lstr("evaluate", old, new, videos_of(finetuned), models / "labels.json", "--set", "mode=stream")
    assert code == 2 and "--set mode is for checkpoints on features" in err, err
    labels = json.loads((models / "labels.json").read_text())
    (tmp_path / "labels.json").write_text(json.dumps(labels | {"classes": ["fall", "jump"]}))
    code, _, err = lstr("evaluate", old, new, videos_of(finetuned), tmp_path / "labels.json")
    assert code == 4 and "classes that the models do not know: jump." in err
    backwards = json.loads(json.dumps(labels))
    for video in backwards["database"].values():
        video["annotations"][0]["segment"] = [2, 1]
    (tmp_path / "labels.json").write_text(json.dumps(backwards))
    code, _, err = lstr("evaluate", old, new, videos_of(finetuned), tmp_path / "labels.json")
    assert code == 2 and "labels.json has 1 error" in err and "labels check" in err, err
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    labels["database"]["broken"] = labels["database"]["scene_00"]
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    code, out, err = lstr("evaluate", old, new, videos_of(finetuned), tmp_path, tmp_path / "labels.json")
    assert code == 3 and "cannot be told" in out and "broken" in err


@pytest.fixture
def narrow(finetuned, models, tmp_path):
    """A model file of another recipe: it sees flow alone."""
    weights = open_weights(finetuned.weights.path)
    recipe = weights.recipe.narrowed(["flow"])
    model = make_model(configure(**TINY | {"rgb_dim": 0}), len(CLASSES)).eval()
    save(tmp_path / "flow.pt", model, CLASSES, json.loads(recipe.to_json()), {"training_videos": []}, {})
    return write_model(tmp_path / "flow.lstr", tmp_path / "flow.pt", finetuned.weights.path, {}).path


@pytest.mark.slow
def test_models_of_several_recipes_are_in_one_table(lstr, finetuned, models, narrow, tmp_path):
    """Three model files with videos and labels were refused, and --to with videos too."""
    paths = (models / "old.lstr", models / "new.lstr", narrow)
    for last in (
        (videos_of(finetuned), models / "labels.json"),
        (videos_of(finetuned), "--labels", models / "labels.json"),
    ):
        code, out, err = lstr("evaluate", *paths, *last, "--to", "csv")
        assert code == 0, err
        rows = [*csv.DictReader(io.StringIO(out))]
        assert [row["checkpoint"] for row in rows] == ["old", "new", "flow"] and all(float(r["mAP"]) > 0 for r in rows)
    code, out, err = lstr("evaluate", *paths, *last, "--json", "-o", tmp_path / "evaluation")
    document = json.loads(out)
    assert [one["lstr"]["mAP"] for one in document["checkpoints"]] == [float(row["mAP"]) for row in rows]
    assert len(document["comparison"]) == 2 and "better" not in document
    assert (tmp_path / "evaluation" / "report.html").is_file() and "report: " in err
    alone = json.loads(lstr("evaluate", narrow, *last, "--json")[1])
    assert alone["lstr"]["mAP"] == float(rows[2]["mAP"]) and alone["videos"] == 1
    code, out, _ = lstr("evaluate", narrow, *last)
    assert code == 0 and out.startswith("caught ")


def test_a_video_is_known_by_content_under_another_name(finetuned, models, tmp_path):
    opened = [open_model(models / name) for name in ("old.lstr", "new.lstr")]
    renamed = tmp_path / "other.mp4"
    shutil.copy(finetuned.videos[min(finetuned.training)], renamed)
    with pytest.raises(SeenError):
        unseen({"other": renamed}, opened)
    with pytest.raises(SeenError):
        unseen({"scene_09": tmp_path / "gone.mp4"}, opened)
    with pytest.raises(SeenError, match=r"old\.lstr has not seen"):
        unseen({"other": renamed}, opened[:1])


@pytest.mark.slow
def test_a_video_that_chose_an_epoch_is_known(finetuned, models, tmp_path):
    """Of runs of `lstr train` too, and of an average of them."""
    left = next(i for i in finetuned.videos if i not in finetuned.training)
    model = make_model(configure(**TINY), len(CLASSES)).eval()
    recipe = json.loads(finetuned.weights.recipe.to_json())
    seen = {"training_videos": ["scene_09"], "validation_videos": [left]}
    save(tmp_path / "best.pt", model, CLASSES, recipe, seen, {})
    save(tmp_path / "last.pt", model, CLASSES, recipe, {"training_videos": ["scene_09"]}, {})
    both = write_average(tmp_path / "both.pt", [tmp_path / "last.pt", tmp_path / "best.pt"])
    for run in (tmp_path / "best.pt", both):
        packed = write_model(tmp_path / "run.lstr", run, finetuned.weights.path, {})
        with pytest.raises(SeenError):
            unseen({left: finetuned.videos[left]}, [packed])
    last = write_model(tmp_path / "last.lstr", tmp_path / "last.pt", finetuned.weights.path, {})
    assert unseen({left: finetuned.videos[left]}, [last]).keys() == {left}
