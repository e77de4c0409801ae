"""The pages that `lstr detect` leaves: a report a source, an index over several, videos inside where asked for."""

import json

import pytest

from lstr.settings import parse_bytes
from tests.support.pages import Page


def test_several_sources_get_an_index(lstr, small_set, tmp_path):
    arguments = ["-c", small_set.checkpoint, "-o", tmp_path / "out", "--set", f"labels={small_set.labels}"]
    code, _, err = lstr("detect", small_set.features, *arguments)
    assert code == 0 and f"index: {tmp_path / 'out' / 'index.html'}" in err
    index = Page(tmp_path / "out" / "index.html")
    data = index.data
    assert [video["page"] for video in data["videos"]] == [f"./scene_0{k}.html" for k in range(4)]
    assert all(video["truth"] for video in data["videos"])
    assert "random weights" in index.markup and not data["failed"]
    report = Page(tmp_path / "out" / "scene_00.html").data
    assert report["recipe"] == json.loads((small_set.features / "recipe.json").read_text())
    assert report["index"] == "./index.html"


@pytest.mark.long
def test_one_source_gets_no_index_and_its_video_inside(lstr, small_set, tmp_path):
    video = small_set.videos / "scene_03.mp4"
    arguments = ["-c", small_set.checkpoint, "-o", tmp_path / "out", "-f", "html", "--set", "embed=1MB"]
    assert lstr("detect", video, *arguments)[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scene_03.html"]
    page = Page(tmp_path / "out" / "scene_03.html")
    assert page.data["index"] is None and page.data["video"] is None and page.data["embedded"] == {"type": "video/mp4"}
    assert len(page.texts[3]) == (video.stat().st_size + 2) // 3 * 4


@pytest.mark.parametrize(
    ("text", "size"), [("20MB", 20_000_000), ("1.5 GiB", 3 * 2**29), ("500k", 500_000), ("0", 0), ("12b", 12)]
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1TB", "20 apples"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="20MB"):
        parse_bytes(text)
