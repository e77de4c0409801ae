"""A worker makes the networks again from the folder alone, and with them the same bits."""

import pickle
import shutil

import pytest

from lstr.extractors.errors import WeightsError
from lstr.pipelines.extraction.options import WorkerConfig
from lstr.pipelines.extraction.video import open_worker
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.atomic import write_text
from tests.support.extraction import returned


@pytest.fixture
def begun(small_set, tmp_path):
    """A folder of the same recipe and calibration as the small set's, without videos."""
    for name in ("recipe.json", "calibration.pt"):
        (tmp_path / "features").mkdir(exist_ok=True)
        shutil.copy(small_set.features / name, tmp_path / "features")
    return tmp_path / "features"


def test_a_worker_of_a_sent_config_makes_the_same_bits(small_set, begun):
    config = pickle.loads(pickle.dumps(WorkerConfig(begun, device="cpu", threads=1)))
    with open_worker(config) as worker:
        outcome = returned(worker.extract("scene_01", small_set.videos / "scene_01.mp4"))
    assert outcome.state == "done" and outcome.chunks == 20 and set(outcome.stages) > {"decode", "flow"}
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    mine, whole = (open_features(path).load("scene_01") for path in (begun, small_set.features))
    assert [array.tobytes() for array in mine] == [array.tobytes() for array in whole]


def test_a_worker_without_the_folders_weights_says_so(begun):
    recipe = open_features(begun).recipe.to_json()
    write_text(begun / "recipe.json", recipe.replace('"weights":"random"', '"weights":"kinetics"'))
    with pytest.raises(WeightsError, match="no file was named"):
        open_worker(WorkerConfig(begun, device="cpu")).__enter__()
