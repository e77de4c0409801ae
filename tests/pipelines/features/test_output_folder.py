"""A feature folder elsewhere: done means the same as on disk, whatever was cut off, changed or replaced."""

import fsspec
import numpy as np
import pytest
import torch

from lstr.errors import RecipeError
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.files.arrays import fingerprints
from lstr.files.content import read_jsonl, write_json
from lstr.files.remote import RemoteFile
from lstr.pipelines.features.output_folder import create_output, open_output, read_calibration

RECIPE = Recipe(
    NetworkRecipe("resnet50", "random", "0" * 16, 1, (0.0,), (1.0,)),
    NetworkRecipe("bninception", "random", "1" * 16, 1, (0.0,), (1.0,)),
)
SOURCE = RemoteFile("memory://videos/a/v 1.mp4")


@pytest.fixture
def features():
    """A new feature folder in a file system in this process, and beside it a source."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    SOURCE.write(b"0123456789")
    yield create_output(RemoteFile("memory://out/features"), RECIPE, {"rgb": {"mean": torch.ones(2)}})
    fs.store.clear()


def publish(features, n_chunks=9):
    """Extract as an extraction would, but with numbers for features."""
    stat, video_id = SOURCE.stat(), "a/v 1"
    with features.staged(video_id) as local:
        arrays = {}
        for stream, width in (("rgb", 2048), ("flow", 1024)):
            array = local.array(stream, video_id)
            array.parent.mkdir(parents=True)
            np.save(array, np.random.default_rng(0).random((n_chunks, width), dtype=np.float32))
            arrays[stream] = fingerprints(array)
        record = {"id": video_id, "source": str(SOURCE), "bytes": stat.st_size, "mtime": stat.st_mtime}
        write_json(local.record(video_id), record | {"recipe": RECIPE.id, "arrays": arrays, "chunks": n_chunks})


def ids_of(features) -> list[str]:
    features.compile()
    return [record["id"] for record in read_jsonl(features.path.joinpath("videos.jsonl"))]


@pytest.mark.parametrize("n_chunks", [1, 2, 9])
def test_what_was_put_is_done(features, n_chunks):
    assert not features.find_record("a/v 1", SOURCE)
    publish(features, n_chunks)
    assert features.find_record("a/v 1", SOURCE) and ids_of(features) == ["a/v 1"]
    assert sorted(features.path.below()) == [
        "calibration.pt",
        "flow_random_bninception/a/v 1.npy",
        "recipe.json",
        "records/a/v 1.json",
        "rgb_random_resnet50/a/v 1.npy",
        "videos.jsonl",
    ]


HARMS = {
    "array gone": lambda array, record: array.unlink(),
    "array cut": lambda array, record: array.write(array.read()[:-4]),
    "array of another": lambda array, record: array.write(array.read()[:-4] + b"\1\1\1\1"),
    "no array": lambda array, record: array.write(b"<html>"),
    "record gone": lambda array, record: record.unlink(),
    "record cut": lambda array, record: record.write(record.read()[:50]),
    "source changed": lambda array, record: SOURCE.write(b"01234567890"),
    "source gone": lambda array, record: SOURCE.unlink(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_harm_is_found(features, harm):
    publish(features)
    HARMS[harm](features.array("flow", "a/v 1"), features.record("a/v 1"))
    assert not features.find_record("a/v 1", SOURCE)


def test_a_video_that_is_put_again_has_no_record_meanwhile(features):
    """Else a run that is killed between two arrays would leave old and new ones under the old record."""
    publish(features)
    with pytest.raises(InterruptedError), features.staged("a/v 1"):
        assert ids_of(features) == [] and not features.find_record("a/v 1", SOURCE)
        raise InterruptedError
    assert ids_of(features) == []


def test_a_folder_is_opened_as_it_was_begun(features):
    opened = open_output(features.path)
    assert opened == features and read_calibration(opened.path)["rgb"]["mean"].tolist() == [1, 1]
    assert create_output(features.path, RECIPE, {}) == features
    assert open_output(RemoteFile("memory://elsewhere")) is None
    with pytest.raises(RecipeError, match="long_side"):
        create_output(features.path, Recipe(RECIPE.rgb, RECIPE.flow, long_side=160), {})
    RemoteFile("memory://theirs/rgb_x/v.npy").write(b"1")
    with pytest.raises(RecipeError):
        create_output(RemoteFile("memory://theirs"), RECIPE, {})
    features.path.joinpath("recipe.json").write(b"{")
    with pytest.raises(RecipeError):
        open_output(features.path)
