"""The token and the port of a page over restarts of its server, and who can read them."""

import json
import stat

import pytest
from starlette.applications import Starlette

from lstr.pipelines.pages.guard import kept_address
from lstr.pipelines.pages.server import Server
from tests.support.requests import Visitor


def served(of, folder, port=None):
    return Server(Starlette(), port=port, kept=kept_address(of, folder))


def test_the_same_file_has_the_same_address_again(tmp_path):
    with served(tmp_path / "a.json", tmp_path / "pages") as first:
        pass
    with served(tmp_path / "sub" / ".." / "a.json", tmp_path / "pages") as again:
        assert again.address == first.address
        assert Visitor(first.address).ask("/").status == 404, "it is let in: there is no page here"


def test_two_files_have_tokens_and_ports_of_their_own(tmp_path):
    addresses = []
    for name in ("a.json", "b.json", "c.json"):
        with served(tmp_path / name, tmp_path / "pages") as server:
            addresses.append((server.port, server.address.partition("token=")[2]))
    ports, tokens = zip(*addresses, strict=True)
    assert len(set(ports)) == len(set(tokens)) == 3 and min(map(len, tokens)) >= 32


def test_the_owner_alone_reads_it(tmp_path):
    with served(tmp_path / "a.json", tmp_path / "pages") as server:
        token = server.address.partition("token=")[2]
    (path,) = (tmp_path / "pages").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["token"] == token and token not in path.name


@pytest.mark.parametrize("content", ["", "[]", '{"token": "", "port": 1}', '{"token": "short"}', '{"token": 5}', None])
def test_what_is_damaged_or_open_to_others_is_made_anew(tmp_path, content):
    with served(tmp_path / "a.json", tmp_path / "pages") as first:
        pass
    (path,) = (tmp_path / "pages").iterdir()
    if content is None:
        path.chmod(0o644)
    else:
        path.write_text(content)
    assert kept_address(tmp_path / "a.json", tmp_path / "pages").token not in first.address
    with served(tmp_path / "a.json", tmp_path / "pages"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path):
    with served(tmp_path / "a.json", tmp_path / "pages") as first:
        pass
    (path,) = (tmp_path / "pages").iterdir()
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert kept_address(tmp_path / "a.json", tmp_path / "pages").token not in first.address


def test_where_nothing_can_be_kept_the_page_is_served_all_the_same(tmp_path):
    (tmp_path / "pages").write_text("no folder")
    with served(tmp_path / "a.json", tmp_path / "pages") as server:
        assert Visitor(server.address).ask("/").status == 404
