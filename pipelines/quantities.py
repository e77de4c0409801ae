"""What a person types for an amount: bytes, times and rates."""

import re

SIZES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def bytes_of(text: str) -> int:
    """Bytes, written as 20MB, 1.5GiB or 500000. Raises ValueError."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*", text, re.IGNORECASE)
    if not parts:
        raise ValueError(f"{text!r} is no size; write 20MB, 1.5GB or a number of bytes.")
    return int(float(parts[1]) * SIZES[(parts[2] or "").lower()])


def seconds_of(text: str) -> float:
    """Seconds of a time, written as 90, 90s, 1.5m, 2d, 1:30 or 1:02:03.5. Raises ValueError."""
    if clock := re.fullmatch(r"(?:(\d+):)?(\d+):(\d+(?:\.\d*)?)", text):
        hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return 3600 * hours + 60 * minutes + seconds
    if plain := re.fullmatch(r"(\d+(?:\.\d*)?)\s*([smhd]?)", text, re.IGNORECASE):
        return float(plain[1]) * TIMES[plain[2].lower()]
    raise ValueError(f"{text!r} is no time; write 90s, 1.5m or 1:30.")


def an_hour(text: str) -> float:
    """Times an hour of a rate above 0, written as 2/h, 5/day or 2, which is an hour's. Raises ValueError."""
    parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(?:/\s*(h|hour|d|day))?\s*", text, re.IGNORECASE)
    if not parts or not float(parts[1]):
        raise ValueError(f"{text!r} is no rate; write 2/h, 5/day or a number above 0.")
    return float(parts[1]) / (24 if (parts[2] or "h").lower().startswith("d") else 1)
