"""Training from the page in a real headless Chromium: in two tabs."""

from dataclasses import replace

import pytest

from lstr.pipelines.labelling.job import LabelOptions, label
from lstr.pipelines.labelling.training import Progress
from lstr.pipelines.labelling.values import Label
from tests.support.browser import until
from tests.support.labelling import action, put, write_two
from tests.support.training_page import options, write_labelled

pytestmark = pytest.mark.long
HOSTILE = "<img src=x onerror=alert(1)>"
MODELS = [
    {"number": 2, "path": "my labels/model-2.lstr", "result": ["caught 17 of 20 actions", "mAP 0.81"], "report": True},
    {"number": 1, "path": "model-1.lstr", "result": [HOSTILE, "mAP 0.50"], "report": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_two(tmp_path_factory.mktemp("videos"), 1000)


@pytest.fixture
def labelling(folder, tmp_path):
    """A project with a label and two models."""
    with label(LabelOptions([str(folder)], tmp_path / "labels.json")) as opened:
        opened.training._models = MODELS
        put(opened.project, Label(action(opened.project, HOSTILE, "i"), 0.1, 0.5), "a", "x")
        yield opened


def text(page, selector: str) -> str:
    return " ".join(page.locator(selector).inner_text().split())


def show(labelling, **state) -> None:
    """Let the training have a state, and every page hear of it."""
    for name, value in state.items():
        setattr(labelling.training, f"_{name}", value)
    labelling.training._notify()


def test_models_progress_and_failures_in_two_tabs(labelling, tab):
    pages = [tab(), tab()]
    page = pages[0]
    until(page, "document.querySelectorAll('#models li').length === 2")  # the state comes after the page
    assert page.locator("img[src=x]").count() == 0
    latest = text(page, "#model-2")
    assert "Caught 17 of 20 actions mAP 0.81" in latest and "-m 'my labels/model-2.lstr' -o timeline" in latest
    assert page.locator("#model-2 a").count() == 1 and page.locator("#model-1 a").count() == 0
    assert HOSTILE in text(page, "#model-1")
    pages[0].focus("#train")
    at = Progress(3, 2, 7, "train the model", 0.25, 150.0)
    show(labelling, progress=at, warnings=["jump has 1 example", HOSTILE])
    for page in pages:
        until(page, "!$('train-run').hidden && $('train-form').hidden")
        assert text(page, "#train-left") == "Model 3: step 2 of 7, train the model; about 3 min left in all"
        assert page.get_attribute("#train-run [role=progressbar]", "aria-valuenow") == "25"
        assert text(page, "#train-warnings summary") == "2 warnings"
    assert pages[0].evaluate("document.activeElement.id") == "train-stop"
    show(labelling, progress=replace(at, share=0.5))
    until(pages[1], "$('train-bar').style.getPropertyValue('--part') === '0.5'")
    show(labelling, progress=None, error="There are too few labels.", hint="label more.")
    for page in pages:
        until(page, "!$('train-error').hidden && !$('train-form').hidden")
        assert text(page, "#train-error") == "Training failed: There are too few labels. Label more."
    assert pages[0].evaluate("document.activeElement.id") == "train"


@pytest.mark.slow
def test_a_model_is_trained_from_the_page(chromium, tab, tmp_path):
    """The button, the progress, a reload on the way, a label meanwhile, and the result, all in real."""
    root = write_labelled(tmp_path)
    with label(options(root, root / "out" / "labels.json")) as labelling:
        page = tab(of=labelling)
        page.focus("#train")
        page.keyboard.press("Enter")
        until(page, "!$('train-run').hidden")
        assert page.evaluate("document.activeElement.id") == "train-stop"
        page.wait_for_selector("#train-left:has-text('left in all')", timeout=300_000)
        page.reload()
        page.wait_for_selector("#train-left:has-text('left in all')", timeout=300_000)
        before = page.evaluate("Object.keys(labelsOf()).length")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("n")
        until(page, f"Object.keys(labelsOf()).length === {before + 1} && !asked.length")
        page.wait_for_selector("#model-1", timeout=300_000)
        assert text(page, "#model-1").startswith("Model 1 · Report Caught ")
        until(page, "search.model === 'model-1.lstr'")
        with page.expect_popup() as opened:
            page.click("text=Report")
        report = opened.value
        until(report, "document.querySelector('video') && document.querySelector('video').readyState > 0")
        page.context.close()  # a page complains of a server that is gone
