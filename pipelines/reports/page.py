"""One HTML file that needs no other: script, style and data inside, and a policy that lets nothing else in."""

import base64
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from lstr.extractors.addresses import without_credentials
from lstr.pipelines.reports.palette import css_variables

FRAME, STYLE_FIRST, SCRIPT_FIRST, ZOOM = "frame.html", "look.css", "page.js", "zoom.html"  # what pages share


@dataclass(frozen=True)
class Script:
    """The script of a page: files of `web/`, the data that they read as `report`, and an embedded video (base64)."""

    parts: Sequence[str]
    document: Mapping[str, Any]
    media: str = ""
    is_served: bool = False
    """The page comes from a server of this machine, and may ask it for more."""


def build_page(title: str, body: str, styles: Sequence[str], script: Script) -> str:
    """A page of `body`, which is markup, with styles of `web/`.

    The content security policy names the hashes of the one style and the one script, and no remote origin.
    """
    style = "\n" + css_variables() + "".join(map(read_part, (STYLE_FIRST, *styles)))
    source = "\n" + "".join(map(read_part, (SCRIPT_FIRST, *script.parts)))
    return fill(
        read_part(FRAME),
        policy=policy_of(style, source, script.is_served),
        title=html.escape(title),
        style=style,
        body=body,
        data=embed_json(script.document),
        script=source,
        media=f'<script type="text/plain" id="media">{script.media}</script>\n' if script.media else "",
    )


def fill(template: str, **values: str) -> str:
    """A template with {{name}} replaced by the value of that name; what the values hold is left alone."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], template)


def read_part(name: str) -> str:
    """A file of `web/`."""
    return resources.files("lstr.pipelines.reports").joinpath("web", name).read_text("utf-8")


def read_markup(name: str) -> str:
    """Markup of `web/`, with the buttons that zoom."""
    return fill(read_part(name), zoom=read_part(ZOOM))


def policy_of(style: str, script: str, is_served: bool) -> str:
    """The content security policy of a page with one inline style and one script."""
    images = "img-src data: 'self'" if is_served else "img-src data:"
    allowed = ["connect-src 'self'", "media-src 'self'"] if is_served else ["media-src file: 'self' blob:"]
    hashes = [f"style-src {source_hash(style)}", images, f"script-src {source_hash(script)}"]
    return "; ".join(["default-src 'none'", *hashes, *allowed, "base-uri 'none'", "form-action 'none'"])


def source_hash(text: str) -> str:
    """The content security policy's name for one inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embed_json(document: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element: no character of it can end the element or start another."""
    # ASCII output escapes U+2028, U+2029 and the lone surrogates of undecodable file names as well
    text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(value: Any) -> Any:
    """`value` in what JSON has: numpy scalars as numbers, paths as text, NaN and infinity as null, no credentials."""
    if isinstance(value, Mapping):
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
