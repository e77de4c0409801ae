"""What is shown of an address: all of it but who and the password."""

import pytest

from lstr.files.names import displayed, without_credentials

PLAIN = (
    "",
    "clips/me@home/password=1.mp4",
    "me@example.org",
    "rtsp://cam:554/live?channel=1&monkey=2",
    "file:///clips/token=5/me:you@home.mp4",
    "https://example.org/@someone/video",
)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://admin:hunter2@10.0.0.7:554/stream1", "rtsp://10.0.0.7:554/stream1"),
        ("rtsp://admin:p@ss:w@rd@cam/1?x=@", "rtsp://cam/1?x=@"),
        ("rtsp://cam/user=admin&password=hunter2&channel=1.sdp", "rtsp://cam/user=…&password=…&channel=1.sdp"),
        ("rtsp://cam/user=admin_password=hunter2_channel=1", "rtsp://cam/user=…"),
        ("https://cdn/a.m3u8?token=abc&t=5", "https://cdn/a.m3u8?token=…&t=5"),
        ("https://s3/a?X-Amz-Credential=abc&X-Amz-Signature=def", "https://s3/a?X-Amz-Credential=…&X-Amz-Signature=…"),
        ("HTTP://me:abc@host lost, then rtsp://you:def@host", "HTTP://host lost, then rtsp://host"),
        ("'rtsp://me:abc@host' stalled", "'rtsp://host' stalled"),
        *zip(PLAIN, PLAIN, strict=True),
    ],
)
def test_credentials_go_and_the_rest_stays(address, shown):
    assert without_credentials(address) == shown


def test_a_name_steers_no_terminal():
    assert displayed("a\x1b[2J\r\x9b31m.mp4 é\tb\nrtsp://u:p@h/") == "a\ufffd[2J\ufffd\ufffd31m.mp4 é\tb\nrtsp://h/"
