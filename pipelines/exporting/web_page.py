"""The page that runs an exported model in a browser: what it is told of the model, and its files."""

import html
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from lstr import __version__
from lstr.exported.description import StepDescription
from lstr.extractors.images.crops import Inputs
from lstr.extractors.weights.archive import GRAPH
from lstr.extractors.weights.published_files import Origin
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.exporting.web_runtime import LICENCE, VERSION
from lstr.pipelines.model_files.exported_file import STEP
from lstr.pipelines.model_files.model_file import ModelFile
from lstr.pipelines.reports.page import STYLE_FIRST, embed_json, fill, read_part
from lstr.pipelines.reports.palette import colours_of, css_variables
from lstr.rules import changed

PAGE, ZOOM, ICON = "browser.html", "zoom.html", "icon.svg"
STYLES = (STYLE_FIRST, "report.css", "browser.css")
SCRIPTS = (
    "page.js", "rules.js", "verdict.js", "files.js", "browser-data.js", "decisions.js", "marks.js", "zoom.js",
    "drawing.js", "lanes.js", "browser-sources.js", "browser.js",
)  # fmt: skip
"""What the page runs, most of it as the reports do"""
WORKER = (
    "browser-worker.js", "browser-plans.js", "browser-timeline.js", "browser-pictures.js", "browser-colours.js",
    "browser-frames.js", "browser-tags.js", "browser-mp4.js", "browser-decoder.js", "browser-networks.js",
)  # fmt: skip
"""What its thread runs, beside some of the page's"""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'"
)
"""From its own server alone, and videos that a person has chosen, which are blobs"""


def web_document(model: ModelFile, step: StepDescription) -> dict[str, Any]:
    """What the page is told: classes, rules, how pictures are made, and what the step, of one stream, takes."""
    recipe = model.recipe
    views = {stream: Inputs(recipe).view(stream) for stream in recipe.streams}
    stored = model.about["thresholds"] or {}
    inputs = {name: [list(shape), dtype] for name, (shape, dtype) in step.inputs().items()}
    return {
        "title": model.about["title"],
        "classes": list(model.classes),
        "colours": colours_of(model.classes),
        "rules": [_rules(stored, label) for label in model.classes],
        "long_side": recipe.long_side,
        "rgb_frame": recipe.rgb_frame,
        "streams": [
            {
                "stream": stream,
                "crops": view.crops,
                "segments": recipe.parts[stream].segments,
                "size": list(view.size),
                "margin": view.margin,
                "short_side": view.short_side,
            }
            for stream, view in views.items()
        ],
        "step": {**step.to_dict(), "graph": STEP, "inputs": inputs},
        "runtime": VERSION,
        "made_by": __version__,
    }


def web_files(model: ModelFile, step: StepDescription) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file of the page, but for ONNX Runtime Web's. Raises CheckpointError."""
    document = web_document(model, step)
    for stream in (*model.recipe.streams, STEP):
        yield f"graphs/{stream}{GRAPH}", model.graph(stream)
    for script in (*SCRIPTS, *WORKER):
        yield f"scripts/{script}", read_part(script).encode()
    yield "style.css", (css_variables() + "".join(map(read_part, STYLES))).encode()
    yield ICON, read_part(ICON).encode()
    yield "LICENSES.txt", _licences(model).encode()
    scripts = "".join(f'<script src="scripts/{script}"></script>\n' for script in SCRIPTS)
    yield "index.html", _page(document, scripts).encode()


def _page(document: Mapping[str, Any], scripts: str) -> str:
    title = html.escape(str(document["title"]))
    zoom = read_part(ZOOM)
    return fill(read_part(PAGE), policy=POLICY, title=title, zoom=zoom, data=embed_json(document), scripts=scripts)


def _rules(stored: Mapping[str, Any], label: str) -> dict[str, Any] | None:
    """When a class is on; None for one that is no action."""
    if label in (BACKGROUND, AMBIGUOUS):
        return None
    return asdict(changed(stored.get(label, {}), {}))


def _licences(model: ModelFile) -> str:
    """The text that says whose the files are, and under which licences."""
    parts = [
        f"lstr {__version__}: index.html, style.css, icon.svg and scripts/ are under the Apache License 2.0:\n",
        _own_licence(),
        f"\n{'-' * 80}\n\nONNX Runtime Web {VERSION}: onnxruntime/ is under the MIT License:\n",
        LICENCE,
        "Notices of what it contains: "
        f"https://github.com/microsoft/onnxruntime/blob/v{VERSION}/ThirdPartyNotices.txt\n",
        f"\n{'-' * 80}\n\ngraphs/: the model is its maker's. What its networks began with:\n",
    ]
    for stream, entry in model.about["networks"].items():
        began = str(Origin(**entry["origin"])) if "origin" in entry else "random weights, or not known here"
        parts.append(f"- {stream} ({entry['network']}): {began}")
    return "\n".join(parts) + "\n"


def _own_licence() -> str:
    """The text of our licence, where the package was installed with it."""
    try:
        package = distribution("lstr-video")
    except PackageNotFoundError:
        return "https://www.apache.org/licenses/LICENSE-2.0\n"
    found = package.read_text("licenses/LICENSE") or package.read_text("LICENSE")
    return found or "https://www.apache.org/licenses/LICENSE-2.0\n"
