"""Learning from the page in a real headless Chromium: by keys alone, in two tabs, in every width and colour."""

import pytest

from lstr.pipelines.labelling.job import LabelOptions, label
from lstr.pipelines.labelling.lesson import LEARNT, STOPPED, Lesson, files_of
from lstr.pipelines.labelling.values import Label
from tests.support.browser import until
from tests.support.labelling import action, put, write_two
from tests.support.lessons import options, write_labelled

pytestmark = pytest.mark.long
HOSTILE = "<img src=x onerror=alert(1)>"


def counts(labels: int, found: int, false: int) -> dict:
    return {"labels": labels, "found": found, "false_alarms": false, "rate": 6.0 * false, "interval": [1.3, 44.2]}


def moment(video: str, start: float, end: float) -> dict:
    return {"video": video, "action": HOSTILE, "start": start, "end": end}


MEASURED = {
    "sentence": "caught 17 of 20 actions",
    "split": "measured on models that each lacked the video",
    "mAP": 0.81,
    "interval": [0.7, 0.9],
    "hours": 1 / 6,
    "videos": 8,
    "together": counts(20, 17, 2),
    "actions": {HOSTILE: counts(20, 17, 2), "unused": counts(0, 0, 0)},
}
DIFFERENCES = {
    "verdict": {"sentence": "model 3 is better than model 2, by more than chance.", "better": "model 3"},
    "videos": ["a", "b"],
    "actions": {HOSTILE: {"labels": 20, "found_old": 15, "found_new": 17, "false_old": 3, "false_new": 2}},
    "caught": [moment("b", 0.5, 0.9)],
    "missed": [moment("a", 0.1, 0.3)],
    "gone": [moment("a", 0.4, 0.5), moment("b", 0.6, 0.8)],
    "come": [moment("gone since", 0.2, 0.4)],
    "left_out": ["wave"],
    "old": 2,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_two(tmp_path_factory.mktemp("videos"), 1000)


@pytest.fixture
def labelling(folder, tmp_path):
    """A project with models that were learnt before, and one that was stopped."""
    models = tmp_path / "labels.models"
    for lesson in (
        Lesson(1, 0.0, 2, 5, state=LEARNT, measured=MEASURED, name=HOSTILE),
        Lesson(2, 0.0, 2, 9, state=LEARNT, measured={**MEASURED, "mAP": None, "interval": None}),
        Lesson(3, 0.0, 2, 9, state=LEARNT, measured=MEASURED, differences=DIFFERENCES, warnings=("jump: 1 example",)),
        Lesson(4, 0.0, 2, 9, state=STOPPED),
    ):
        files_of(models, lesson.number).write(lesson)
        files_of(models, lesson.number).model.write_bytes(b"a model")
    with label(LabelOptions([str(folder)], tmp_path / "labels.json")) as opened:
        put(opened.project, Label(action(opened.project, HOSTILE, "i"), 0.1, 0.5), "a", "x")
        yield opened


@pytest.fixture
def tab(chromium):
    """Open a project's page: tab(labelling, width). Words on the console fail the test."""
    complaints, contexts = [], []

    def open_tab(labelling, width: int = 1280, **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: "status of 400" in message.text or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(labelling.server.address)
        until(page, "!asked.length && !loading && !frameAsked && shownNumber === number && fetched === lesson.version")
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints


def text(page, selector: str) -> str:
    return " ".join(page.locator(selector).inner_text().split())


def test_the_last_models_with_what_they_catch(labelling, tab):
    page = tab(labelling)
    until(page, "document.querySelectorAll('.model').length === 3")  # the list comes by itself, after the labels
    assert page.locator(".model[open]").count() == 1
    assert text(page, "#model-3 .result") == "Caught 17 of 20 (85 %), 2 false alarms in 10 min: 12 an hour [1.3, 44]"
    details = text(page, ".model[open] .details")
    assert "mAP) 0.81 [0.70, 0.90]" in details and "17 of 20" in details and "unused" not in details
    assert "lstr detect VIDEO -m" in details and page.locator("img[src=x]").count() == 0
    assert "Of 20 labels it catches 17, before 15; false alarms: 2, before 3." in details
    assert "held out for both" in details and "only one of the two knows it: wave" in details
    page.click("#model-2")
    until(page, "document.querySelectorAll('.model[open]').length === 2")
    second = text(page, ".model[data-number='2'] .details")
    assert "mAP" not in second and "Not compared with model 1: what one was measured on" in second


def test_a_moment_is_gone_to(labelling, tab):
    page = tab(labelling)
    page.locator(".moments button").first.click()
    until(page, "videoId() === 'b' && !loading && Math.abs(now - 0.5) < 0.021")
    assert page.evaluate("view[0] <= now && now <= view[1]")
    assert page.evaluate("document.activeElement.id") == "surface"
    page.locator(".moments button").last.click()
    until(page, "$('told').textContent.includes('is not among these videos')")


def test_by_keys_alone(labelling, tab):
    page = tab(labelling)
    page.focus("#model-3")
    page.keyboard.press("Enter")
    until(page, "!document.querySelector('.model[open]')")
    page.keyboard.press("Space")
    until(page, "document.querySelector('.model[open]') !== null")
    assert page.evaluate("rate") == 0, "the space did not play"
    page.focus("#model-name-3")
    page.keyboard.type("with the night")
    page.keyboard.press("Enter")
    until(page, "$('model-3').textContent.includes('with the night')")
    assert labelling.lessons.files(3).read().name == "with the night"
    assert page.evaluate("document.activeElement.id") == "model-name-3"


def test_what_was_stopped_is_removed_in_both_tabs(labelling, tab):
    one, other = tab(labelling), tab(labelling)
    assert "Model 4 was stopped" in text(one, "#learn-unfinished")
    one.locator("#learn-unfinished button", has_text="Remove").click()
    for page in (one, other):
        until(page, "$('learn-unfinished').hidden && fetched === lesson.version")
    assert not (labelling.lessons.folder / "4").exists()


def test_a_time_of_ones_own(labelling, tab):
    page = tab(labelling)
    assert "From 1 label in 1 video" in text(page, "#learn-from")
    page.select_option("#learn-time", "own")
    assert page.evaluate("document.activeElement.id") == "learn-minutes"
    page.fill("#learn-minutes", "45")
    assert page.locator("#learn-command code").text_content().endswith("--time 45m")
    page.fill("#learn-minutes", "0")
    page.click("#learn")
    assert labelling.lessons.state()["run"] is None, "the field takes no such number"
    page.keyboard.press("i")
    assert len(page.evaluate("Object.keys(labelsOf())")) == 1, "a letter in a field is no key of the page"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_each_screen(labelling, tab, width, scheme):
    page = tab(labelling, width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('#lessons details').forEach((fold) => { fold.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = "(element) => element.getBoundingClientRect().right > innerWidth"
    assert not page.evaluate(f"[...document.querySelectorAll('#lessons *')].some({beyond})"), "its commands too"


@pytest.mark.slow
def test_a_model_is_learnt_from_the_page(chromium, tab, tmp_path):
    """The button, the steps, a reload on the way, and the result, all in real."""
    root = write_labelled(tmp_path)
    with label(options(root, root / "out" / "labels.json")) as labelling:
        page = tab(labelling)
        page.focus("#learn")
        page.keyboard.press("Enter")
        until(page, "!$('learn-run').hidden")
        assert page.evaluate("document.activeElement.id") == "learn-stop"
        page.wait_for_selector("#learn-steps .on", timeout=300_000)
        assert page.locator("#learn-steps li").count() == 7 and "left in all" in text(page, "#learn-left")
        page.reload()
        page.wait_for_selector("#learn-steps .on", timeout=300_000)
        page.wait_for_selector("#model-1", timeout=300_000)
        assert text(page, "#model-1 .result").startswith("Caught ")
        with page.expect_popup() as opened:
            page.click("text=Report")
        report = opened.value
        until(report, "document.querySelector('video') && document.querySelector('video').readyState > 0")
        page.click("#use-model-1")
        until(page, "$('use-model-1').disabled")
        assert "in use" in text(page, "#model-1")
        page.context.close()  # a page complains of a server that is gone
