"""Files of NWB: there and back, as others write them, and without the packages that they need."""

import math
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.formats import FORMATS, convert, read_annotations
from lstr.pipelines.annotations.label_file import read_label_file
from lstr.pipelines.annotations.nwb import read_nwb, to_nwb
from tests.support.annotated import ONE, scored, sets
from tests.support.videos import write_video

SEGMENTS = (
    Segment(0.0, 2.0, "Ambiguous"),
    Segment(2.0, 4.25, "groom", subject="Anna"),
    Segment(3.0, 6.0, "groom", subject="Ben"),
    Segment(5.0, 5.0, "peck"),
    Segment(8.0, 9.0, "Ambiguous"),
)
WHOLE = AnnotationSet({"day 1/a": AnnotatedVideo(SEGMENTS, "training", 10.0)}, ("peck", "groom", "rear", "Ambiguous"))


@pytest.fixture
def pynwb():
    pytest.importorskip("ndx_ethogram", reason="ndx-ethogram is not installed: pip install -e .[nwb]")
    return pytest.importorskip("pynwb", reason="pynwb is not installed: pip install -e .[nwb]")


def there_and_back(annotated: AnnotationSet, tmp_path) -> AnnotationSet:
    convert_to = FORMATS["nwb"].write(tmp_path / "out", annotated, ConvertOptions())
    assert len(convert_to.files) == len(annotated.videos)
    return read_annotations(tmp_path / "out")


def test_all_of_it_comes_back(pynwb, tmp_path):
    again = there_and_back(WHOLE, tmp_path)
    assert again.videos == WHOLE.videos and set(again.classes) == set(WHOLE.classes)
    assert again.classes[:3] == WHOLE.classes[:3] and again.notes == () and FORMATS["nwb"].lost(WHOLE) == set()


def test_scores_make_it_automated(pynwb, tmp_path):
    again = there_and_back(ONE, tmp_path)
    assert scored(again.videos["a b"]) == scored(ONE.videos["a b"]) and again.classes == ONE.classes
    with pynwb.NWBHDF5IO(str(tmp_path / "out" / "a b.nwb"), "r", load_namespaces=True) as source:
        assert source.read().processing["behavior"]["behavior_bouts"].labeling_method == "automated"


@pytest.mark.long
@settings(deadline=None, max_examples=5)
@given(sets(1000, least=0))
def test_any_set_comes_back(pynwb_or_skip, tmp_path_factory, annotated):
    again = there_and_back(annotated, tmp_path_factory.mktemp("nwb"))
    assert {name: scored(video) for name, video in again.videos.items()} == {
        name: scored(video) for name, video in annotated.videos.items()
    }


@pytest.fixture(scope="module")
def pynwb_or_skip():
    return pytest.importorskip("ndx_ethogram", reason="ndx-ethogram is not installed: pip install -e .[nwb]")


def test_it_is_what_the_conventions_say(pynwb, tmp_path):
    write_video(tmp_path / "a.mp4", range(0, 400, 20))
    (tmp_path / "l.csv").write_text("video,start,end,label\na,0.1,0.2,groom\na,0.3,0.3,peck\n")
    convert([tmp_path / "l.csv"], None, tmp_path / "a.nwb", ConvertOptions(video=tmp_path))
    assert not pynwb.validate(path=str(tmp_path / "a.nwb"))
    with pynwb.NWBHDF5IO(str(tmp_path / "a.nwb"), "r", load_namespaces=True) as source:
        content = source.read()
        module = content.processing["behavior"]
        bouts, ethogram = module["behavior_bouts"], module["ethogram"]
        assert type(bouts).__name__ == "EthogramBouts" and bouts.labeling_method == "manual"
        assert bouts.ethogram is ethogram and list(ethogram["behavior_type"][:]) == ["state", "point"]
        assert bouts.source_video.external_file[0] == str(tmp_path / "a.mp4") and bouts.source_video.rate == 30.0
        assert list(content.events["behavior_events"]["timestamp"][:]) == [0.3]
        assert getattr(bouts, "observation_intervals", None) is None, "all of it was watched"
        assert content.identifier == "a"
    assert read_label_file(tmp_path / "a.nwb").videos["a"].segments[1] == Segment(0.3, 0.3, "peck")


def test_files_of_others(pynwb, tmp_path):
    def write(name, *tables):
        content = pynwb.NWBFile("x", "session-1", datetime(2024, 1, 1, tzinfo=UTC))
        for at, rows in enumerate(tables):
            table = pynwb.epoch.TimeIntervals(name=f"bouts {at}".replace(" ", "_"), description="x")
            table.add_column("behavior", "what")
            table.add_column("mood", "how")
            for start, stop, what in rows:
                table.add_row(start_time=start, stop_time=stop, behavior=what, mood="good")
            content.add_time_intervals(table)
        with pynwb.NWBHDF5IO(str(tmp_path / name), "w") as out:
            out.write(content)
        return tmp_path / name

    found = read_annotations(write("mouse.nwb", [(1.0, 2.0, "rear"), (2.0, 3.5, "groom")]))
    assert found.videos["mouse"].segments == (Segment(1.0, 2.0, "rear"), Segment(2.0, 3.5, "groom"))
    assert [note.sentence for note in found.notes] == ["columns of bouts are not kept: 'mood'"]
    with pytest.raises(AnnotationError, match="2 tables of bouts"):
        read_annotations(write("two.nwb", [(1.0, 2.0, "rear")], [(1.0, 2.0, "rear")]))
    with pytest.raises(AnnotationError, match="no table of bouts"):
        read_annotations(write("none.nwb"))
    with pytest.raises(AnnotationError, match="nan"):
        read_annotations(write("nan.nwb", [(1.0, math.nan, "rear")]))
    (tmp_path / "bad.nwb").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(AnnotationError, match="no sound file of NWB"):
        read_annotations(tmp_path / "bad.nwb")


def test_without_the_packages_it_says_what_to_install(tmp_path, monkeypatch, lstr):
    monkeypatch.setitem(sys.modules, "pynwb", None)
    monkeypatch.setitem(sys.modules, "ndx_ethogram", None)
    with pytest.raises(AnnotationError, match="not installed") as caught:
        to_nwb(WHOLE)
    assert 'pip install "lstr-video[nwb]"' in caught.value.hint
    (tmp_path / "a.nwb").write_bytes(b"")
    with pytest.raises(AnnotationError, match="not installed"):
        read_nwb(tmp_path / "a.nwb", "a")
    code, _, err = lstr("labels", "check", tmp_path / "a.nwb")
    assert code == 2 and "pynwb and ndx-ethogram, which are not installed" in err and "hint: " in err
