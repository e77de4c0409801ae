"""Names of sources without credentials and control characters."""

import pytest

from lstr.files.names import displayed, shown, without_credentials

UNCHANGED = (
    "",
    "clips/me@home/password=1.mp4",
    "me@example.org",
    "rtsp://cam:554/live?channel=1&monkey=2",
    "file:///clips/token=5/me:you@home.mp4",
    "https://example.org/@someone/video",
    "rtsp://admin:12/34",
    "http://cam:80/a@b.ts",
)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("rtsp://admin:hunter2@10.0.0.7:554/stream1", "rtsp://10.0.0.7:554/stream1"),
        ("rtsp://admin:p@ss:w@rd@cam/1?x=@", "rtsp://cam/1?x=@"),
        ("rtsp://admin:p/ss@cam:554/a@b", "rtsp://cam:554/a@b"),
        ("rtsp://cam/user=admin&password=hunter2&channel=1.sdp", "rtsp://cam/user=…&password=…&channel=1.sdp"),
        ("rtsp://cam/user=admin_password=hunter2_channel=1", "rtsp://cam/user=…"),
        ("https://cdn/a.m3u8?token=abc&t=5", "https://cdn/a.m3u8?token=…&t=5"),
        ("https://s3/a?X-Amz-Credential=abc&X-Amz-Signature=def", "https://s3/a?X-Amz-Credential=…&X-Amz-Signature=…"),
        ("HTTP://me:abc@host lost, then rtsp://you:def@host", "HTTP://host lost, then rtsp://host"),
        ("'rtsp://me:abc@host' stalled", "'rtsp://host' stalled"),
        *zip(UNCHANGED, UNCHANGED, strict=True),
    ],
)
def test_only_credentials_are_removed(address, name):
    assert without_credentials(address) == name
    assert " " in address or shown(address) == name


def test_a_password_may_contain_a_space():
    assert shown("rtsp://admin:a b/c@cam/live") == "rtsp://cam/live"


def test_control_characters_are_replaced():
    assert displayed("a\x1b[2J\r\x9b31m.mp4 é\tb\nrtsp://u:p@h/") == "a\ufffd[2J\ufffd\ufffd31m.mp4 é\tb\nrtsp://h/"
