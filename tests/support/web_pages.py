"""A page of `lstr export --web` in Chromium, from a plain web server, and its scripts without the page."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.pipelines.reports.page import read_part


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def folder_served(folder: Path) -> Iterator[str]:
    """The address of a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def with_scripts(chromium: Any, *names: str) -> Any:
    """An empty page in which scripts of the reports are."""
    page = chromium.new_page()
    for name in names:
        page.add_script_tag(content=read_part(name))
    return page


def encoded(image: NDArray[np.uint8]) -> dict[str, Any]:
    """An image as `imageOf` of a page takes it."""
    height, width, channels = image.shape
    text = base64.b64encode(np.ascontiguousarray(image).tobytes()).decode()
    return {"width": width, "height": height, "channels": channels, "text": text}


def decoded(value: dict[str, Any], *shape: int) -> NDArray[np.uint8]:
    """An array that a page has sent by `textOf`."""
    return np.frombuffer(base64.b64decode(value["text"]), np.uint8).reshape(shape or value["shape"])


DECODING = """
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const imageOf = ({ text, ...image }) => ({ ...image, data: bytesOf(text) });
const textOf = (data) => btoa(Array.from(data, (value) => String.fromCharCode(value)).join(""));
const sent = ({ width, height, channels, data }) => ({ shape: [height, width, channels], text: textOf(data) });
"""
