"""A labels project that is served, and its page."""

import pytest

from lstr.pipelines.labelling.label import label
from tests.support.labelling import settled


@pytest.fixture
def labelling(folder, tmp_path):
    """The project of the videos in the `folder` of a test's module."""
    with label([str(folder)], tmp_path / "labels.json") as opened:
        yield opened


@pytest.fixture
def tab(chromium, labelling):
    """Open the page. Words on the console and requests to other hosts fail the test."""
    complaints, contexts = [], []

    def open_tab(width: int = 1280, overtaken: str = "nothing", **settings):
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, **settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: overtaken in message.text or complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        own = f"http://127.0.0.1:{labelling.server.port}/"
        page.on("request", lambda request: request.url.startswith((own, "data:")) or complaints.append(request.url))
        page.goto(labelling.server.address)
        settled(page)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints
