"""MPEG-TS with changed time stamps, for sources with wrong clocks."""

from collections.abc import Callable

PACKET, TICKS = 188, 90_000
WRAP = 2**33  # ticks of a time stamp in MPEG-TS


def restamped(data: bytes, stamp: Callable[[int, float], float]) -> bytes:
    """Replace the time of each frame, in seconds, by `stamp(number, time)` in MPEG-TS of one stream."""
    changed, number = bytearray(data), 0
    for start in range(0, len(changed), PACKET):
        begins, control = changed[start + 1] & 0x40, changed[start + 3] >> 4 & 3
        at = start + 4 + (changed[start + 4] + 1 if control & 2 else 0)
        if not begins or not control & 1 or bytes(changed[at : at + 3]) != b"\0\0\1":
            continue
        for place in range(at + 9, at + 9 + 5 * (changed[at + 7] >> 6 & 3).bit_count(), 5):  # of display, of decoding
            time = stamp(number, _read(changed[place : place + 5]) / TICKS)
            changed[place : place + 5] = _written(changed[place] >> 4, round(time * TICKS) % WRAP)
        number += 1
    return bytes(changed)


def _read(field: bytes) -> int:
    return (field[0] >> 1 & 7) << 30 | field[1] << 22 | (field[2] >> 1) << 15 | field[3] << 7 | field[4] >> 1


def _written(prefix: int, ticks: int) -> bytes:
    high, middle, low = ticks >> 30, ticks >> 15 & 0x7FFF, ticks & 0x7FFF
    return bytes((prefix << 4 | high << 1 | 1, middle >> 7, middle << 1 & 0xFE | 1, low >> 7, low << 1 & 0xFE | 1))
