"""What a person types and presses in a real headless Chromium while something else happens: nothing is lost."""

import pytest

from lstr.extractors.video.exact_frames import index_frames
from lstr.pipelines.labelling.values import Label
from tests.support.browser import until
from tests.support.labelling import action, labels_of, press, put, settled, write_two

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_two(tmp_path_factory.mktemp("videos"), 2000)


@pytest.fixture
def kick(labelling) -> str:
    """An action with the key i, and two labels of it in the video a: x and y."""
    kick = action(labelling.project, "kick", "i")
    put(labelling.project, Label(kick, 0.1, 0.5), "a", "x")
    put(labelling.project, Label(kick, 1.0, 1.5), "a", "y")
    return kick


def click_lane(page, time: float) -> None:
    box = page.locator("#surface").bounding_box()
    page.mouse.click(box["x"] + box["width"] * time / page.evaluate("duration"), box["y"] + 15)
    settled(page)


def test_a_click_on_the_timeline_keeps_what_was_typed(labelling, tab, kick):
    page, labels = tab(), labelling.project.state.labels
    press(page, "ArrowDown", "Enter")
    page.keyboard.type("slips")
    click_lane(page, 1.25)
    assert page.evaluate("chosen") == "y" and [labels["a"][key].comment for key in "xy"] == ["slips", ""]
    page.focus("#label-subject")
    page.keyboard.type("Anna")
    click_lane(page, 1.8)
    assert page.evaluate("chosen") is None and [labels["a"][key].subject for key in "xy"] == ["", "Anna"]


def test_a_change_from_elsewhere_leaves_the_field_in_which_somebody_types(labelling, tab, kick):
    page, project = tab(), labelling.project
    press(page, "ArrowDown", "Enter")
    page.keyboard.type("half")
    put(project, Label(kick, 0.1, 0.6), "a", "x")
    until(page, "labelsOf().x.end === 0.6")
    assert (page.input_value("#label-comment"), page.input_value("#label-end")) == ("half", "0.6")
    page.keyboard.type(" of it")
    press(page, "Escape")
    assert project.state.labels["a"]["x"] == Label(kick, 0.1, 0.6, "", "half of it")
    press(page, "Enter")
    put(project, Label(kick, 0.1, 0.6, "", "all of it"), "a", "x")
    until(page, "$('label-comment').value === 'all of it'")
    page.fill("#label-end", "0.02")
    press(page, "Enter")
    assert page.input_value("#label-end") == "0.6", "what was refused does not stay"


def test_a_label_is_stopped_though_another_video_was_opened_before_anything_answered(labelling, tab, folder):
    kick, page = action(labelling.project, "kick", "i"), tab(overtaken="ERR_FAILED")
    away = ("**/change", "**/times/*")
    for address in away:
        page.route(address, lambda route: route.abort())
    for key in ("i", "ArrowRight", "ArrowRight", "i", "PageDown"):
        page.keyboard.press(key)
    until(page, "asked.length === 2 && videoId() === 'b' && isOpening()")
    for address in away:
        page.unroute(address)
    until(page, "!isOpening()")
    settled(page)
    (label,) = labelling.project.state.labels["a"].values()
    assert label == Label(kick, 0.0, index_frames(folder / "a.mp4").times[2])
    assert labels_of(page) == [] and page.evaluate("[now, chosen]") == [0, None]
