"""The file of `lstr watch`: its values, and the entry of each error."""

import os
from datetime import time

import pytest

from lstr.errors import ConfigError
from lstr.pipelines.watching.config import Hours, read_config

WHOLE = """
model = "fall.lstr"
data = "kept"
timeout = "2m"
notifications = { max_per_hour = 12 }
clips = { before = "3s", max_size = "2GB" }
page = { port = 8431, hosts = ["cameras.example.org"], trusted_proxy = true }
history = { days = 7 }
[sources.hall]
address = "rtsp://user:secret@camera/stream"
zones = [[[0.1, 0.2], [0.6, 0.2], [0.6, 0.9]], [[0, 0], [1, 0], [0, 1]]]
[sources."back door"]
address = "env:LSTR_TEST_ADDRESS"
model = "door.lstr"
[actions.falling]
on = 0.6
off = 0.4
notify = ["phone"]
cooldown = "1m"
quiet = ["22:00-07:00", "12:30-13:00"]
[actions."sitting down"]
notify = []
[channels]
phone = { kind = "webhook", url = "https://example.org/hook", secret = "file:secret.txt" }
light = { kind = "command", command = ["light", "on"] }
house = { kind = "mqtt", host = "broker", port = 8883, tls = true }
"""


@pytest.fixture
def write(tmp_path):
    """Write a configuration next to the files that it names, and return its path."""
    for name, content in (("fall.lstr", ""), ("door.lstr", ""), ("secret.txt", "hush\n")):
        (tmp_path / name).write_text(content)

    def write_text(text: str):
        (tmp_path / "watch.toml").write_text(text)
        return tmp_path / "watch.toml"

    return write_text


def test_every_setting(write, tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_TEST_ADDRESS", "http://door/stream")
    config = read_config(write(WHOLE))
    monkeypatch.setitem(os.environb, b"LSTR_TEST_ADDRESS", b"http://u:\xff@door")
    with pytest.raises(ConfigError, match="back door.address"):
        read_config(write(WHOLE))
    assert config.model == tmp_path / "fall.lstr" and config.data == tmp_path / "kept" and config.timeout == 120
    hall = config.sources["hall"]
    assert hall.zones == (((0.1, 0.2), (0.6, 0.2), (0.6, 0.9)), ((0, 0), (1, 0), (0, 1)))
    assert config.sources["back door"].zones == ()
    assert hall.model is None and config.sources["back door"].model == tmp_path / "door.lstr"
    assert config.sources["back door"].address == "http://door/stream"
    falling = config.actions["falling"]
    assert falling.rule == {"on": 0.6, "off": 0.4} and falling.notify == ("phone",) and falling.cooldown == 60
    assert falling.quiet == ("22:00-07:00", "12:30-13:00")
    assert config.actions["sitting down"].notify == () and not config.actions["sitting down"].rule
    assert config.notifications.max_per_hour == 12 and config.notifications.cooldown == 0
    tables = {name: table for name, (_, table) in config.channels.items()}
    assert tables["phone"].secret == "hush" and tables["light"].command == ("light", "on")
    assert tables["house"].port == 8883 and tables["house"].tls
    assert config.page.port == 8431 and config.history.days == 7 and config.page.trusted_proxy
    assert config.clips.before == 3 and config.clips.max_size == 2 * 10**9
    assert "secret" not in repr(config) and "hush" not in repr(config)


def test_valid_hosts_and_names(write):
    hosts = ["cameras.example.org:8443", "10.0.0.2", "[::1]", "[fd00::1]:8420"]
    for broker in ("broker", "broker.example.org", "192.168.1.2", "::1", "fe80::1%eth0"):
        text = f'[sources."Küche"]\naddress = "http://x/y"\n[channels."Büro 1"]\nkind = "mqtt"\nhost = "{broker}"\n'
        config = read_config(write(f"{text}[page]\nhost = '::'\nhosts = {hosts}\n"))
        assert config.channels["Büro 1"][1].host == broker and [*config.sources] == ["Küche"]
        assert config.page.hosts == tuple(hosts) and config.page.host == "::"


@pytest.mark.parametrize(
    "text, entry",
    [
        ('modle = "x"', "modle"),
        ('model = "nowhere.lstr"', "model"),
        ('data = "fall.lstr"', "data"),
        ('data = "a\\u0000b"', "data"),
        (f"timeout = {10**400}", "timeout"),
        ("[sources]", "source"),
        ('[sources."a/b"]\naddress = "http://x/y"', "a/b"),
        ('[sources]\nb = 1\n[sources.a]\naddress = "x.mp4"', "sources.a.address"),
        ('[sources.a]\naddress = "env:LSTR_TEST_NOTHING"', "sources.a.address"),
        ('[sources.a]\naddress = "http://x/y"\nzones = [[[0.1, 0.1], [0.9, 0.1]]]', "sources.a"),
        ("[actions.falling]\non = 0.3\noff = 0.5", "actions.falling"),
        ('[actions.falling]\nnotify = ["x"]', "actions.falling.notify"),
        ('[actions.falling]\nquiet = ["25:00-07:00"]', "actions.falling.quiet[0]"),
        ('[channels]\nb = 1\n[channels.a]\nkind = "pigeon"', "channels.a.kind"),
        ('[channels.a]\nkind = "command"\ncommand = []', "channels.a.command"),
        ('[channels.a]\nkind = "command"\ncommand = ["x"]\nurl = "http://x"', "channels.a"),
        ('[channels.a]\nkind = "mqtt"\nhost = "1.2.3.4:1883"', "channels.a.host"),
        ("[history]\ndays = nan", "history.days"),
        ("[clips]\nmax_size = 10", "clips.max_size"),
        ("images = false\n[clips]", "clips"),
        ('timeout = "x"\n[sources.a]\nadress = "http://x"\n[page]\nport = "x"', "page.port"),
    ],
)
def test_each_error_is_named_by_its_entry(write, text, entry):
    path = write(text)
    with pytest.raises(ConfigError) as raised:
        read_config(path)
    lines = [line.removeprefix(f"{path}: ") for line in str(raised.value).splitlines()]
    assert [line for line in lines if entry in line.partition(": ")[0]] and "[..." not in str(lines), lines


@pytest.mark.parametrize(
    "content",
    [b"what?", b"\xff\xfe", b"#" * 10_000_000, b"a = " + b"{b = " * 600 + b"1" + b"}" * 600]
    + [b"\n".join(b"k%d = 1" % n for n in range(20_000))],
    ids=["text", "bytes", "large", "nested", "unknown keys"],
)
def test_unreadable_files(write, content):
    path = write("")
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=path.name) as raised:
        read_config(path)
    assert len(str(raised.value)) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        '[sources.a]\naddress = "odd://user:hunter2@x/y"',
        '[sources.a]\naddress = ["rtsp://user:hunter2@x/y"]',
        '[channels.a]\nkind = "webhook"\nurl = "hunter2"\nsecret = 3\npassword = "hunter2"',
        '[channels.a]\nkind = "mqtt"\nhost = "x"\npassword = ["hunter2"]\nsecret = "hunter2"',
        '[channels.a]\nkind = "hook"\nurl = "http://x/hunter2"\nurrl = "http://x/hunter2"',
        '[page.users]\nann = "hunter2"',
        '[channels.a]\nkind = "mqtt"\npassword = "hunter2',
    ],
)
def test_errors_contain_no_secret(write, text):
    with pytest.raises(ConfigError) as raised:
        read_config(write(text))
    assert "hunter2" not in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize(
    "hours, inside, outside",
    [
        ("9:00-17:00", (time(9), time(12)), (time(17), time(8, 59))),
        ("22:00 - 07:00", (time(22), time(23, 59), time(6, 59)), (time(7), time(21))),
        ("08:00-08:00", (time(3), time(8)), ()),
        ("20:00-24:00", (time(20), time(23, 59)), (time(0), time(19, 59))),
    ],
)
def test_hours(hours, inside, outside):
    assert all(map(Hours(hours).contains, inside)) and not any(map(Hours(hours).contains, outside))
