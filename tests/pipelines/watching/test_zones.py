"""Zones of sources: those of the file, and those that were drawn on the page."""

import json
from pathlib import Path

import pytest

from lstr.errors import LstrError
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.service import Service

LEFT = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)


def configure(folder: Path, zones=None) -> Path:
    """A service of two sources that nobody answers for, by a model that is none where the folder has no other."""
    (folder / "small.lstr").touch()
    said = f"zones = {json.dumps(zones)}\n" if zones is not None else ""
    (folder / "watch.toml").write_text(
        f'model = "small.lstr"\n[sources.hall]\naddress = "http://127.0.0.1:9/hall"\n{said}'
        '[sources.door]\naddress = "http://127.0.0.1:9/door"\n'
    )
    return folder / "watch.toml"


def shown(watching: Service, name: str = "hall") -> tuple:
    state = next(one for one in watching.dashboard.state()["sources"] if one["name"] == name)
    return state["zones"], state["drawn"]


def zones(watching: Service, name: str):
    return watching.zones[name]


def test_what_is_drawn_stands_before_the_file_and_is_kept(tmp_path):
    path, said = configure(tmp_path, TOP), []
    with Service(read_config(path), said.append) as watching:
        assert zones(watching, "hall") == TOP and zones(watching, "door") == () and shown(watching) == (TOP, False)
        browser = watching.dashboard.messages()
        next(browser)
        watching.draw("hall", LEFT)
        assert zones(watching, "hall") == LEFT
        assert shown(watching) == (LEFT, True)
        assert [message["kind"] for message in next(browser)] == ["state"]
        watching.draw("door", ())
        with pytest.raises(LstrError, match="Unknown source: 'x'"):
            watching.draw("x", LEFT)
    with Service(read_config(path), said.append) as watching:
        assert zones(watching, "hall") == LEFT and shown(watching) == (LEFT, True)
        assert shown(watching, "door") == ((), True), "no zone, and that was drawn"
        watching.draw("hall", ())
        assert zones(watching, "hall") == (), "everywhere, whatever the file says"
        watching.draw("hall", None)
        assert zones(watching, "hall") == TOP and shown(watching) == (TOP, False)
    with Service(read_config(path), said.append) as watching:
        assert shown(watching) == (TOP, False)


def test_a_source_that_is_removed_takes_its_zones_along(tmp_path):
    with Service(read_config(configure(tmp_path)), lambda text: None) as watching:
        watching.add("garage", "http://127.0.0.1:9/garage")
        watching.draw("garage", LEFT)
        watching.remove("garage")
        watching.add("garage", "http://127.0.0.1:9/other")
        assert zones(watching, "garage") == () and shown(watching, "garage") == ((), False)
