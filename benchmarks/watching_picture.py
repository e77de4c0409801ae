"""The picture of the page of `lstr watch` in the README: drawn scenes that the demo's model has not learnt from.

lstr demo -o demo && python benchmarks/watching_picture.py demo

Three of the held-out videos are played as cameras, the service decides on them for a minute and a half, and the page is
photographed as it is then.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from learn import CHROMIUM, PICTURES
from PIL import Image
from playing import make_film, playing
from playwright.sync_api import sync_playwright

from lstr.labels.label_set import read_labels

NAMES = ("hall", "stairs", "garage")
SECONDS = 90
FPS = 30
COLOURS = 256  # of the picture: the scenes are noise, which makes it large otherwise


def photograph(address: str, picture: Path) -> None:
    """The page as a person sees it who has had it open for a while."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 1180}, color_scheme="light")
        page.goto(address)
        page.wait_for_timeout(1000 * SECONDS)
        page.evaluate("$('add').hidden = document.querySelector('footer').hidden = true")
        page.wait_for_timeout(1000)
        last = page.locator(".source").last.bounding_box()
        assert last
        height = last["y"] + last["height"] + 24
        page.screenshot(path=str(picture), clip={"x": 0, "y": 0, "width": 1440, "height": height})
        browser.close()
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """Play, watch, photograph."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("demo", type=Path, help="what lstr demo has made")
    parser.add_argument("--picture", type=Path, default=PICTURES / "watch-page.png")
    options = parser.parse_args()
    labels = read_labels(options.demo / "labels.json").videos
    videos = [name for name, video in labels.items() if video.subset == "testing"]
    films = [make_film(options.demo / "videos" / f"{name}.mp4", SECONDS + 120, FPS) for name in videos[: len(NAMES)]]
    with playing(films) as server, tempfile.TemporaryDirectory() as folder:
        text = f'model = "{(options.demo / "demo.lstr").resolve()}"\n[clips]\nbefore = 1\nafter = 1\n'
        for number, name in enumerate(NAMES):
            text += f'[sources.{name}]\naddress = "{server.address(number)}"\n'
        (Path(folder) / "watch.toml").write_text(text)
        command = [sys.executable, "-m", "lstr_cli", "watch", f"{folder}/watch.toml"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        photograph(process.stdout.readline().strip(), options.picture)
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    main()
