"""Label, learn, correct, learn again, by a program that presses the keys of a person: label-loop.json and pictures.

python benchmarks/label_loop.py SHARED/data/urfall --work WORK [--minutes 5]
python benchmarks/label_loop.py demo --work WORK --pictures    of `lstr demo`, whose drawings are ours to show

DATA is a folder with videos/ and labels.json. Serves `lstr label` on the first ten videos and drives the page in
Chromium, by the keyboard alone: six videos are labelled from nothing, with the frames that the labels name; a model is
learnt from the page; its proposals in the other four are accepted, corrected or rejected, what it missed is labelled,
and a second model is learnt. Both are then measured on the other videos, which were never on the page. Where WORK has
both models only the record is made.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from learn import CHROMIUM, PICTURES
from playwright.sync_api import Page, sync_playwright

from lstr.labels.label_set import read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

RECORD = Path(__file__).resolve().parent / "label-loop.json"
LABELLED, CORRECTED = 6, 4
WIDE = {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "light"}
FITS = 0.9
"""IoU from which a proposal is accepted as it is."""
IS_IT = 0.1
"""IoU from which a proposal is of a label at all."""


class Person:
    """Presses keys on the page."""

    def __init__(self, page: Page, truth: dict[str, list[Segment]]):
        self.page, self.truth = page, truth
        self.key_of: dict[str, str] = {}

    def press(self, *keys: str) -> None:
        """One key after the other, each when the page has done what the last one wanted."""
        for key in keys:
            self.page.keyboard.press(key)
            self.wait("!asked.length && !loading && !frameAsked || rate")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Until a condition holds on the page, whose policy forbids playwright's own way."""
        end = perf_counter() + seconds
        while not self.page.evaluate(condition):
            if perf_counter() > end:
                raise TimeoutError(condition)
            self.page.wait_for_timeout(20)

    def add_action(self, name: str) -> None:
        """By its field, which the tab key reaches."""
        self.page.focus("#new-action")
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        self.wait("!asked.length")
        self.page.keyboard.press("Escape")
        self.key_of = dict(self.page.evaluate("Object.values(held.action).map(({ name, key }) => [name, key])"))

    def go_to(self, seconds: float) -> None:
        """To the frame that begins at a time or next to it, by whole seconds and then by frames."""
        self.press("k")
        for key, step in (("Shift+ArrowRight", 1.0), ("Shift+ArrowLeft", -1.0)):
            while (seconds - self.page.evaluate("now")) * step >= 0.7:
                self.press(key)
        nearest = "(at) => times.reduce((b, t, k) => Math.abs(t - at) < Math.abs(times[b] - at) ? k : b, 0)"
        wanted = self.page.evaluate(nearest, seconds)
        while (number := self.page.evaluate("number")) != wanted:
            self.press("ArrowRight" if number < wanted else "ArrowLeft")

    def label_all(self, video: str) -> None:
        """Every label of the video that is not on the page yet, and that it is complete then."""
        for segment in self.truth[video]:
            shown = self.page.evaluate("inOrder().map(([, l]) => [nameOf(l.action), l.start, l.end])")
            if any(name == segment.label and overlap(segment, a, b) > IS_IT for name, a, b in shown if b):
                continue
            self.go_to(segment.start)
            self.press(self.key_of[segment.label])
            self.go_to(segment.end)
            self.press(self.key_of[segment.label])
        self.press("Shift+C")

    def learn(self, minutes: float) -> None:
        """By the button, which the tab key reaches, until the model is on the page."""
        before = self.page.evaluate("lessons.lessons.filter(({ state }) => state === 'learnt').length")
        self.page.select_option("#learn-time", "own")
        self.page.fill("#learn-minutes", f"{minutes:g}")
        self.page.focus("#learn")
        self.page.keyboard.press("Enter")
        done = f"lessons.lessons.filter(({{ state }}) => state === 'learnt').length > {before}"
        while not self.page.evaluate(done):
            failed = self.page.evaluate("lessons.lessons.find(({ state }) => state === 'failed')?.error ?? ''")
            if failed:
                raise RuntimeError(failed)
            self.page.wait_for_timeout(500)
        self.page.keyboard.press("Escape")

    def correct(self) -> None:
        """Decide every proposal by the truth."""
        self.page.evaluate("document.activeElement.blur()")
        self.press("Shift+R")
        while self.page.evaluate("Boolean(reviewed)"):
            self.wait("!reviewed || reviewed.ready")
            video, action, start, end = self.page.evaluate(
                "[videos[reviewed.at].id, nameOf(reviewed.draft.action), reviewed.draft.start, reviewed.draft.end]"
            )
            fitting = [s for s in self.truth[video] if s.label == action and overlap(s, start, end) > IS_IT]
            taken = self.page.evaluate("inOrder().map(([, l]) => [nameOf(l.action), l.start, l.end])")
            best = max(fitting, key=lambda s: overlap(s, start, end), default=None)
            if best and any(name == action and b and overlap(best, a, b) > IS_IT for name, a, b in taken):
                best = None  # found before, in two pieces
            if best is None:
                self.press("Delete")
            elif overlap(best, start, end) >= FITS:
                self.press("Enter")
            else:
                self.go_to(best.start)
                self.press("[")
                self.go_to(best.end)
                self.press("]", "Enter")
            self.wait("!asked.length")


def overlap(segment: Segment, start: float, end: float) -> float:
    """IoU of a label with a stretch."""
    both = min(segment.end, end) - max(segment.start, start)
    return max(0.0, both) / (max(segment.end, end) - min(segment.start, start))


def lstr(*words: object) -> str:
    """What a command prints; it ends this program where it fails."""
    command = [sys.executable, "-m", "lstr_cli", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def photograph(page: Page, name: str, card: str = "body") -> None:
    """A card of the page as it is, or all of it."""
    page.wait_for_timeout(700)
    page.evaluate("document.activeElement.blur()")
    path = str(PICTURES / f"label-{name}.png")
    if card == "body":
        page.screenshot(path=path)
    else:
        page.locator(card).screenshot(path=path)


def main() -> None:
    """Drive the page, measure both models, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5, help="each learning may take")
    parser.add_argument("--narrow", action="store_true", help="390 pixels and dark, as on a telephone; no record")
    parser.add_argument(
        "--pictures", action="store_true", help="of the page, into docs/images; neither writes the record"
    )
    options = parser.parse_args()
    source, work = options.data, options.work.resolve()
    videos, unseen = work / "videos", work / "unseen"
    labels = read_labels(source / "labels.json")
    names = sorted(labels.videos)
    shown = names[: LABELLED + CORRECTED]
    models = [videos / "labels.models" / str(n) / f"model-{n}.lstr" for n in (1, 2)]
    if not models[1].exists():
        for folder, some in ((videos, shown), (unseen, names[len(shown) :])):
            folder.mkdir(parents=True)
            for name in some:
                shutil.copy2(source / "videos" / f"{name}.mp4", folder)
        truth = {name: sorted(labels.videos[name].segments, key=lambda s: s.start) for name in names}
        look = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"} if options.narrow else WIDE
        on_the_page(videos, lambda page: drive(Person(page, truth), options.minutes, shown, options.pictures), look)
    found = json.loads((videos / "labels.json").read_text())["lstr"]["proposals"].values()
    evaluation = json.loads(lstr("evaluate", *models, unseen, source / "labels.json", "--json"))
    print(evaluation["sentence"])
    if options.pictures or options.narrow:
        return
    record = {
        "videos": {"labelled": LABELLED, "corrected": CORRECTED, "never shown": len(names) - len(shown)},
        "minutes": options.minutes,
        "proposals": Counter(one["state"] for video in found for one in video["found"]),
        "sentence": evaluation["sentence"],
        "ahead": {mean: evaluation["comparison"][0][mean] for mean in ("mAP", "event F1")},
        "models": [
            {"mAP": one["lstr"]["mAP"], "interval": one["interval"], "events": one["events"]["together"]}
            for one in evaluation["checkpoints"]
        ],
    }
    write_json(RECORD, {**record, **about_machine()})


def on_the_page(videos: Path, act: Callable[[Page], object], look: dict[str, Any]) -> None:
    """Serve `lstr label` on the videos of a folder, and do something on its page."""
    begin = videos.parents[1]  # so that the commands on the page have paths that anybody may have
    command = [sys.executable, "-m", "lstr_cli", "label", str(videos.relative_to(begin)), "--no-browser"]
    home = os.environ | {"LSTR_HOME": str(videos.parent / "home")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=home, cwd=begin) as serving:
        assert serving.stdout is not None
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
                page = browser.new_page(**look)
                page.goto(serving.stdout.readline().strip())
                act(page)
                browser.close()
        finally:
            serving.terminate()


def drive(person: Person, minutes: float, shown: list[str], with_pictures: bool) -> None:
    """The whole loop on the page."""
    page = person.page
    picture = partial(photograph, page) if with_pictures else lambda *of: None
    person.wait("!loading && !frameAsked && shownNumber === number")
    for action in sorted({segment.label for name in shown for segment in person.truth[name]}):
        person.add_action(action)
    for video in shown[:LABELLED]:
        person.label_all(video)
        if video == shown[2]:
            picture("page")
        person.press("PageDown")
        person.wait("!loading && !frameAsked && shownNumber === number")
    person.learn(minutes)
    picture("learnt", "#lessons")
    person.wait("search.model && !search.is_running", 300)
    page.evaluate("document.activeElement.blur()")
    person.press("Shift+R")
    picture("proposal")
    page.keyboard.press("Escape")
    person.correct()
    for video in shown[LABELLED:]:
        page.evaluate("(id) => goVideo(videos.findIndex((video) => video.id === id))", video)
        person.wait("!loading && !frameAsked && shownNumber === number")
        person.label_all(video)
    person.learn(minutes)
    picture("better", "#lessons")


if __name__ == "__main__":
    main()
