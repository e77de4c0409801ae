"""Labelling in a real headless Chromium: by hand, and with the proposals of a model."""

import json
import socket
import subprocess
import sys

import pytest

from lstr.extractors.video.exact_frames import index_frames
from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling import training
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.proposals import Candidate, propose
from lstr.pipelines.labelling.values import About, Label
from tests.support.browser import until
from tests.support.labelling import labels_of, press, put, settled
from tests.support.videos import write_video

HOSTILE = "<img src=x onerror=alert(1)>"
EVIL = ["</script><script>alert(1)</script>", HOSTILE, "<svg onload=alert(2)>", "{{body}} <!--"]
OTHER = f"b {HOSTILE}"
TIMES = [0, 20, 40, 60, 200, 205, 210, 400, 420, 440, 460, 480, 500, 520, 540, 560, 580, 600, 900, 1200]
FILMS = {"g": "6", "bf": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder #1")
    write_video(folder / "a.mp4", TIMES, options=FILMS)
    write_video(folder / f"{OTHER}.mp4", range(0, 2400, 20), options=FILMS)
    return folder


@pytest.fixture
def tab(chromium):
    """Open the page of a project: tab(labelling). Words on the console and requests to other hosts fail the test."""
    complaints, contexts = [], []

    def open_tab(labelling):
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 900}))
        page = contexts[-1].new_page()
        expected = ("ERR_", "status of 4")  # of a server that has ended, and of what it refuses
        page.on("console", lambda said: any(text in said.text for text in expected) or complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        own = (f"http://127.0.0.1:{labelling.server.port}/", "data:")
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(request.url))
        page.goto(labelling.server.address)
        settled(page)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert not complaints


def written(labelling, video: str = "a") -> list[tuple]:
    """The labels of a video in the file, without time that is not labelled."""
    labelling.project.settle()
    segments = read_labels(labelling.project.path).videos[video].segments
    return sorted((s.label, s.start, s.end) for s in segments if s.label != "Ambiguous")


def add_action(page, name: str) -> None:
    page.focus("#new-action")
    page.keyboard.type(name)
    press(page, "Enter")


def drag(page, start: float, end: float) -> None:
    """With the mouse, in the lane of kicks, from one time to another."""
    box, lane = (page.locator(part).bounding_box() for part in ("#surface", ".lane:has-text('kick')"))
    scale, y = box["width"] / page.evaluate("duration"), lane["y"] + lane["height"] / 2
    page.mouse.move(box["x"] + scale * start, y)
    page.mouse.down()
    page.mouse.move(box["x"] + scale * end, y, steps=5)
    page.mouse.up()
    settled(page)


def check_frame(page, number: int, within: int = 4) -> None:
    """The frame on show is the one whose number is shown."""
    grey = page.evaluate(
        """() => {
          const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.drawImage(still, 0, 0, 1, 1);
          return pen.getImageData(0, 0, 1, 1).data[0];
        }"""
    )
    assert abs(grey - number * 7 % 256) <= within and f"frame {number + 1}" in page.locator("#clock").inner_text()


@pytest.mark.long
def test_label(tab, folder, tmp_path):
    """By keys and by dragging, on exact frames, in two tabs, and over an end of the server."""
    times = index_frames(folder / "a.mp4").times.tolist()
    marks = [
        {"label": name, "segment": [0.1 * at, 0.1 * at + 0.2], "subject": EVIL[at - 1], "comment": EVIL[at - 2]}
        for at, name in enumerate(EVIL)
    ]
    ours = {"format": "lstr-labels/1", "actions": [], "subjects": EVIL}
    other = {"annotations": marks, "comment": EVIL[0], "complete": True}
    (tmp_path / "labels.json").write_text(json.dumps({"lstr": ours, "database": {OTHER: other}}))
    with socket.socket() as free:  # the default port may be that of another test when the server starts again
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with label([str(folder)], tmp_path / "labels.json", port=port) as labelling:
        page = tab(labelling)
        for keys, number in (((), 0), (["ArrowRight"] * 4, 4), (["ArrowRight"] * 3, 7), (["ArrowLeft"], 6)):
            press(page, *keys)
            check_frame(page, number)
            assert f"{times[number]:06.3f}" in page.locator("#clock").inner_text()
        label_by_keys(page, labelling, times)
        drag(page, times[4], 1.49)
        assert ("kick", times[2], 1.5) in labels_of(page) and page.evaluate("now") == 1.5
        assert ("kick", times[2], 1.5) in written(labelling)
        press(page, "Control+z")
        share_with_another_tab(page, tab(labelling), labelling)
        type_a_comment(page, labelling)
        play(page)
        before = written(labelling)
        press(page, "PageUp")
    for key in ("Home", "n", "ArrowRight", "n"):  # which nobody can save now
        page.keyboard.press(key)
    until(page, "asked.length > 1 && !$('unsaved').hidden")
    with label([str(folder)], tmp_path / "labels.json", port=port) as labelling:
        until(page, "!asked.length && $('unsaved').hidden")
        assert written(labelling) == sorted([*before, ("Background", 0, times[1])]), "the open tab goes on"
        page.close()


def label_by_keys(page, labelling, times: list[float]) -> None:
    add_action(page, "kick")
    add_action(page, "hug")
    kick, hug = (page.evaluate(f"actionsInOrder().find(([, a]) => a.name === {n!r})[1].key") for n in ("kick", "hug"))
    press(page, "Home", *["ArrowRight"] * 2, kick, "ArrowRight", hug, "ArrowRight", kick, "ArrowRight", hug)
    assert labels_of(page) == [("kick", times[2], times[4]), ("hug", times[3], times[5])]
    press(page, "n", "End", "n")
    everything, segments = labels_of(page), written(labelling)
    assert everything[2][1:] == (times[5], 2.033333), "the last frame is in it"
    for _ in range(6):
        press(page, "Control+z")
    assert labels_of(page) == []
    for _ in range(6):
        press(page, "Control+Shift+Z")
    assert labels_of(page) == everything and written(labelling) == segments
    press(page, "ArrowUp", "Delete")
    assert len(labels_of(page)) == 2
    press(page, "Shift+C")
    labelling.project.settle()
    assert json.loads(labelling.project.path.read_text())["database"]["a"]["complete"] is True
    press(page, "Shift+C")


def share_with_another_tab(page, other, labelling) -> None:
    """Work of two tabs at once is in both, in one order."""
    assert labels_of(other) == labels_of(page)
    page.evaluate("for (let n = 0; n < 4; n++) addAction('one ' + n)")
    other.evaluate("for (let n = 0; n < 4; n++) addAction('other ' + n)")
    for one in (page, other):
        until(one, "!asked.length && names.includes('one 3') && names.includes('other 3')")
        settled(one)
    assert page.evaluate("JSON.stringify(actionsInOrder())") == other.evaluate("JSON.stringify(actionsInOrder())")
    count = len(labels_of(page))
    press(other, "Home", "n", "ArrowRight", "n")
    until(page, f"Object.keys(labelsOf()).length === {count + 1}")
    press(other, "Control+z", "Control+z")
    until(page, f"Object.keys(labelsOf()).length === {count}")
    other.close()


def type_a_comment(page, labelling) -> None:
    """What somebody types outlives a change of the same label from elsewhere."""
    press(page, "Home", "ArrowDown", "Enter")
    page.keyboard.type("half")
    key = page.evaluate("chosen")
    held = labelling.project.state.labels["a"][key]
    put(labelling.project, Label(held.action, 0.0, held.end), "a", key)
    until(page, f"labelsOf()[{key!r}].start === 0")
    page.keyboard.type(" of it")
    press(page, "Escape")
    until(page, "!asked.length")
    assert labelling.project.state.labels["a"][key] == Label(held.action, 0.0, held.end, "", "half of it")


def play(page) -> None:
    """Forwards and backwards in the other video, whose labels hold markup: all of it is text."""
    press(page, "PageDown")
    until(page, "films && video.readyState > 2")
    page.keyboard.press("l")
    until(page, "rate === 1 && now > 0.4 && !$('screen').classList.contains('still')")
    press(page, "k")
    number = page.evaluate("number")
    check_frame(page, number)
    page.keyboard.press("j")
    until(page, f"rate === -1 && number < {number - 3}")
    press(page, "k")
    check_frame(page, page.evaluate("number"))
    page.click("#action-menu summary")
    shown = page.inner_text("body")
    assert all(name in shown for name in EVIL) and page.input_value("#video-comment") == EVIL[0]
    assert page.locator("img").count() == 1 and page.locator("svg[onload]").count() == 0
    assert page.locator("script").count() == 2, "the data and the one script"


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


@pytest.mark.long
def test_label_with_proposals(tab, labelling, monkeypatch):
    """Reviewed by keys, in two tabs; and a training that is begun from the page, of which another program says."""
    project = labelling.project

    def offer(video: str, *found: tuple, model: str = "m"):
        candidates = [Candidate(name, start, end, peak, 0.5) for start, end, name, peak in found]
        project.propose(video, lambda state, history: propose(state, history, video, model, candidates, 4.0))

    offer("a", (1.0, 2.0, "kick", 0.9), (0.5, 0.9, "hug", 0.45))
    offer(OTHER, (0.5, 1.5, "kick", 0.52), (2.0, 2.5, "kick", 0.8))
    page = tab(labelling)
    until(page, "proposalOrder.length === 4")
    review(page, "Shift+R")
    assert on_show(page) == (OTHER, "kick", 0.5, 1.5), "the least sure one"
    assert page.evaluate("rate") == 1 and page.evaluate("loop") == [0, 2.5]
    review(page, "Enter")
    assert on_show(page) == ("a", "hug", 0.5, 0.9), "it goes on in the other video"
    review(page, "Delete")
    assert on_show(page) == (OTHER, "kick", 2.0, 2.5)
    review(page, "h")
    assert on_show(page) == ("a", "kick", 1.0, 2.0)
    review(page, "Control+z")
    assert on_show(page) == (OTHER, "kick", 2.0, 2.5), "its last decision is taken back, in whichever video it was"
    review(page, "h", "k")
    page.evaluate("seek(1.5)")
    review(page, "[")
    assert on_show(page) == ("a", "kick", 1.5, 2.0)
    review(page, "Escape")
    assert on_show(page) == ("a", "kick", 1.0, 2.0), "the first escape takes edges back, the second one ends the review"
    page.evaluate("seek(1.5)")
    review(page, "]", "Enter")
    assert on_show(page) is None
    assert written(labelling, OTHER) == [("hug", 2.0, 2.5), ("kick", 0.5, 1.5)]
    assert written(labelling) == [("Background", 0.5, 0.9), ("kick", 1.0, 1.5)]

    offer("a", (0.1, 0.4, HOSTILE, 0.6), (1.6, 1.8, HOSTILE, 0.7), model="another")
    other = tab(labelling)
    for one in (page, other):
        until(one, "proposalOrder.length === 2")
        review(one, "Shift+R")
        assert one.locator("#proposal-rows img").count() == 0
    review(page, "Enter")
    until(other, "reviewed?.ready && reviewed.draft.start === 1.6")
    page.evaluate("decide('accept')")
    other.evaluate("decide('reject')")
    for one in (page, other):
        until(one, "!asked.length && !reviewed && openInOrder().length === 0")
    assert labels_of(page) == labels_of(other)
    offer("a", (1.85, 1.95, "kick", 0.6), model="third")
    until(page, "proposalOrder.length === 1")
    put(project, About(complete=True), "a")
    until(page, "proposalOrder.length === 0")
    train(page, monkeypatch)


TRAINING = """
import json, sys, time
said = {"step": 2, "steps": 7, "name": "train", "share": 0.5, "seconds_left": 60.0}
print(json.dumps(said), file=sys.stderr, flush=True)
time.sleep(600)
"""


def train(page, monkeypatch) -> None:
    """Its progress is shown, also after the page is loaded again, and it is stopped."""
    program = [sys.executable, "-c", TRAINING]
    started = lambda command: subprocess.Popen(program, stderr=subprocess.PIPE, text=True)  # noqa: E731
    monkeypatch.setattr(training, "start", started)
    page.focus("#train")
    page.keyboard.press("Enter")
    until(page, "!$('train-run').hidden && document.activeElement.id === 'train-stop'")
    until(page, "$('train-left')?.textContent")
    page.reload()
    until(page, "$('train-left')?.textContent")
    page.focus("#train-stop")
    page.keyboard.press("Enter")
    until(page, "$('train-run').hidden")
