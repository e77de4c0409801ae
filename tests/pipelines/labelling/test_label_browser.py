"""Labelling in a real headless Chromium: by keys alone, by dragging, in two tabs, on exact frames."""

import json

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


@pytest.fixture(scope="module")
def times(folder) -> list[float]:
    return index_frames(folder / "a.mp4").times.tolist()


def written(labelling, video: str = "a") -> list[tuple]:
    labelling.project.settle()
    return [(s.label, s.start, s.end) for s in read_labels(labelling.project.path).videos[video].segments]


def add_action(page, name: str) -> None:
    """By the keyboard alone: tab to the field, type, enter."""
    page.focus("#new-action")
    page.keyboard.type(name)
    press(page, "Enter")


def x_of(page, time: float) -> float:
    box = page.locator("#surface").bounding_box()
    return box["x"] + box["width"] * time / page.evaluate("duration")


def drag(page, start: float, end: float) -> None:
    """With the mouse, in the first lane, from one time to another."""
    y = page.locator("#surface").bounding_box()["y"] + 15
    page.mouse.move(x_of(page, start), y)
    page.mouse.down()
    page.mouse.move(x_of(page, end), y, steps=5)
    page.mouse.up()
    settled(page)


def shown_grey(page) -> int:
    return page.evaluate(
        """() => {
          const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.drawImage(still, 0, 0, 1, 1);
          return pen.getImageData(0, 0, 1, 1).data[0];
        }"""
    )


def test_labels_by_keys_alone(labelling, tab, times):
    page = tab()
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
    for _ in range(6):
        press(page, "Control+z")
    assert labels_of(page) == []
    press(page, "Control+z")
    assert page.locator("#told").inner_text() == "Nothing to undo in this video"
    for _ in range(6):
        press(page, "Control+Shift+Z")
    assert labels_of(page) == everything and written(labelling) == segments
    press(page, "ArrowUp", "ArrowUp", "Delete")
    assert len(labels_of(page)) == 2
    press(page, "Shift+C")
    labelling.project.settle()
    assert json.loads(labelling.project.path.read_text())["database"]["a"]["complete"] is True


@pytest.mark.long
def test_the_frame_on_show_is_the_one_whose_time_is_shown(tab, folder, times):
    """By keys, and where a film stops."""
    page = tab()
    for keys, number in (((), 0), (["ArrowRight"] * 4, 4), (["ArrowRight"] * 3, 7), (["ArrowLeft"], 6), (["End"], 19)):
        press(page, *keys)
        assert abs(shown_grey(page) - number * 7) <= 3
        assert page.locator("#clock").inner_text() == f"0:{times[number]:06.3f} / 0:02.033 · frame {number + 1}"
    press(page, "Home", "Shift+ArrowRight")
    assert page.evaluate("now") == max(time for time in times if time < 1.000001)
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


def test_an_edge_is_dragged_from_frame_to_frame(labelling, tab, times):
    put(labelling.project, Label(action(labelling.project, "kick", "i"), times[4], times[12]), "a", "x")
    page = tab()
    drag(page, times[12], 1.49)
    assert labels_of(page) == [("kick", times[4], 1.5)] and page.evaluate("now") == 1.5
    assert written(labelling)[0] == ("kick", times[4], 1.5)
    drag(page, times[4], 1.95)
    assert labels_of(page)[0][1] < 1.5, "an edge does not pass the other"
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
    for page in (one, other):
        settled(page)
        until(page, f"revision === {labelling.project.revision}")
    assert len(labelling.project.state.actions) == 9
    assert one.evaluate("JSON.stringify(actionsInOrder())") == other.evaluate("JSON.stringify(actionsInOrder())")
    for page in (one, other):
        page.reload()
        settled(page)
        assert len(labels_of(page)) == 2


@pytest.mark.long
def test_a_page_without_its_server_says_so_and_runs_nothing_of_a_label_file(chromium, tmp_path):
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
    page = chromium.new_page()
    with label([str(tmp_path / "films")], path) as labelling:
        for kind in ("dialog", "console", "pageerror"):
            page.on(kind, lambda thing: said.append(str(thing)))
        page.goto(labelling.server.address)
        settled(page)
        press(page, *["ArrowDown"] * len(evil))
        page.click("#action-menu summary")
        shown = page.inner_text("body")
        assert all(name in shown for name in evil[:4]) and page.input_value("#video-comment") == evil[0]
        assert page.locator("img").count() == 1 and page.locator("svg[onload]").count() == 0
        assert page.locator("script").count() == 2, "the data and the one script"
        assert not said
    page.evaluate("toggleAction(nothing)")
    until(page, "!$('unsaved').hidden && asked.length === 1")
    assert "lstr label still running" in page.locator("#unsaved").inner_text()
    page.close()


@pytest.fixture
def kick(labelling) -> str:
    """An action with the key i, and two labels of it in the video a: x and y."""
    kick = action(labelling.project, "kick", "i")
    put(labelling.project, Label(kick, 0.1, 0.5), "a", "x")
    put(labelling.project, Label(kick, 1.0, 1.5), "a", "y")
    return kick


@pytest.mark.long
def test_what_somebody_types_outlives_clicks_and_changes_from_elsewhere(labelling, tab, kick):
    page, project, labels = tab(), labelling.project, labelling.project.state.labels
    y = page.locator("#surface").bounding_box()["y"] + 15
    press(page, "ArrowDown", "Enter")
    page.keyboard.type("slips")
    page.mouse.click(x_of(page, 1.25), y)
    settled(page)
    assert page.evaluate("chosen") == "y" and [labels["a"][key].comment for key in "xy"] == ["slips", ""]
    page.focus("#label-subject")
    page.keyboard.type("Anna")
    page.mouse.click(x_of(page, 1.8), y)
    settled(page)
    assert page.evaluate("chosen") is None and [labels["a"][key].subject for key in "xy"] == ["", "Anna"]
    press(page, "Home", "ArrowDown", "Enter")
    page.keyboard.press("Control+a")
    page.keyboard.type("half")
    put(project, Label(kick, 0.1, 0.6, comment="slips"), "a", "x")
    until(page, "labelsOf().x.end === 0.6")
    assert (page.input_value("#label-comment"), page.input_value("#label-end")) == ("half", "0.6")
    page.keyboard.type(" of it")
    press(page, "Escape")
    assert labels["a"]["x"] == Label(kick, 0.1, 0.6, "", "half of it")
    page.fill("#label-end", "0.02")
    press(page, "Enter")
    assert page.input_value("#label-end") == "0.6", "what was refused does not stay"


@pytest.mark.long
def test_a_label_is_stopped_though_another_video_was_opened_before_anything_answered(labelling, tab, times):
    kick, page = action(labelling.project, "kick", "i"), tab(overtaken="ERR_FAILED")
    away = ("**/change", "**/times/*")
    for address in away:
        page.route(address, lambda route: route.abort())
    for key in ("i", "ArrowRight", "ArrowRight", "i", "PageDown"):
        page.keyboard.press(key)
    until(page, "asked.length === 2 && videoId() !== 'a' && isOpening()")
    for address in away:
        page.unroute(address)
    until(page, "!isOpening()")
    settled(page)
    (label,) = labelling.project.state.labels["a"].values()
    assert label == Label(kick, 0.0, times[2])
    assert labels_of(page) == [] and page.evaluate("[now, chosen]") == [0, None]
