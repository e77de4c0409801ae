"""What may stand for each kind of value in the file of `lstr watch`; each raises ValueError with what is wrong."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError, MissingCameraError
from lstr.extractors.video.live_input import parse_live
from lstr.pipelines.quantities import bytes_of, seconds_of
from lstr.pipelines.watching.config import Hours

Parse = Callable[[Any], Any]
HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
HOST = re.compile(r"[^\s/:@?#\[\]]+")
"""The name of a host, or an IPv4 address"""
REACHED = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/:@?#\[\]]+)(:\d{1,5})?")
"""What browsers call a host"""
LEAST_BYTES, MOST_SECONDS, MOST_DAYS = 10**6, 366 * 86400, 36500
ELSEWHERE = re.compile(r"(env|file):(?!//)(.+)")


def any_value(value: Any) -> Any:
    """A value that is checked elsewhere."""
    return value


def text(value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write it in quotation marks.")
    return value


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("it is true or false.")
    return value


def number(value: Any) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("it is a number.")
    return float(value)


def days(value: Any) -> float:
    """Days for which something is kept."""
    if not 0 < number(value) <= MOST_DAYS:
        raise ValueError(f"it is a number above 0, and {MOST_DAYS:,} at most.")
    return float(value)


def whole_number(value: Any) -> int:
    """A whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("it is a whole number from 1 up.")
    return value


def size(value: Any) -> int:
    """Bytes from 1 MB up, as a number or a size such as '10GB'."""
    found = bytes_of(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int) or found < LEAST_BYTES:
        raise ValueError("it is a size from 1MB up, as '10GB'.")
    return found


def host(value: Any) -> str:
    """The name or the address of one machine."""
    with suppress(ValueError):
        if isinstance(value, str) and (HOST.fullmatch(value) or ip_address(value)):
            value.encode("idna")
            return value
    raise ValueError("it is the name or the IP of a host alone, as '192.168.1.2'; a port is an entry of its own.")


def hosts(value: Any) -> tuple[str, ...]:
    """Names by which browsers reach this machine."""
    if not isinstance(value, list):
        raise ValueError("it is a list, as ['cameras.example.org'].")
    if not all(isinstance(one, str) and REACHED.fullmatch(one) for one in value):
        raise ValueError("each is the name of a host, as 'cameras.example.org' or 'cameras.example.org:8443'.")
    return tuple(value)


def port(value: Any) -> int:
    """A port."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**16:
        raise ValueError("it is a number from 1 to 65535.")
    return value


def seconds(value: Any) -> float:
    """Seconds, as a number or a time such as '1.5m'."""
    found = seconds_of(value) if isinstance(value, str) else value
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= MOST_SECONDS:
        raise ValueError("it is a time, as 90, '90s' or '1.5m', and a year at most.")
    return float(found)


def length(value: Any) -> float:
    """Seconds above 0."""
    if not (found := seconds(value)):
        raise ValueError("it is a time above 0, as 90, '90s' or '1.5m'.")
    return found


def hours(value: Any) -> tuple[Hours, ...]:
    """Parts of a day."""
    if not isinstance(value, list):
        raise ValueError("it is a list, as ['22:00-07:00'].")
    return tuple(map(_stretch, value))


def _stretch(value: Any) -> Hours:
    parts = HOURS.fullmatch(value) if isinstance(value, str) else None
    try:
        if parts:
            first, first_minute, last, last_minute = map(int, parts.groups())
            midnight = (last, last_minute) == (24, 0)
            return Hours(time(first, first_minute), time(0) if midnight else time(last, last_minute))
    except ValueError:
        pass
    raise ValueError(f"{value!r} is no part of a day; write '22:00-07:00'.")


def words(value: Any) -> tuple[str, ...]:
    """A program and its arguments."""
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(word, str) and word and "\0" not in word for word in value)
    ):
        raise ValueError("it is a program and its arguments, as ['notify-send', 'lstr'].")
    return tuple(value)


def topic(value: Any) -> str:
    """The beginning of an MQTT topic."""
    if not isinstance(value, str) or not re.fullmatch(r"[^+#\x00-\x1f]*", value) or value.startswith("/"):
        raise ValueError("it is the beginning of a topic, without + and #.")
    return value.rstrip("/")


def names_of(known: list[str]) -> Parse:
    """Names of channels that are known."""

    def parse(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ValueError("it is a list of names, as ['phone'].")
        for name in value:
            if name not in known:
                raise ValueError(f"there is no channel {name!r}; name it: [channels.{name}].")
        return tuple(value)

    return parse


def one_of(known: Mapping[str, Any]) -> Parse:
    """One of some words."""

    def parse(value: Any) -> str:
        if value not in known:
            raise ValueError(f"it is one of {', '.join(known)}.")
        return str(value)

    return parse


def path_in(folder: Path, written: str) -> Path:
    """A path, seen from a folder; `~` is a home. Raises ValueError for what can be none."""
    try:
        path = folder / Path(written).expanduser()
        path.exists()
    except RuntimeError as error:
        raise ValueError(f"there is no home {Path(written).parts[0]}.") from error
    except OSError as error:
        raise ValueError(f"it cannot be a path ({error.strerror}).") from error
    if "\0" in written:
        raise ValueError("it cannot be a path (it has a character of code 0).")
    return path


def path_from(folder: Path, new: bool = False) -> Parse:
    """A path, seen from a folder; it exists, or may be a `new` folder."""

    def parse(value: Any) -> Path:
        path = path_in(folder, text(value))
        if not new and not path.exists():
            raise ValueError(f"there is no file {path}.")
        if new and path.exists() and not path.is_dir():
            raise ValueError(f"{path} is no folder.")
        return path

    return parse


def secret_from(folder: Path) -> Parse:
    """A text, or where it is: `env:NAME` is in the environment, `file:PATH` is the first line of a file."""

    def parse(value: Any) -> str:
        written = text(value)
        parts = ELSEWHERE.fullmatch(written)
        if not parts:
            return written
        if parts[1] == "env":
            if parts[2] not in os.environ:
                raise ValueError(f"the environment has no {parts[2]}.")
            found = os.environ[parts[2]]
            if any("\ud800" <= letter <= "\udfff" for letter in found):  # how Python keeps bytes that are no UTF-8
                raise ValueError(f"{parts[2]} of the environment is no UTF-8.")
            return found
        try:
            return path_in(folder, parts[2]).read_text(encoding="utf-8").split("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of it cannot be read ({error}).") from error

    return parse


def address_from(folder: Path) -> Parse:
    """The address of a live source; of a camera too that is not plugged in now."""

    def parse(value: Any) -> str:
        address = secret_from(folder)(value)
        if address == "-":
            raise ValueError("standard input is no source that comes again.")
        try:
            found = parse_live(address)
        except MissingCameraError:
            return address
        except (LstrError, ExtractorError) as error:
            raise ValueError(f"{error} {getattr(error, 'hint', '')}".strip()) from error
        if found is None:
            raise ValueError("it is no camera and no address; `lstr detect` decides on files.")
        return address

    return parse
