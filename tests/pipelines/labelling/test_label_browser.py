"""The page of `lstr label` in headless Chromium: labels drawn by hand, and the proposals of a model."""

import json
import subprocess
import sys

import pytest

from lstr.extractors.video.exact_frames import index_frames
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.labelling import training
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.proposals import propose
from lstr.pipelines.labelling.values import About, Label, Proposal
from tests.support.browser import HOSTILE, UNAVAILABLE, wait_for
from tests.support.labelling import action, labels_of, put
from tests.support.served import free_port
from tests.support.videos import write_video


def settled(page) -> None:
    """Wait until the page has sent all changes and shows the current frame."""
    wait_for(page, "!asked.length && !loading && !frameAsked && shownNumber === number")


def press(page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    settled(page)


pytestmark = pytest.mark.long

MARKUP = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(2)>",
    "{{body}} <!--",
]
SECOND = f"b {MARKUP[1]}"
TIMES = [0, 20, 40, 60, 200, 205, 210, 400, 420, 440, 460, 480, 500, 520, 540, 560, 580, 600, 900, 1200]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder #1")
    for name, times in (("a", TIMES), (SECOND, range(0, 2400, 20))):
        write_video(folder / f"{name}.mp4", times, options={"g": "6", "bf": "2"})
    return folder


def open_tab(show, labelling):
    page = show(labelling.server.address, expected=UNAVAILABLE)
    settled(page)
    return page


def saved_labels(labelling, video: str = "a") -> list[tuple]:
    """Return the labels of a video in the file, without unlabelled time."""
    labelling.project.settle()
    segments = read_label_file(labelling.project.path).videos[video].segments
    return sorted((s.label, s.start, s.end) for s in segments if s.label != "Ambiguous")


def check_frame(page, number: int) -> None:
    """Check that the visible frame has the displayed number."""
    grey = page.evaluate(
        """() => {
          const pen = new OffscreenCanvas(1, 1).getContext("2d");
          pen.drawImage(still, 0, 0, 1, 1);
          return pen.getImageData(0, 0, 1, 1).data[0];
        }"""
    )
    assert abs(grey - number * 7 % 256) <= 4 and f"frame {number + 1}" in page.locator("#clock").inner_text()


@pytest.fixture
def restart(folder, tmp_path):
    """Open the project, whose second video has labels with markup; also again, at the same address."""
    annotations = [
        {"label": name, "segment": [0.1 * k, 0.1 * k + 0.2], "subject": MARKUP[k - 1], "comment": MARKUP[k - 2]}
        for k, name in enumerate(MARKUP)
    ]
    video = {"annotations": annotations, "comment": MARKUP[0], "complete": True}
    header = {"format": "lstr-labels/1", "actions": [], "subjects": MARKUP}
    (tmp_path / "labels.json").write_text(json.dumps({"lstr": header, "database": {SECOND: video}}))
    port = free_port()
    return lambda: label([str(folder)], tmp_path / "labels.json", port=port)


def test_labels_by_keys_and_by_dragging_are_on_exact_frames(show, folder, restart):
    times = index_frames(folder / "a.mp4").times.tolist()
    with restart() as labelling:
        page = open_tab(show, labelling)
        for keys, number in (((), 0), (["ArrowRight"] * 4, 4), (["ArrowRight"] * 3, 7), (["ArrowLeft"], 6)):
            press(page, *keys)
            check_frame(page, number)
            assert f"{times[number]:06.3f}" in page.locator("#clock").inner_text()
        label_by_keys(page, labelling, times)
        label_by_mouse(page, labelling, times)


def test_two_tabs_and_a_restart(show, folder, restart):
    times = index_frames(folder / "a.mp4").times.tolist()
    with restart() as labelling:
        page = open_tab(show, labelling)
        kick = action(labelling.project, "kick")
        for start in (0.04, 0.2):
            put(labelling.project, Label(kick, start, start + 0.2), "a", f"at {start}")
        wait_for(page, "Object.keys(labelsOf()).length === 2")
        share_with_another_tab(page, open_tab(show, labelling))
        type_a_comment(page, labelling)
        before = saved_labels(labelling)
    for key in ("Home", "n", "ArrowRight", "n"):  # cannot be saved now
        page.keyboard.press(key)
    wait_for(page, "asked.length > 1 && !$('unsaved').hidden")
    with restart() as labelling:
        wait_for(page, "!asked.length && $('unsaved').hidden")
        assert saved_labels(labelling) == sorted([*before, ("Background", 0, times[1])]), "saved by the open tab"
        page.close()


def label_by_keys(page, labelling, times: list[float]) -> None:
    for name in ("kick", "hug"):
        page.focus("#new-action")
        page.keyboard.type(name)
        press(page, "Enter")
    kick, hug = (page.evaluate(f"actionsInOrder().find(([, a]) => a.name === {n!r})[1].key") for n in ("kick", "hug"))
    press(page, "Home", *["ArrowRight"] * 2, kick, "ArrowRight", hug, "ArrowRight", kick, "ArrowRight", hug)
    assert labels_of(page) == [("kick", times[2], times[4]), ("hug", times[3], times[5])]
    press(page, "n", "End", "n")
    labels, segments = labels_of(page), saved_labels(labelling)
    assert labels[2][1:] == (times[5], 2.033333), "includes the last frame"
    press(page, *["Control+z"] * 6)
    assert labels_of(page) == []
    press(page, *["Control+Shift+Z"] * 6)
    assert labels_of(page) == labels and saved_labels(labelling) == segments
    press(page, "ArrowUp", "Delete")
    assert len(labels_of(page)) == 2
    press(page, "Shift+C")
    labelling.project.settle()
    assert json.loads(labelling.project.path.read_text())["database"]["a"]["complete"] is True
    press(page, "Shift+C")


def label_by_mouse(page, labelling, times: list[float]) -> None:
    """Drag the end of a kick; the cursor follows."""
    box, lane = (page.locator(part).bounding_box() for part in ("#surface", ".lane:has-text('kick')"))
    scale, y = box["width"] / page.evaluate("duration"), lane["y"] + lane["height"] / 2
    page.mouse.move(box["x"] + scale * times[4], y)
    page.mouse.down()
    page.mouse.move(box["x"] + scale * 1.49, y, steps=5)
    page.mouse.up()
    settled(page)
    kick = ("kick", times[2], 1.5)
    assert kick in labels_of(page) and kick in saved_labels(labelling) and page.evaluate("now") == 1.5
    press(page, "Control+z")


def share_with_another_tab(page, other_page) -> None:
    """Changes of two tabs at the same time reach both in the same order."""
    pages = (page, other_page)
    assert labels_of(other_page) == labels_of(page)
    for tab, name in zip(pages, ("first", "second"), strict=True):
        tab.evaluate(f"for (let n = 0; n < 4; n++) addAction('{name} ' + n)")
    for tab in pages:
        wait_for(tab, "!asked.length && names.includes('first 3') && names.includes('second 3')")
        settled(tab)
    assert page.evaluate("JSON.stringify(actionsInOrder())") == other_page.evaluate("JSON.stringify(actionsInOrder())")
    count = len(labels_of(page))
    for keys, expected in ((["Home", "n", "ArrowRight", "n"], count + 1), (["Control+z"] * 2, count)):
        press(other_page, *keys)
        wait_for(page, f"Object.keys(labelsOf()).length === {expected}")
    other_page.close()


def type_a_comment(page, labelling) -> None:
    """Text that is being typed survives a change of the same label from elsewhere."""
    press(page, "Home", "ArrowDown", "Enter")
    page.keyboard.type("half")
    key = page.evaluate("chosen")
    before = labelling.project.state.labels["a"][key]
    put(labelling.project, Label(before.action, 0.0, before.end), "a", key)
    wait_for(page, f"labelsOf()[{key!r}].start === 0")
    page.keyboard.type(" of it")
    press(page, "Escape")
    wait_for(page, "!asked.length")
    assert labelling.project.state.labels["a"][key] == Label(before.action, 0.0, before.end, "", "half of it")


def test_the_second_video_plays(show, restart):
    """Forwards and backwards; the markup in its labels is displayed as text."""
    with restart() as labelling:
        page = open_tab(show, labelling)
        press(page, "PageDown")
        wait_for(page, "films && video.readyState > 2")
        page.keyboard.press("l")
        wait_for(page, "rate === 1 && now > 0.4 && !$('screen').classList.contains('still')")
        press(page, "k")
        number = page.evaluate("number")
        check_frame(page, number)
        page.keyboard.press("j")
        wait_for(page, f"rate === -1 && number < {number - 3}")
        press(page, "k")
        check_frame(page, page.evaluate("number"))
        page.click("#action-menu summary")
        text = page.inner_text("body")
        assert all(name in text for name in MARKUP) and page.input_value("#video-comment") == MARKUP[0]
        assert page.locator("img").count() == 1 and page.locator("svg[onload]").count() == 0
        assert page.locator("script").count() == 2, "the data and the page's script"
        page.close()


def review(page, *keys: str) -> tuple | None:
    """Press keys of the review; return the video, action, start and end of the proposal that is then under review."""
    for key in keys:
        page.keyboard.press(key)
        wait_for(page, "!asked.length && (!reviewed || reviewed.ready)")
    values = page.evaluate(
        "reviewed && [videos[reviewed.at].id, nameOf(reviewed.draft.action), reviewed.draft.start, reviewed.draft.end]"
    )
    return values and tuple(values)


def test_label_with_proposals(show, labelling, monkeypatch):
    """Review proposals by keys and in two tabs, then start and stop a training."""
    project = labelling.project

    def offer(video: str, *proposals: tuple, model: str = "m"):
        candidates = [Proposal(name, start, end, peak, 0.5, "") for start, end, name, peak in proposals]
        project.propose(video, lambda state, history: propose(state, history, video, model, candidates, 4.0))

    offer("a", (1.0, 2.0, "kick", 0.9), (0.5, 0.9, "hug", 0.45))
    offer(SECOND, (0.5, 1.5, "kick", 0.52), (2.0, 2.5, "kick", 0.8))
    page = open_tab(show, labelling)
    wait_for(page, "proposalOrder.length === 4")
    assert review(page, "Shift+R") == (SECOND, "kick", 0.5, 1.5), "least certain first"
    assert page.evaluate("rate") == 1 and page.evaluate("loop") == [0, 2.5]
    assert review(page, "Enter") == ("a", "hug", 0.5, 0.9), "of the other video"
    assert review(page, "Delete") == (SECOND, "kick", 2.0, 2.5)
    assert review(page, "h") == ("a", "kick", 1.0, 2.0)
    assert review(page, "Control+z") == (SECOND, "kick", 2.0, 2.5), "undoes the last decision, in any video"
    review(page, "h", "k")
    page.evaluate("seek(1.5)")
    assert review(page, "[") == ("a", "kick", 1.5, 2.0)
    assert review(page, "Escape") == ("a", "kick", 1.0, 2.0), "the first Escape restores the edges"
    page.evaluate("seek(1.5)")
    assert review(page, "]", "Enter") is None
    assert saved_labels(labelling, SECOND) == [("hug", 2.0, 2.5), ("kick", 0.5, 1.5)]
    assert saved_labels(labelling) == [("Background", 0.5, 0.9), ("kick", 1.0, 1.5)]

    offer("a", (0.1, 0.4, HOSTILE, 0.6), (1.6, 1.8, HOSTILE, 0.7), model="another")
    pages = (page, open_tab(show, labelling))
    for tab in pages:
        wait_for(tab, "proposalOrder.length === 2")
        review(tab, "Shift+R")
        assert tab.locator("#proposal-rows img, #proposal-rows script").count() == 0
    review(page, "Enter")
    wait_for(pages[1], "reviewed?.ready && reviewed.draft.start === 1.6")
    for tab, decision in zip(pages, ("accept", "reject"), strict=True):
        tab.evaluate(f"decide('{decision}')")
    for tab in pages:
        wait_for(tab, "!asked.length && !reviewed && openInOrder().length === 0")
    assert labels_of(page) == labels_of(pages[1])
    offer("a", (1.85, 1.95, "kick", 0.6), model="third")
    wait_for(page, "proposalOrder.length === 1")
    put(project, About(complete=True), "a")
    wait_for(page, "proposalOrder.length === 0")
    train(page, monkeypatch)


def train(page, monkeypatch) -> None:
    """Start and stop a training by keys; its progress is visible, also after a reload."""
    progress = {"step": 2, "steps": 7, "name": "train", "share": 0.5, "seconds_left": 60.0}
    code = f"import sys, time\nprint({json.dumps(progress)!r}, file=sys.stderr, flush=True)\ntime.sleep(600)"
    monkeypatch.setattr(
        training, "start", lambda _: subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    )
    page.focus("#train")
    page.keyboard.press("Enter")
    wait_for(page, "!$('train-run').hidden && document.activeElement.id === 'train-stop'")
    wait_for(page, "$('train-left')?.textContent")
    page.reload()
    wait_for(page, "$('train-left')?.textContent")
    page.focus("#train-stop")
    page.keyboard.press("Enter")
    wait_for(page, "$('train-run').hidden")
