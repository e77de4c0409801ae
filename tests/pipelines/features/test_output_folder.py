"""A feature folder elsewhere: done means the same as on disk, whatever was cut off, changed or replaced."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

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


@pytest.fixture
def features():
    """A new feature folder in a file system in this process, and beside it a source."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    RemoteFile("memory://videos/a/v 1.mp4").write(b"0123456789")
    yield create_output(RemoteFile("memory://out/features"), RECIPE, {"rgb": {"mean": torch.ones(2)}})
    fs.store.clear()


SOURCE = RemoteFile("memory://videos/a/v 1.mp4")


def publish(features, video_id="a/v 1", n_chunks=9, source=SOURCE):
    """Extract as an extraction would, but with numbers for features."""
    stat = source.stat()
    with features.staged(video_id) as local:
        arrays = {}
        for stream, width in (("rgb", 2048), ("flow", 1024)):
            array = local.array(stream, video_id)
            array.parent.mkdir(parents=True)
            np.save(array, np.random.default_rng(0).random((n_chunks, width), dtype=np.float32))
            arrays[stream] = fingerprints(array)
        record = {"id": video_id, "source": str(source), "bytes": stat.st_size, "mtime": stat.st_mtime}
        write_json(local.record(video_id), record | {"recipe": RECIPE.id, "arrays": arrays, "chunks": n_chunks})


def ids_of(features) -> list[str]:
    features.compile()
    return [record["id"] for record in read_jsonl(features.path.joinpath("videos.jsonl"))]


@pytest.mark.parametrize("n_chunks", [1, 2, 9])
def test_what_was_put_is_done(features, n_chunks):
    assert not features.find_record("a/v 1", SOURCE)
    publish(features, n_chunks=n_chunks)
    assert features.find_record("a/v 1", SOURCE) and ids_of(features) == ["a/v 1"]
    files = sorted(features.path.below())
    assert files == [
        "calibration.pt",
        "flow_random_bninception/a/v 1.npy",
        "recipe.json",
        "records/a/v 1.json",
        "rgb_random_resnet50/a/v 1.npy",
        "videos.jsonl",
    ]


def harm_of(features, harm: str) -> None:
    array, record = features.array("flow", "a/v 1"), features.record("a/v 1")
    if harm == "array gone":
        array.unlink()
    elif harm == "array cut":
        array.write(array.read()[:-4])
    elif harm == "array longer":
        array.write(array.read() + b"\0")
    elif harm == "array of another":
        array.write(array.read()[:-4] + b"\1\1\1\1")
    elif harm == "no array":
        array.write(b"<html>")
    elif harm == "record gone":
        record.unlink()
    elif harm == "record cut":
        record.write(record.read()[:50])
    elif harm == "another recipe":
        record.write(json.dumps(json.loads(record.read()) | {"recipe": "other"}).encode())
    elif harm == "source changed":
        SOURCE.write(b"01234567890")
    elif harm == "source gone":
        SOURCE.unlink()


@pytest.mark.parametrize(
    "harm",
    ["array gone", "array cut", "array longer", "array of another", "no array", "record gone", "record cut"]
    + ["another recipe", "source changed", "source gone"],
)
def test_harm_is_found(features, harm):
    publish(features)
    harm_of(features, harm)
    assert not features.find_record("a/v 1", SOURCE)


def test_what_is_put_again_begins_with_the_record_gone(features):
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
    other = Recipe(RECIPE.rgb, RECIPE.flow, long_side=160)
    with pytest.raises(RecipeError, match="long_side: 320 against 160"):
        create_output(features.path, other, {})
    RemoteFile("memory://theirs/rgb_x/v.npy").write(b"1")
    with pytest.raises(RecipeError, match="without a recipe"):
        create_output(RemoteFile("memory://theirs"), RECIPE, {})
    features.path.joinpath("recipe.json").write(b"{")
    with pytest.raises(RecipeError, match="not JSON"):
        open_output(features.path)


def test_many_are_looked_at_in_threads_with_one_header_at_a_time(features, monkeypatch):
    """Python 3.11 answers two threads that parse source with a SystemError, and numpy parses a header as source."""
    publish(features)
    together, read = Barrier(2), np.lib.format.read_array_header_1_0

    def meet(*arguments):
        with pytest.raises(BrokenBarrierError):
            together.wait(0.2)  # nobody else comes
        return read(*arguments)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", meet)
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(lambda _: features.find_record("a/v 1", SOURCE), range(2)))
