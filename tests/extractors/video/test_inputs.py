"""Finding videos in files, folders and patterns, and their ids."""

import os

import pytest

from lstr.errors import MissingPathError
from lstr.extractors.video.inputs import find_videos

ODD = ("a/x.mp4", "b/x.MP4", "b/deep er/Ünïcode – 動画.mkv", "-dash.avi", "b/it's [1].webm", "b/notes.txt", "b/raw.y4m")
CAMCORDERS = ("1.MTS", "1.m2ts", "1.vob", "1.mod", "1.asf")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ODD:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    monkeypatch.chdir(tmp_path / "in")
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        (["."], ["-dash", "a/x", "b/deep er/Ünïcode – 動画", "b/it's [1]", "b/x"]),
        (["-dash.avi", "b/raw.y4m", "b/it's [1].webm"], ["-dash", "raw", "it's [1]"]),
        (["a/x.mp4", "./a/x.mp4", "a"], ["x"]),  # the same file three times
        (["*/x.*"], ["a/x", "b/x"]),
        (["b/**/*.mkv"], ["deep er/Ünïcode – 動画"]),
        (["b/*"], ["deep er/Ünïcode – 動画", "it's [1]", "x"]),
        (["b/*.y4m"], ["raw"]),  # a suffix in a pattern has priority over the known suffixes
    ],
)
def test_files_folders_and_patterns(folder, patterns, ids):
    assert sorted(find_videos(patterns)) == sorted(ids)
    (folder / "camcorders").mkdir()
    for name in CAMCORDERS:
        (folder / "camcorders" / name).touch()
    assert len(find_videos([folder / "camcorders"])) == len(CAMCORDERS)
    for missing, part in (("b/*.gif", ""), ("b " * 5000, "…")):  # a name that is too long for a path is shortened
        with pytest.raises(MissingPathError, match=rf"^(?=.*{part}).{{1,199}}\n"):
            find_videos([missing])


def test_ids_of_videos_with_equal_stems(folder):
    with pytest.raises(MissingPathError, match="'x'"):
        find_videos(["a/x.mp4", "b/x.MP4"])
    assert list(find_videos(["a/x.mp4", "b/x.MP4"], root=folder)) == ["a/x", "b/x"]
    with pytest.raises(MissingPathError):
        find_videos(["a/x.mp4"], root="b")
    for name in ("x.avi", "x.mp4.mkv", "y.mp4"):
        (folder / "a" / name).touch()
    expected = ["a/x.avi", "a/x.mp4", "a/x.mp4.mkv", "a/y"]
    assert [name for name in find_videos(["."]) if name.startswith("a/")] == expected
    assert list(find_videos(["a/x.mp4", folder / "a" / "x.avi"])) == ["x.mp4", "x.avi"]
    assert list(find_videos(["a/x.mp4"])) == list(find_videos(["a/x.mp4", "a/x.mp4"])) == ["x"]
    (folder / "a" / "y.avi").symlink_to("y.mp4")
    assert "y" in find_videos(["a"]), "a link and its file are one video"


def test_skipped_files_of_a_folder_are_reported(folder):
    """GIFs, broken links, pipes and hidden files, which macOS writes next to each video."""
    for name in ("1.gif", "2.GIF", "page.ps", "b/x.lanes.mp4", "a/._x.mp4", "l.json.journal"):
        (folder / name).touch()
    (folder / "gone.mp4").symlink_to("nowhere.mp4")
    os.mkfifo(folder / "pipe.mp4")
    sentences = []
    assert len(find_videos([folder], notify=sentences.append)) == 5
    (sentence,) = sentences
    assert all(counted in sentence for counted in (str(folder), "3 .mp4", "2 .gif", "1 hidden", "1 .y4m"))
    assert "journal" not in sentence
    find_videos(["-dash.avi"], notify=sentences.append)
    assert len(sentences) == 1, "a single file has nothing to report"
    find_videos([folder], notify=sentences.append, known=("page.ps", "1.gif"))
    assert " 1 .gif," in sentences[1] and ".ps" not in sentences[1]
    assert list(find_videos(["a"])) == ["x"] == list(find_videos(["a/*"]))
    assert list(find_videos(["a/._x.mp4"])) == ["._x"], "named by its path"
