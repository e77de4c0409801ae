"""Whether the addresses of published files still answer."""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from lstr import __version__
from lstr.extractors.weights.published_files import PublishedFile

TIMEOUT = 15.0  # seconds
AT_ONCE = 8
ANSWERS = "answers"
PACKAGED = "in a package"


def ask(entries: Iterable[PublishedFile]) -> dict[str, str]:
    """What each file's address says now, by the file's name: `answers`, `dead (…)` or `not reached (…)`.

    A file of a Python package has none that is asked: `in a package`.
    """
    entries = list(entries)
    fetched = [entry for entry in entries if not entry.package]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = dict(zip((e.name for e in fetched), pool.map(_ask, (e.address for e in fetched)), strict=True))
    return {entry.name: said.get(entry.name, PACKAGED) for entry in entries}


def _ask(address: str) -> str:
    """One byte is requested, for some servers do not answer HEAD. Only a server's own refusal makes a link dead."""
    request = urllib.request.Request(address, headers={"User-Agent": f"lstr/{__version__}", "Range": "bytes=0-0"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            is_page = answer.headers.get_content_type() == "text/html"
            return "dead (a web page instead of a file)" if is_page else ANSWERS
    except urllib.error.HTTPError as error:
        busy = error.code >= 500 or error.code == 429
        return f"{'not reached' if busy else 'dead'} ({error.code} {error.reason})"
    except (OSError, http.client.HTTPException) as error:
        return f"not reached ({urlsplit(address).hostname}: {getattr(error, 'reason', error)})"
