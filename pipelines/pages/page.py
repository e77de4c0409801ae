"""One HTML file that needs no other: script, style and data inside, and a policy that lets nothing else in."""

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstr.files.names import without_credentials
from lstr.pipelines.pages.palette import css_variables

if TYPE_CHECKING:
    from jinja2 import Environment

WEB = Path(__file__).parent / "web"
STYLES_FIRST, SCRIPTS_FIRST = ("look.css",), ("vendor/preact-htm.js", "page.js")  # what all pages share


@dataclass(frozen=True)
class Script:
    """The script of a page: files of `web/`, the data that they read as `report`, and an embedded video (base64)."""

    parts: Sequence[str]
    document: Mapping[str, Any]
    media: str = ""
    is_served: bool = False
    """The page comes from a server of this machine, and may ask it for more."""


def build_page(template: str, title: str, styles: Sequence[str], script: Script, **values: Any) -> str:
    """Return a page: a template of `web/` with a title, styles of `web/`, and other values that it shows.

    The content security policy names the hashes of the one style and the one script, and no remote origin.
    """
    style = "\n" + css_variables() + "".join(map(read_part, (*STYLES_FIRST, *styles)))
    source = "\n" + "".join(map(read_part, (*SCRIPTS_FIRST, *script.parts)))
    policy, data = policy_of(style, source, script.is_served), embed_json(script.document)
    shared = {"policy": policy, "style": style, "data": data, "script": source, "media": script.media}
    return _templates().get_template(template).render(title=title, **shared, **values)


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader  # here: a job without a page does not wait for it

    return Environment(loader=FileSystemLoader(WEB), autoescape=True, trim_blocks=True, lstrip_blocks=True)


def read_part(name: str) -> str:
    """Return the text of a file of `web/`."""
    return (WEB / name).read_text("utf-8")


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
