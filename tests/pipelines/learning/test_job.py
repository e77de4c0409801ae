"""What is packed, and that what comes after the model file is written ends no learning."""

import json
from dataclasses import replace

import pytest

from lstr.checkpoint import load
from lstr.errors import CacheError
from lstr.pipelines.learning.learn import learn
from lstr.pipelines.learning.plan import NETWORKS, StepProgress, Workspace
from lstr.pipelines.model_files.model_file import open_model
from tests.support.learning import SMALL, options, run


@pytest.mark.slow
def test_a_damaged_chunk_is_made_again_by_the_same_options(videos, tmp_path):
    """`--resume` was advised, which `lstr learn` does not have."""
    with pytest.raises(CacheError, match="damaged") as caught:
        settings = {**SMALL, "epochs": "8", "draws": "48"}  # so that some is not read ahead
        for event in learn(options(videos, tmp_path / "m.lstr", settings=settings, cache=tmp_path / "chunks", folds=0)):
            if isinstance(event, StepProgress) and event.step.key in NETWORKS.values():
                for path in (tmp_path / "chunks").rglob("*.npy"):
                    with path.open("r+b") as file:
                        file.seek(-1000, 2)
                        file.write(bytes(1000))
    assert "learn again" in caught.value.hint and "resume" not in caught.value.hint


@pytest.mark.slow
def test_the_epoch_that_validation_videos_choose_is_packed(videos, tmp_path):
    """The last one was, whatever `train.eval_every` had found."""
    content = json.loads((videos / "labels.json").read_text())
    first = min(i for i, video in content["database"].items() if video["subset"] == "training")
    content["database"][first]["subset"] = "validation"
    (tmp_path / "labels.json").write_text(json.dumps(content))
    settings = {**SMALL, "train.epochs": "30", "train.lr": "0.01", "train.eval_every": "1", "train.patience": "1"}
    chosen = options(videos, tmp_path / "m.lstr", settings=settings, folds=0)
    _, result = run(replace(chosen, labels=str(tmp_path / "labels.json")))
    of_run = Workspace(result.model).models / "flow" / "all"
    best, last = (load(of_run / f"{name}.pt").metrics for name in ("best", "checkpoint"))
    assert open_model(result.model).about["checkpoint"]["metrics"]["epoch"] == best["epoch"] < last["epoch"]
