"""The token and the port of a page that stay the same when its server is started again, so that an open tab goes on.

A tab sends its changes with a cookie that holds the token. Were the token new with each start, a tab that was open
when the server was killed would be refused for ever, and what it had not sent would be lost. So the token of a labels
file is kept where $LSTR_HOME is, in a file that its owner alone reads (mode 0600, in a folder of mode 0700), and
neither in the labels file nor beside it, which people send to each other. It is as long as a new one and as hard to
guess, each labels file has its own, and Host and Origin are checked as before. What it costs: who reads that file, or
an old address in the history of the browser, can open the page again while the command runs. The owner of the labels
file could do so anyway. Deleting the file makes the next address a new one.

The port is kept too, for the address of a tab has it. No two labels files share one: a tab of the one would send its
changes to the other.
"""

import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.files.atomic import replacing
from lstr.pipelines.serving.guard import new_token

TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")


@dataclass(frozen=True)
class KeptAddress:
    """What the page of one file was served with, kept in `path`."""

    path: Path
    of: Path
    token: str
    port: int | None
    """None where it had none yet."""
    others: frozenset[int]
    """Ports of other files' pages."""

    def keep(self, port: int) -> None:
        """Remember it for the next time; where the folder cannot be written, the next address is a new one."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self.path) as temporary:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with open(descriptor, "w", encoding="utf-8") as file:
                    os.fchmod(descriptor, 0o600)  # before the token is in it
                    json.dump({"file": str(self.of), "token": self.token, "port": port}, file)


def kept_address(of: Path, folder: Path) -> KeptAddress:
    """The address that the page of the file `of` had the last time; with a new token where it had none."""
    of = of.absolute().resolve()
    path = folder / f"{hashlib.sha256(os.fsencode(of)).hexdigest()[:32]}.json"
    own = _read(path)
    others = [_read(other) for other in folder.glob("*.json") if other != path]
    taken = frozenset(port for port in map(_port, others) if port)
    token = own.get("token", "")
    if not (isinstance(token, str) and TOKEN.fullmatch(token)):
        token = new_token()
    return KeptAddress(path, of, token, _port(own), taken)


def _port(content: dict[str, Any]) -> int | None:
    port = content.get("port")
    return port if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 2**16 else None


def _read(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where others could have read or written it."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077 or not stat.S_ISREG(about.st_mode):
                return {}
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
