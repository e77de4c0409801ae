"""Proposals reviewed in a real headless Chromium: by keys alone, by dragging, in two tabs, of a real model."""

import json
import shutil
import time

import pytest

from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.proposals import Candidate, propose
from lstr.pipelines.labelling.values import About
from tests.support.browser import until
from tests.support.labelling import labels_of, press, put, settled
from tests.support.videos import write_video

HOSTILE = "<img src=x onerror=alert(1)>"
FILMS = {"g": "6", "bf": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    for name in "ab":
        write_video(folder / f"{name}.mp4", range(0, 4000, 20), options=FILMS)
    return folder


@pytest.fixture
def proposing(labelling):
    """proposing(video, *(start, end, class, peak)): lets a model propose that in a video."""

    def offer(video: str, *found: tuple, model: str = "m"):
        candidates = [Candidate(name, start, end, peak, 0.5) for start, end, name, peak in found]
        labelling.project.propose(video, lambda state, history: propose(state, history, video, model, candidates, 4.0))

    return offer


def review(page, *keys: str) -> None:
    """Press keys of the review, each when the page is ready for it."""
    for key in keys:
        page.keyboard.press(key)
        until(page, "!asked.length && (!reviewed || reviewed.ready)")


def on_show(page) -> tuple | None:
    """(video, action, start, end) of the proposal on show, as the person has it."""
    found = page.evaluate(
        "reviewed && [videos[reviewed.at].id, nameOf(reviewed.draft.action), reviewed.draft.start, reviewed.draft.end]"
    )
    return found and tuple(found)


def states(labelling) -> list[str]:
    return sorted(one.state for held in labelling.project.state.proposals.values() for one in held.values())


def test_review_by_keys_alone(labelling, tab, proposing):
    proposing("a", (1.0, 2.0, "kick", 0.9), (3.0, 3.5, "hug", 0.45))
    proposing("b", (0.5, 1.5, "kick", 0.52), (2.0, 2.5, "kick", 0.8))
    page = tab()
    until(page, "proposalOrder.length === 4")
    assert page.locator("#proposal-count").inner_text().startswith("4 ")
    review(page, "Shift+R")
    assert on_show(page) == ("b", "kick", 0.5, 1.5) and page.locator("#title").inner_text() == "b"
    assert page.evaluate("rate") == 1 and page.evaluate("loop") == [0, 2.5]
    review(page, "Enter")
    assert labels_of(page) == [] and on_show(page) == ("a", "hug", 3.0, 3.5), "it goes on in the other video"
    assert "Near miss: 0.45 < 0.50 · 3 left" in page.locator("#review-facts").inner_text()
    review(page, "Delete")
    assert labels_of(page) == [("kick", 0.5, 1.5)] and on_show(page) == ("b", "kick", 2.0, 2.5)
    review(page, "h")
    assert states(labelling) == ["accepted", "corrected", "open", "rejected"]
    assert on_show(page) == ("a", "kick", 1.0, 2.0)
    review(page, "Control+z")
    assert on_show(page) == ("b", "kick", 2.0, 2.5), "its last decision is taken back, in whichever video it was"
    review(page, "ArrowDown", "ArrowUp", "h", "k")
    page.evaluate("seek(1.5)")
    review(page, "[")
    assert on_show(page) == ("a", "kick", 1.5, 2.0)
    review(page, "Escape")
    assert on_show(page) == ("a", "kick", 1.0, 2.0), "the first escape takes edges back, the second one ends the review"
    page.evaluate("seek(1.8)")
    review(page, "]", "Enter")
    assert on_show(page) is None and page.locator("#told").inner_text().startswith("kick: corrected")
    labelling.project.settle()
    segments = {
        name: [(s.label, s.start, s.end) for s in video.segments if s.label != "Ambiguous"]
        for name, video in read_labels(labelling.project.path).videos.items()
    }
    assert segments["b"] == [("kick", 0.5, 1.5), ("hug", 2.0, 2.5)]
    assert segments["a"] == [("kick", 1.0, 1.8), ("Background", 3.0, 3.5)]
    settled(page)
    press(page, "Shift+R")
    assert page.locator("#told").inner_text() and on_show(page) is None


@pytest.mark.long
def test_what_another_tab_decides_is_not_asked_again(labelling, tab, proposing):
    proposing("a", (1.0, 2.0, "kick", 0.6), (3.0, 3.5, "kick", 0.9))
    one, other = (tab(overtaken="status of 4") for _ in range(2))
    for page in (one, other):
        until(page, "proposalOrder.length === 2")
        review(page, "Shift+R")
        assert on_show(page)[2] == 1.0
    review(one, "Enter")
    until(other, "reviewed?.ready && reviewed.draft.start === 3")
    one.evaluate("decide('accept')")
    other.evaluate("decide('reject')")
    for page in (one, other):
        until(page, "!asked.length && !reviewed && openInOrder().length === 0")
        assert page.locator("#proposals").is_hidden() or page.locator("#review-them").is_disabled()
    assert labels_of(one) == labels_of(other) and len(labels_of(one)) == 2
    assert states(labelling)[0] == "accepted" and len(states(labelling)) == 2
    proposing("b", (1.0, 2.0, HOSTILE, 0.6), model="another")
    for page in (one, other):
        until(page, "proposalOrder.length === 1")
        assert page.locator("#proposal-rows img").count() == 0
    put(labelling.project, About(complete=True), "b")
    until(one, "proposalOrder.length === 0")


@pytest.mark.slow
def test_a_real_model_proposes_while_the_page_is_in_use(chromium, small_set, tmp_path):
    videos = tmp_path / "videos"
    shutil.copytree(small_set.videos, videos)
    (videos / "bad.mp4").write_bytes(b"no video at all")
    with label([str(videos)], tmp_path / "labels.json", model=small_set.checkpoint) as labelling:
        page = chromium.new_page()
        page.goto(labelling.server.address)
        until(page, "search.model === 'checkpoint.pt'")
        while labelling.proposer.status.is_running:
            page.wait_for_timeout(100)
        until(page, "!search.is_running && proposalOrder.length > 0")
        assert "bad cannot be searched: " in page.locator("#search").inner_text()
        before = page.evaluate("proposalOrder.length")
        review(page, "Shift+R", "Enter", "Delete")
        until(page, f"proposalOrder.length === {before - 2}")
        page.close()
        decided = states(labelling)
        assert {"accepted", "rejected"} <= set(decided)
    database = json.loads((tmp_path / "labels.json").read_text())
    assert len(database["lstr"]["proposals"]) == 4
    with label([str(videos)], tmp_path / "labels.json", model=small_set.checkpoint) as again:
        while (status := again.proposer.status).is_running:
            time.sleep(0.1)
        assert states(again) == decided and status.failed[0][0] == "bad"
        assert status.total == 1, "searched videos are not searched again"
