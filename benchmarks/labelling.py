"""How long a key takes on the page of `lstr label`: two hours of video, 5,000 labels, Chromium; writes labelling.json.

From the key to what is painted: `first`, the next picture; `shown`, that with what the key has changed, after this is
on the disk; `saved`, when the next change may be sent. python benchmarks/labelling.py [--times 40]
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from exact_frames import write_counted
from playwright.sync_api import Page, sync_playwright

from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.labelling.job import LabelOptions, label
from lstr.pipelines.provenance import about_machine

SECONDS, N_LABELS, N_ACTIONS = 7200, 5000, 12
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
WATCH = """() => {
  window.took = [];
  const after = (act) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = act;
    channel.port2.postMessage(0);  /* comes after the picture is painted */
  });
  addEventListener("keydown", (event) => {
    const began = event.timeStamp, one = {}, before = revision;
    after(() => { one.first = performance.now() - began; });
    const look = () => after(() => {
      if (frameAsked || (revision === before && (asked.length || sending))) return look();
      one.shown = performance.now() - began;
    });
    const settle = () => after(() => {
      if (asked.length || sending || frameAsked) return settle();
      one.saved = performance.now() - began;
      took.push(one);
    });
    look();
    settle();
  }, true);
}"""
KEYS = {
    "a frame on": ["ArrowRight"],
    "a second on": ["Shift+ArrowRight"],
    "the next label": ["ArrowDown"],
    "start and stop a label": ["i", "ArrowRight", "i", "ArrowRight"],
    "move an edge": ["ArrowDown", "ArrowRight", "]"],
    "undo and do again": ["Control+z", "Control+Shift+Z"],
    "zoom": ["+", "+", "-", "-"],
    "to the ends": ["End", "Home"],
}
COUNTED = {"start and stop a label": "i", "move an edge": "]"}
"""Of these only this key is timed"""


def write_labels(path: Path) -> None:
    """5,000 labels of two subjects, at random."""
    rng = np.random.default_rng(0)
    starts = np.sort(rng.uniform(0, SECONDS - 10, N_LABELS))
    lines = ["video,start,end,label,subject"]
    for at, start in enumerate(starts):
        end = start + rng.uniform(0.2, 4)
        lines.append(f"day,{start:.2f},{end:.2f},action {1 + at % N_ACTIONS},{('Anna', 'Ben')[at % 2]}")
    path.write_text("\n".join(lines) + "\n")


def time_keys(page: Page, keys: list[str], times: int, counted: str | None) -> dict[str, dict[str, float]]:
    """Milliseconds after each key, pressed so many times in turns; the next one is pressed when all is done."""
    found = []
    for _ in range(times):
        for key in keys:
            page.evaluate("took.length = 0")
            page.keyboard.press(key)
            while not (done := page.evaluate("took.length && !loading && took.at(-1).shown ? took.at(-1) : null")):
                page.wait_for_timeout(5)
            if counted in (None, key):
                found.append(done)
    return {
        kind: {
            "median": round(float(np.median([one[kind] for one in found])), 1),
            "p95": round(float(np.quantile([one[kind] for one in found], 0.95)), 1),
            "worst": round(max(one[kind] for one in found), 1),
        }
        for kind in ("first", "shown", "saved")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as held, sync_playwright() as driver:
        folder = Path(held)
        os.environ["LSTR_HOME"] = str(folder / "home")
        (folder / "videos").mkdir()
        write_counted(folder / "videos" / "day.mp4", SECONDS)
        write_labels(folder / "events.csv")
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        options = LabelOptions([str(folder / "videos")], folder / "labels.json", [str(folder / "events.csv")])
        with label(options) as labelling:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(labelling.server.address)
            while not page.evaluate("duration > 1 && !loading && shownNumber === number"):
                page.wait_for_timeout(50)
            page.evaluate("addAction('imitate')")  # its key is i
            page.wait_for_timeout(500)
            page.evaluate(WATCH)
            page.keyboard.press("Home")
            record = {name: time_keys(page, keys, arguments.times, COUNTED.get(name)) for name, keys in KEYS.items()}
        about = {**about_machine(), "browser": f"Chromium {browser.version}, headless, no GPU"}
        browser.close()
    size = {"seconds": SECONDS, "labels": N_LABELS, "actions": N_ACTIONS, "times": arguments.times}
    write_json(Path(__file__).with_name("labelling.json"), {**about, **size, "ms": record})
    for name, one in record.items():
        print(name, one)


if __name__ == "__main__":
    main()
