"""What a person may name as input, and what each video is then called."""

import os

import pytest

from lstr.extractors.errors import MissingPathError
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
    with pytest.raises(MissingPathError, match=r"x\.avi and .*x\.mp4") as caught:
        find_videos(["a"])
    assert "'a/*.mp4'" in caught.value.hint and list(find_videos(["a/*.mp4"])) == ["x"]
    with pytest.raises(MissingPathError, match="is not in"):
        find_videos(["a/x.mp4"], root="b")


def test_linked_folders_are_followed_once(folder):
    os.symlink(folder, folder / "a" / "round")
    os.symlink(folder / "b", folder / "z")
    assert "b/x" in find_videos([folder]) and len(find_videos([folder])) == 5
