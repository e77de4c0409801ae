"""What a person may name as input, and what each video is then called."""

import os

import pytest

from lstr.errors import MissingPathError
from lstr.extractors.video.inputs import find_videos

ODD = ("a/x.mp4", "b/x.MP4", "b/deep er/Ünïcode – 動画.mkv", "-dash.avi", "b/it's [1].webm", "b/notes.txt", "b/raw.y4m")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ODD:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    monkeypatch.chdir(tmp_path / "in")
    return tmp_path / "in"


def test_a_folder_keeps_its_folders(folder):
    assert list(find_videos([folder])) == ["-dash", "a/x", "b/deep er/Ünïcode – 動画", "b/it's [1]", "b/x"]
    assert list(find_videos(["."])) == list(find_videos([folder]))
    assert list(find_videos([folder], (".y4m",))) == ["b/raw"]


def test_files_are_called_by_their_stem(folder):
    assert find_videos(["-dash.avi", "b/raw.y4m", "b/it's [1].webm"]).keys() == {"-dash", "raw", "it's [1]"}
    assert len(find_videos(["a/x.mp4", folder / "a" / "x.mp4", "a"])) == 1, "one file named three times"


def test_patterns_are_expanded_and_keep_folders_after_their_first_wildcard(folder):
    assert list(find_videos(["*/x.*"])) == ["a/x", "b/x"]
    assert list(find_videos([f"{folder}/b/**/*.mkv"])) == ["deep er/Ünïcode – 動画"]
    assert list(find_videos(["b/*"])) == ["deep er/Ünïcode – 動画", "it's [1]", "x"]
    assert list(find_videos(["b/*.y4m"])) == ["raw"], "an ending that is spelt out is taken at its word"
    with pytest.raises(MissingPathError, match="No video matches"):
        find_videos(["b/*.gif"])


def test_same_stems_never_collide(folder):
    with pytest.raises(MissingPathError, match="both be called 'x'") as caught:
        find_videos(["a/x.mp4", "b/x.MP4"])
    assert f"common folder '{folder}'" in caught.value.hint
    assert list(find_videos(["a/x.mp4", "b/x.MP4"], root=folder)) == ["a/x", "b/x"]
    (folder / "a" / "x.avi").touch()
    assert list(find_videos(["a"])) == ["x.avi", "x.mp4"] and list(find_videos(["a/*.mp4"])) == ["x"]
    with pytest.raises(MissingPathError, match="is not in"):
        find_videos(["a/x.mp4"], root="b")


def test_two_endings_of_one_name_are_two_videos(folder):
    """A whole folder was refused for them."""
    for name in ("x.avi", "x.mp4.mkv", "y.mp4"):
        (folder / "a" / name).touch()
    expected = ["a/x.avi", "a/x.mp4", "a/x.mp4.mkv", "a/y"]
    assert [name for name in find_videos(["."]) if name.startswith("a/")] == expected
    assert list(find_videos(["a/x.mp4", folder / "a" / "x.avi"])) == ["x.mp4", "x.avi"], "however they are named"
    assert list(find_videos(["a/x.mp4"])) == ["x"]
    (folder / "a" / "y.avi").symlink_to("y.mp4")
    assert "y" in find_videos(["a"]), "a link and its file are one video"


def test_what_else_a_folder_holds_is_told(folder):
    """A folder's GIFs, broken links and pipes were neither read nor failed, and nothing said so."""
    for name in ("1.gif", "2.GIF", "page.ps", "b/x.lanes.mp4", "LICENSE"):
        (folder / name).touch()
    (folder / "gone.mp4").symlink_to("nowhere.mp4")
    os.mkfifo(folder / "pipe.mp4")
    told = []
    find_videos([folder], tell=told.append)
    assert told == [
        f"{folder}: not read as videos: 2 .gif, 2 .mp4 that is no file (a broken link, or a pipe), 1 .ps, 1 .txt, "
        "1 .y4m, 1 that lstr wrote, 1 more; a file that is named is read, whatever its ending."
    ]
    find_videos(["-dash.avi", "a"], tell=told.append)
    assert len(told) == 1, "of a file alone, and of a folder with nothing else, there is nothing to tell"
    find_videos([folder], tell=told.append, known=("page.ps", "1.gif"))
    assert " 1 .gif," in told[1] and ".ps" not in told[1], "what the user knows of is not told"


def test_hidden_files_of_a_folder_are_no_videos(folder):
    """macOS puts one beside each file on a disk of another system; each was a video that failed."""
    (folder / "a" / "._x.mp4").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    told = []
    assert list(find_videos(["a"], tell=told.append)) == ["x"] == list(find_videos(["a/*"])), told
    assert told == ["a: not read as videos: 1 hidden; a file that is named is read, whatever its ending."]
    assert list(find_videos(["a/._x.mp4"])) == ["._x"], "one that is named is meant"


@pytest.mark.parametrize("name", ["a" * 300, "b " * 5000], ids=["a name", "a line"])
def test_a_line_that_is_no_path_is_a_sentence(name):
    """What was named as a list may be none: the system refuses what is longer than a path can be."""
    with pytest.raises(MissingPathError, match="… is no path .File name too long") as caught:
        find_videos([name])
    assert caught.value.hint and len(str(caught.value)) < 200


def test_linked_folders_are_followed_once(folder):
    os.symlink(folder, folder / "a" / "round")
    os.symlink(folder / "b", folder / "z")
    assert "b/x" in find_videos([folder]) and len(find_videos([folder])) == 5
