"""One HTML file that needs no other: script, style and data inside, and a policy that lets nothing else in."""

import base64
import hashlib
import json
import math
import os
from collections.abc import Sequence
from importlib import resources

import numpy as np

from extractors.addresses import without_credentials

FRAME, STYLE_FIRST, SCRIPT_FIRST = "frame.html", "look.css", "page.js"  # what all pages share


def build_page(
    name: str, title: str, styles: Sequence[str], scripts: Sequence[str], document: dict, media: str = ""
) -> str:
    """The page of `web/NAME.html` with its parts, data (read by the script as `report`) and embedded video (base64).

    The content security policy names the hashes of the one script and the one style, and no remote origin.
    """
    style = "\n" + "".join(map(read_part, (STYLE_FIRST, *styles)))
    script = "\n" + "".join(map(read_part, (SCRIPT_FIRST, *scripts)))
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "media-src file: 'self' blob:; img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = read_part(FRAME).replace("{{policy}}", policy).replace("{{title}}", title)
    page = page.replace("{{body}}", read_part(f"{name}.html"))
    page = page.replace("{{style}}", style).replace("{{script}}", script)
    # the data goes in last: nothing is filled in inside what a label or a path may hold
    before, between, after = (half for part in page.split("{{data}}") for half in part.split("{{media}}"))
    holder = f'<script type="text/plain" id="media">{media}</script>\n' if media else ""
    return before + embed_json(document) + between + holder + after


def read_part(name: str) -> str:
    """A file of `web/`."""
    return resources.files("pipelines.reports").joinpath("web", name).read_text("utf-8")


def source_hash(text: str) -> str:
    """The content security policy's name for one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embed_json(document: dict) -> str:
    """JSON that is safe inside a script element: no character of it can end the element or start another."""
    # ASCII output escapes U+2028, U+2029 and the lone surrogates of undecodable file names as well
    text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value):
    """`value` in what JSON has: numpy scalars as numbers, paths as text, NaN and infinity as null, no credentials."""
    if isinstance(value, dict):
        return {without_credentials(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, os.PathLike):
        value = str(value)
    return without_credentials(value) if isinstance(value, str) else value
