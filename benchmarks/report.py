"""How a report of two hours and fifty classes opens, scrolls and zooms in headless Chromium; writes report.json.

Made-up scores: what is measured is the page. python benchmarks/report.py [--opens 7]
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from lstr.labels.segment import Segment
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine
from lstr.pipelines.reports.timeline_page import write_report

CHUNKS, N_CLASSES, N_SEGMENTS = 28_800, 50, 5000
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
FRAMES = """async (count) => {
  const times = [];
  let last = performance.now();
  for (let i = 0; i < count; i++) {
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  return times;
}"""


def write_big(path: Path) -> None:
    """Two hours: smooth random scores, and segments of all classes with labels and events."""
    rng = np.random.default_rng(0)
    classes = ["Background", *(f"action {c}" for c in range(1, N_CLASSES + 1))]
    walk = np.cumsum(rng.normal(0, 0.25, (CHUNKS, len(classes))), 0)
    scores = np.exp(3 * np.sin(walk))
    starts = np.sort(rng.integers(0, CHUNKS - 20, N_SEGMENTS)) / 4
    segments = [
        {"label": classes[1 + i % N_CLASSES], "start": start, "end": start + 3.0, "score": rng.random()}
        for i, start in enumerate(starts)
    ]
    events = [{"event": "started", **s, "time": s["start"] + 0.25} for s in segments]
    timeline = {"source": "day.mp4", "duration": CHUNKS / 4, "classes": classes, "chunks": CHUNKS, "segments": segments}
    write_report(
        path,
        timeline,
        scores / scores.sum(1, keepdims=True),
        truth=[Segment.from_dict(s) for s in segments[::2]],
        events=events,
    )


def open_page(browser: Browser, path: Path) -> tuple[Page, float]:
    """A new page, and seconds from asking for it until it was drawn."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    start = perf_counter()
    page.goto(path.as_uri())
    page.evaluate(DRAWN)
    return page, perf_counter() - start


def intervals(page: Page, act, count: int = 120) -> dict:
    """Milliseconds between the frames that the page shows while `act(page)` goes on."""
    handle = page.evaluate_handle(f"() => ({{ done: ({FRAMES})({count}) }})")
    act(page)
    times = np.array(handle.evaluate("(frames) => frames.done"))
    return {"p50_ms": round(float(np.median(times)), 1), "p95_ms": round(float(np.quantile(times, 0.95)), 1)}


def scroll(page: Page) -> None:
    """Turn the wheel over the lanes, to the end of the page and back."""
    page.mouse.move(900, 600)
    for turn in range(100):
        page.mouse.wheel(0, 60 if turn < 50 else -60)


def zoom(page: Page) -> None:
    """Zoom in and out by the keyboard, all lanes in sight."""
    page.focus("#surface")
    for turn in range(40):
        page.keyboard.press("+" if turn % 10 < 5 else "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opens", type=int, default=7)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "big.html"
        start = perf_counter()
        write_big(path)
        record = {"write_seconds": round(perf_counter() - start, 2), "megabytes": round(path.stat().st_size / 1e6, 2)}
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        opens = []
        for _ in range(arguments.opens):
            page, seconds = open_page(browser, path)
            opens.append(seconds)
            if len(opens) < arguments.opens:
                page.close()
        record["open_seconds"] = {"median": round(float(np.median(opens)), 2), "worst": round(max(opens), 2)}
        record["elements"] = page.evaluate("document.getElementsByTagName('*').length")
        record |= {"scroll": intervals(page, scroll), "zoom": intervals(page, zoom)}
        about = {**about_machine(), "browser": f"Chromium {browser.version}, headless, no GPU"}
        browser.close()
    size = {"chunks": CHUNKS, "classes": N_CLASSES, "segments": N_SEGMENTS}
    write_json(Path(__file__).with_name("report.json"), {**about, **size, **record})
    print(record)


if __name__ == "__main__":
    main()
