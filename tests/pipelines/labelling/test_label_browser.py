"""Labelling in a real headless Chromium: by keys alone, by dragging, in two tabs, on exact frames."""

import json
import re

import pytest

from lstr.extractors.video.exact_frames import index_frames
from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.values import Label
from tests.support.browser import until
from tests.support.labelling import action, labels_of, press, put, settled
from tests.support.videos import write_video

HOSTILE = "<img src=x onerror=alert(1)>"
TIMES = [0, 20, 40, 60, 200, 205, 210, 400, 420, 440, 460, 480, 500, 520, 540, 560, 580, 600, 900, 1200]
FILMS = {"g": "6", "bf": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder #1")
    write_video(folder / "a.mp4", TIMES, options=FILMS)
    write_video(folder / f"b {HOSTILE}.mp4", range(0, 2400, 20), options=FILMS)
    return folder


def written(labelling, video: str = "a") -> list[tuple]:
    labelling.project.settle()
    return [(s.label, s.start, s.end) for s in read_labels(labelling.project.path).videos[video].segments]


def add_action(page, name: str) -> None:
    """By the keyboard alone: tab to the field, type, enter."""
    page.focus("#new-action")
    page.keyboard.type(name)
    press(page, "Enter")


def shown_grey(page) -> int:
    return page.evaluate(
        """() => {
          const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.drawImage(still, 0, 0, 1, 1);
          return pen.getImageData(0, 0, 1, 1).data[0];
        }"""
    )


def test_labels_by_keys_alone(labelling, tab, folder):
    page = tab()
    times = index_frames(folder / "a.mp4").times.tolist()
    add_action(page, "kick")
    add_action(page, "hug")
    assert page.locator(".lane kbd").all_inner_texts() == ["i", "h", "n"], "k is a key of the page"
    press(page, "ArrowRight", "ArrowRight", "i", "ArrowRight", "h", "ArrowRight", "i", "ArrowRight", "h")
    assert labels_of(page) == [("kick", times[2], times[4]), ("hug", times[3], times[5])]
    press(page, "n", "End", "n")
    everything = labels_of(page)
    assert everything[2] == ("Nothing happens", times[5], 2.033333), "the last frame is in it"
    segments = written(labelling)
    assert segments[:2] == [("kick", times[2], times[4]), ("hug", times[3], times[5])]
    assert ("Ambiguous", 0.0, 0.0) not in segments and [s for s in segments if s[0] == "Ambiguous"] == []
    for _ in range(6):
        press(page, "Control+z")
    assert labels_of(page) == []
    press(page, "Control+z")
    assert page.locator("#told").inner_text() == "There is nothing to undo in this video"
    for _ in range(6):
        press(page, "Control+Shift+Z")
    assert labels_of(page) == everything and written(labelling) == segments
    press(page, "ArrowUp", "ArrowUp", "Delete")
    assert len(labels_of(page)) == 2
    press(page, "Shift+C")
    assert (
        json.loads(labelling.project.path.read_text())["database"]["a"]["complete"]
        or labelling.project.settle() is None
    )
    assert json.loads(labelling.project.path.read_text())["database"]["a"]["complete"] is True


def test_the_frame_on_show_is_the_one_whose_time_is_told(tab, folder):
    page = tab()
    index = index_frames(folder / "a.mp4")
    for keys, number in (((), 0), (["ArrowRight"] * 4, 4), (["ArrowRight"] * 3, 7), (["ArrowLeft"], 6), (["End"], 19)):
        press(page, *keys)
        assert abs(shown_grey(page) - number * 7) <= 3
        assert page.locator("#clock").inner_text() == f"0:{index.times[number]:06.3f} / 0:02.033 · frame {number + 1}"
    press(page, "Home", "Shift+ArrowRight")
    assert page.evaluate("now") == index.times[index.times < 1.000001][-1]


@pytest.mark.long
def test_a_film_plays_and_stops_on_an_exact_frame(tab, folder):
    page = tab()
    press(page, "PageDown")
    until(page, "films && video.readyState > 2")
    page.keyboard.press("l")
    until(page, "rate === 1 && now > 0.4 && !$('screen').classList.contains('still')")
    press(page, "k")
    number = page.evaluate("number")
    assert number > 8 and abs(shown_grey(page) - number * 7 % 256) <= 4
    assert f"frame {number + 1}" in page.locator("#clock").inner_text()
    page.keyboard.press("j")
    until(page, f"rate === -1 && number < {number - 3}")
    press(page, "k")
    assert abs(shown_grey(page) - page.evaluate("number") * 7 % 256) <= 4


def test_an_edge_is_dragged_from_frame_to_frame(labelling, tab, folder):
    times = index_frames(folder / "a.mp4").times.tolist()
    put(labelling.project, Label(action(labelling.project, "kick", "i"), times[4], times[12]), "a", "x")
    page = tab()
    box = page.locator("#surface").bounding_box()
    duration = page.evaluate("duration")

    def x(time: float) -> float:
        return box["x"] + box["width"] * time / duration

    page.mouse.move(x(times[12]), box["y"] + 15)
    page.mouse.down()
    page.mouse.move(x(1.49), box["y"] + 15, steps=5)
    assert page.evaluate("dragged.end") == 1.5
    page.mouse.up()
    settled(page)
    assert labels_of(page) == [("kick", times[4], 1.5)] and page.evaluate("now") == 1.5
    assert written(labelling)[0] == ("kick", times[4], 1.5)
    page.mouse.move(x(times[4]), box["y"] + 15)
    page.mouse.down()
    page.mouse.move(x(1.95), box["y"] + 15, steps=5)
    page.mouse.up()
    settled(page)
    start = labels_of(page)[0][1]
    assert start < 1.5, "an edge does not pass the other"
    press(page, "Control+z", "Control+z")
    assert labels_of(page) == [("kick", times[4], times[12])]


@pytest.mark.long
def test_two_tabs_do_not_lose_each_others_work(labelling, tab):
    one, other = (tab(overtaken="status of 4") for _ in range(2))  # a browser notes each answer that is a refusal
    add_action(one, "kick")
    until(other, "names.includes('kick')")
    press(one, "i", "ArrowRight", "ArrowRight", "i")
    until(other, "Object.keys(labelsOf()).length === 1")
    press(other, "End", "i", "ArrowLeft", "ArrowLeft", "i")
    until(one, "Object.keys(labelsOf()).length === 2")
    kicks = [segment for segment in written(labelling) if segment[0] == "kick"]
    assert labels_of(one) == labels_of(other) == kicks and len(kicks) == 2
    one.evaluate("for (let n = 0; n < 4; n++) addAction('one ' + n)")
    other.evaluate("for (let n = 0; n < 4; n++) addAction('other ' + n)")
    settled(one)
    settled(other)
    until(one, f"revision === {labelling.project.revision}")
    until(other, f"revision === {labelling.project.revision}")
    assert len(labelling.project.state.actions) == 9
    assert one.evaluate("JSON.stringify(actionsInOrder())") == other.evaluate("JSON.stringify(actionsInOrder())")
    for page in (one, other):
        page.reload()
        settled(page)
        assert len(labels_of(page)) == 2


def test_it_says_so_when_nothing_is_saved(chromium, folder, tmp_path):
    with label([str(folder)], tmp_path / "labels.json") as labelling:
        page = chromium.new_page()
        page.goto(labelling.server.address)
        settled(page)
    page.evaluate("toggleAction(nothing)")
    until(page, "!$('unsaved').hidden && asked.length === 1")
    assert re.search("lstr label still running", page.locator("#unsaved").inner_text())
    page.close()


@pytest.mark.long
def test_nothing_of_a_label_file_runs(chromium, tmp_path):
    """Names and comments from elsewhere, in each place that the page shows them: every kind of markup is text."""
    evil = [
        "</script><script>alert(1)</script>",
        HOSTILE,
        "<svg onload=alert(2)>",
        "javascript:alert(3)",
        "{{body}} <!--",
    ]
    (tmp_path / "films").mkdir()
    write_video(tmp_path / "films" / f"{evil[1]}.mp4", TIMES)
    path, marks = tmp_path / "labels.json", []
    for at, name in enumerate(evil):
        others = {"subject": evil[at - 1], "comment": evil[at - 2]}
        marks.append({"label": name, "segment": [0.1 * at, 0.1 * at + 0.2], **others})
    ours = {"format": "lstr-labels/1", "actions": [], "subjects": evil}
    video = {"annotations": marks, "comment": evil[0], "complete": True}
    path.write_text(json.dumps({"lstr": ours, "database": {evil[1]: video}}))
    said = []
    with label([str(tmp_path / "films")], path) as labelling:
        page = chromium.new_page()
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(labelling.server.address)
        settled(page)
        for _ in evil:
            press(page, "ArrowDown")
        page.click("#action-menu summary")
        shown = page.inner_text("body")
        assert all(name in shown for name in evil[:4]) and page.input_value("#video-comment") == evil[0]
        assert page.locator("img").count() == 1 and page.locator("svg[onload]").count() == 0
        assert page.locator("script").count() == 2, "the data and the one script"
        page.close()
    assert not said
