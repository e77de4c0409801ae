"""What comes after the model file is written ends no learning."""

from types import SimpleNamespace

from lstr.labels.label_set import Labels
from lstr.pipelines.learning.job import _verdict
from lstr.pipelines.learning.options import LearnOptions
from lstr.pipelines.learning.parts import LabelParts
from lstr.pipelines.learning.workspace import Workspace
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import Notice


def test_labels_that_cannot_be_compared_on_are_a_notice(small_set, tmp_path):
    """The model was written, and the learning ended in an error without a result."""
    old, new = (write_model(tmp_path / name, small_set.checkpoint, None, {}).path for name in ("a.lstr", "b.lstr"))
    planned = SimpleNamespace(
        parts=LabelParts(Labels(("Background",), {}), ""), videos={}, workspace=Workspace(new), model=new
    )
    notice, *others = _verdict(planned, LearnOptions([], [], new, init=str(old)))
    assert isinstance(notice, Notice) and not others
    assert notice.text.startswith(f"not compared with {old}: There is no label file")
