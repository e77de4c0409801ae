"""Of which weights a saved stream is: the same weights are known wherever they were loaded from."""

import pytest

import lstr
from lstr import checkpoint, streaming
from tests.support.exportable import write_exportable
from tests.support.tiny_models import AVERAGED, tiny

CLASSES = ("Background", "a", "b", "c", "d")
OTHERS = [{"kind": "testra"}, {"kind": "colar"}, {"kind": "woad"}, {"kind": "oadtr"}, AVERAGED]


@pytest.mark.parametrize("changes", [{}, *OTHERS], ids=str)
def test_it_goes_on_with_the_same_weights_loaded_again(changes, tmp_path):
    model, path = tiny(**changes), tmp_path / "a.stream"
    checkpoint.save(tmp_path / "best.pt", model, CLASSES, None, {})
    streaming.save(path, streaming.create(model))
    again = streaming.restore(path, checkpoint.load(tmp_path / "best.pt").model)
    streaming.save(path, again)
    assert streaming.restore(path, model).chunks.tolist() == [0]


def test_a_model_file_has_the_weights_of_its_checkpoint(tmp_path):
    packed = write_exportable(tmp_path)
    model = checkpoint.load(tmp_path / "0.pt").model
    streaming.save(tmp_path / "a.stream", streaming.create(model, like=streaming.create(model)))
    with lstr.load(packed.path, device="cpu") as detector:
        assert streaming.restore(tmp_path / "a.stream", detector.model).chunks.tolist() == [0]
