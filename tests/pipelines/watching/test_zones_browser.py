"""Zones drawn on the page of a watching service, in a real headless Chromium."""

import threading

import numpy as np
import pytest

from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.service import Service
from tests.pipelines.watching.test_zones import TOP, configure, shown
from tests.support.browser import until
from tests.support.watching import Camera

pytestmark = pytest.mark.long

OVER = "document.querySelector('.source .veil')"


class Watched:
    """A service whose cameras nobody answers for; the pictures of the hall are put on its board."""

    def __init__(self, folder, zones=None):
        self.service = Service(read_config(configure(folder, zones)), lambda text: None)
        self.camera = Camera(self.service.dashboard, "hall")
        self.ended = threading.Event()

    def __enter__(self) -> Service:
        self.service.__enter__()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self.service

    def __exit__(self, *exception):
        self.ended.set()
        self.thread.join(5)
        self.service.__exit__(*exception)

    def run(self) -> None:
        ramp = np.broadcast_to(np.linspace(30, 220, 64, dtype=np.uint8)[None, :, None], (48, 64, 3))
        while not self.ended.wait(0.25):
            self.camera.show(0.1, 0.3, 0.2, frame=ramp)


@pytest.fixture
def tab(chromium):
    """Open the page of a service: tab(service) -> page. Words on the console fail the test."""
    complaints, contexts = [], []

    def open_tab(watching: Service):
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 800}))
        page = contexts[-1].new_page()
        # a service that ends does so before its page
        page.on("console", lambda said: "ERR_CONNECTION" in said.text or complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(watching.server.address)
        until(page, "document.querySelector('.source img')?.naturalWidth === 64")
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints


def edit(page) -> None:
    page.locator(".menu summary").first.click()
    page.get_by_role("button", name="Zones: where motion counts").first.click()
    until(page, "$('zones').open")


def at(page, x: float, y: float) -> tuple[float, float]:
    box = page.locator("#stage").bounding_box()
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def near(zone, corners) -> bool:
    return len(zone) == len(corners) and np.abs(np.array(zone) - np.array(corners)).max() < 0.01


def test_a_zone_is_drawn_changed_and_deleted_by_mouse_and_kept(tab, tmp_path):
    corners = [(0.1, 0.2), (0.6, 0.2), (0.6, 0.9), (0.1, 0.9)]
    with Watched(tmp_path) as watching:
        page = tab(watching)
        assert page.evaluate(f"{OVER}.childElementCount") == 0
        edit(page)
        for corner in corners:
            page.mouse.click(*at(page, *corner))
        page.mouse.click(*at(page, *corners[0]))
        until(page, "!edited.open && edited.zones.length === 1")
        page.mouse.move(*at(page, 0.6, 0.9))
        page.mouse.down()
        page.mouse.move(*at(page, 0.7, 0.8), steps=3)
        page.mouse.up()
        for corner in ((0.8, 0.1), (0.95, 0.1)):  # of another one, closed with its third by a double click
            page.mouse.click(*at(page, *corner))
        page.mouse.dblclick(*at(page, 0.9, 0.3))
        until(page, "edited.zones.length === 2")
        assert watching.zones["hall"] == (), "nothing before it is saved"
        page.click("#zones-save")
        until(page, "!$('zones').open")
        first, second = watching.zones["hall"]
        assert near(first, [*corners[:2], (0.7, 0.8), corners[3]])
        assert near(second, [(0.8, 0.1), (0.95, 0.1), (0.9, 0.3)])
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 2")
        assert "2 zones" in page.locator(".source img").first.get_attribute("alt")
        page.close()
    with Watched(tmp_path) as watching:
        page = tab(watching)
        assert watching.zones["hall"] == (first, second), "over a restart"
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 2")
        edit(page)
        page.mouse.click(*at(page, 0.3, 0.5))  # in the first one
        page.click("#zone-delete")
        page.click("#zones-cancel")
        until(page, "$('zones-told').textContent.includes('Nothing is saved yet') && $('zones').open")
        page.click("#zones-cancel")
        until(page, "!$('zones').open")
        assert watching.zones["hall"] == (first, second)
        edit(page)
        page.mouse.click(*at(page, 0.3, 0.5))
        page.click("#zone-delete")
        page.click("#zones-save")
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 1")
        assert watching.zones["hall"] == (second,)


def test_a_zone_is_drawn_by_keys_alone_and_kept(tab, tmp_path):
    with Watched(tmp_path, TOP) as watching:
        page = tab(watching)
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 1")
        page.locator(".menu summary").first.focus()
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Zones: where motion counts").first.focus()
        page.keyboard.press("Enter")
        until(page, "$('zones').open && $('zones-file').hidden")
        page.locator("#zone-rectangle").focus()
        page.keyboard.press("Enter")
        until(page, "document.activeElement.dataset.corner === '1:0'")
        for key in ("ArrowLeft", "Shift+ArrowUp", "Tab", "ArrowRight", "ArrowRight", "Tab", "+", "Shift+ArrowDown"):
            page.keyboard.press(key)
        assert "Corner 4 of zone 2: 50 % from the left, 80 % from the top" in page.locator("#zones-told").inner_text()
        page.keyboard.press("Tab")
        page.keyboard.press("Delete")
        page.locator("#zones-save").focus()
        page.keyboard.press("Enter")
        until(page, "!$('zones').open")
        drawn = ((0.24, 0.2), (0.77, 0.25), (0.75, 0.75), (0.5, 0.8))
        assert watching.zones["hall"] == (*TOP, drawn)
        page.reload()
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 2")
        page.close()
    with Watched(tmp_path, TOP) as watching:
        assert shown(watching) == ((*TOP, drawn), True)
        page = tab(watching)
        edit(page)
        page.click("#zones-file")
        until(page, "!$('zones').open")
        until(page, f"{OVER}?.querySelectorAll('.zone').length === 1")
        assert shown(watching) == (TOP, False)
