"""Opening a video reads no other file: playlists, odd names, and headers that declare huge frames."""

import base64
import shlex
import struct
import sys
from pathlib import Path

import av
import pytest

from lstr.errors import VideoError
from lstr.extractors.video.containers import open_container
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader, PyAVReader
from tests.support.http_servers import Server
from tests.support.processes import check_process
from tests.support.videos import remux, write_video

TIMES = range(0, 600, 25)


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path) as running:
        yield running
        running.shutdown()


@pytest.fixture
def secret(tmp_path) -> Path:
    """A second of video that an attacker wants to read."""
    return remux(write_video(tmp_path / "secret.mp4", TIMES), tmp_path / "secret.ts")


def playlist(*segments, before: str = "") -> str:
    entries = "".join(f"#EXTINF:1,\n{segment}\n" for segment in segments)
    return f"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n{before}{entries}#EXT-X-ENDLIST\n"


def count_frames_unprotected(source) -> int:
    with av.open(str(source), options={"protocol_whitelist": "file,http,tcp", "safe": "0"}) as container:
        return sum(1 for _ in container.decode(video=0))


def count_frames(source) -> int:
    return sum(1 for _ in PyAVReader(source, damage="skip", timeout=20).frames(64))


LISTS = {
    "list.m3u8": playlist("{secret}"),
    "url.m3u8": playlist("{root}/secret.ts"),
    "concat.mp4": "ffconcat version 1.0\nfile '{secret}'\n",
    "remote.mp4": "ffconcat version 1.0\nfile {root}/secret.ts\n",
    "session.mp4": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_local_playlists_are_refused(tmp_path, server, secret, name):
    path = tmp_path / name
    path.write_text(LISTS[name].format(secret=secret, root=server.root))
    assert name == "session.mp4" or count_frames_unprotected(path) == 24
    server.requested.clear()
    for open_video in (probe, count_frames):
        with pytest.raises(VideoError, match=name):
            open_video(path)
    with path.open("rb") as file, pytest.raises(VideoError):
        count_frames(file)
    assert server.requested == []


TRICKS = {
    "file": playlist("file://{secret}"),
    "bare": playlist("file:{secret}"),
    "concat": playlist("concat:file:{secret}"),
    "subfile": playlist("subfile,,start,0,end,0,,:{secret}"),
    "crypto": playlist("crypto+file://{secret}"),
    "data": playlist("data:video/mp2t;base64,{content}"),
    "key": playlist("secret.ts", before='#EXT-X-KEY:METHOD=AES-128,URI="file://{secret}"\n'),
    "map": playlist("secret.ts", before='#EXT-X-MAP:URI="file://{secret}"\n'),
    "master": "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nfile://{secret.parent}/good.m3u8\n",
    "script": "ffconcat version 1.0\nfile secret.ts\n",
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_remote_playlist_reads_no_local_file(tmp_path, server, secret, name):
    (tmp_path / "good.m3u8").write_text(playlist("secret.ts"))
    assert count_frames(f"{server.root}/good.m3u8") == 24
    content = base64.b64encode(secret.read_bytes()).decode()
    (tmp_path / f"{name}.m3u8").write_text(TRICKS[name].format(secret=secret, content=content))
    server.requested.clear()
    with pytest.raises(VideoError):
        count_frames(f"{server.root}/{name}.m3u8")
    assert server.requested == [f"/{name}.m3u8"]


def test_a_remote_playlist_with_local_and_remote_segments(tmp_path, server, secret):
    remux(secret, tmp_path / "own.ts")
    (tmp_path / "mixed.m3u8").write_text(playlist("own.ts", f"file://{secret}"))
    assert count_frames_unprotected(tmp_path / "mixed.m3u8") == 48
    assert count_frames(f"{server.root}/mixed.m3u8") == 24
    assert server.requested == ["/mixed.m3u8", "/own.ts"]


@pytest.mark.parametrize("address", ["file:///etc/hostname", "concat://a|b", "ftp://host/a.mp4", "data://x"])
def test_other_protocols_are_refused(server, secret, address):
    with pytest.raises(VideoError):
        open_container(address)
    assert count_frames(f"{server.root}/to/{server.root}/secret.ts") == 24
    with pytest.raises(VideoError):
        count_frames(f"{server.root}/to/{address}")


@pytest.mark.parametrize(
    "name",
    ["$(touch run) `touch run`; touch run & 'x' \"y\" | z > run.mp4", "-i.mp4", "a:b.mp4", "concat:secret.ts|b.mp4",
     "subfile,,start,0,end,0,,:secret.ts", "http:x.mp4", "%03d*?.mp4", "new\nline.mp4", "pipe:0.mp4"],
)  # fmt: skip
def test_odd_file_names_are_literal(tmp_path, secret, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.mp4").rename(tmp_path / name)
    video = probe(Path(name))
    assert sum(1 for _ in FrameReader(video).frames(64)) == 24
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "secret.ts"])


def test_hints_quote_file_names(tmp_path, lstr):
    """A name can neither run a command when the hint is copied nor control the terminal."""
    code, _, err = lstr("train", tmp_path / "$(touch run)\x1b[2J", "--labels", "l.json", "-o", tmp_path)
    assert code == 2 and "\x1b" not in err
    assert shlex.split(err.split("`")[1])[-1] == f"{tmp_path}/$(touch run)\ufffd[2J"


SIZE = (64, 48)
BOMBS = {  # codec, pixel format, the declared size, and a huge one
    "65535.gif": ("gif", "rgb8", b"GIF89a" + struct.pack("<HH", *SIZE), b"GIF89a" + b"\xff" * 4),
    "16000.gif": ("gif", "rgb8", b"GIF89a" + struct.pack("<HH", *SIZE), b"GIF89a" + struct.pack("<HH", 16000, 16000)),
    "v.mjpeg": ("mjpeg", "yuvj420p", b"\x11\x08" + struct.pack(">HH", 48, 64), b"\x11\x08\xff\xdc\xff\xdc"),
    "v.mp4": ("libx264", "yuv420p", bytes(16) + struct.pack(">HH", *SIZE), bytes(16) + b"\xff" * 4),
    "v.avi": ("mpeg4", "yuv420p", struct.pack("<ii", *SIZE), struct.pack("<ii", 10**5, 10**5)),
}
MEASURE = """
import resource, sys
from pathlib import Path
from lstr.errors import VideoError
from lstr.extractors.video.reader import FrameReader
from lstr.extractors.video.probe import probe
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print(sum(frame.image.size > 0 for frame in FrameReader(probe(Path(sys.argv[1]))).frames(64)))
except VideoError:
    print("refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_header_that_declares_a_huge_frame_takes_no_memory(tmp_path, name):
    """The file is refused before memory is allocated, or read with the real size of its stream."""
    codec, pixels, declared, huge = BOMBS[name]
    path = write_video(tmp_path / name, TIMES, SIZE, codec, pixels=pixels)
    assert declared in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(declared, huge))
    outcome, increase_kib = check_process(sys.executable, "-c", MEASURE, path).splitlines()
    assert outcome == ("24" if name in ("v.mp4", "v.avi") else "refused") and int(increase_kib) < 64 * 1024


def test_threads_of_ffmpeg_do_not_call_python(tmp_path):
    """Importing torchvision 0.21 to 0.25 makes them, which can block all threads forever."""
    write_video(tmp_path / "a.mp4", TIMES)
    av.logging.set_level(av.logging.ERROR)
    with open_container(tmp_path / "a.mp4"):
        assert av.logging.get_level() is None
