"""Features of other people: every form read alike, and what cannot be read refused by name."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

from lstr.chunk import Clock
from lstr.errors import ConfigError, ExtractorError, RecipeError
from lstr.pipelines.features.feature_files import Stated, split_settings
from lstr.pipelines.features.folder import is_feature_folder, open_features
from tests.support.foreign_stores import FORMATS, write_store

KEYS = [3, -1, slice(None), slice(4, 9), slice(0, 0), np.array([5, 2, 2, 40]), np.array([[0, 7], [7, 1]])]


@pytest.fixture
def arrays():
    """Videos of different lengths."""
    random = np.random.default_rng(0)
    return {f"v{n}": random.normal(size=(41 + n, 6)).astype(np.float32) for n in range(3)}


def opened(path, **said):
    return open_features(path, stated=Stated(**{"rate": "7.5", **said}))


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_gives_the_rows_that_were_stored(tmp_path, arrays, form):
    """Also beside the hidden files that macOS puts next to each file on a disk of another system."""
    store = write_store(tmp_path / "store", form, arrays)
    for path in [*store.iterdir(), store / "v0.pkl"]:
        (store / f"._{path.name}").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    folder = opened(store)
    assert folder.ids() == [*arrays] and folder.lengths() == {i: len(rows) for i, rows in arrays.items()}
    rgb, flow = folder.load("v1")
    assert flow.shape == (42, 0) and rgb.shape == (42, 6)
    for key in KEYS:
        assert np.array_equal(rgb[key], arrays["v1"][key]), key
    assert np.array_equal(rgb.until(10)[:], arrays["v1"][:10])
    assert folder.clock == Clock(Fraction(15, 2)) and folder.describe()["widths"] == {"rgb": 6}
    assert is_feature_folder(folder.path)


def test_two_parts_are_the_two_streams_of_a_model(tmp_path, arrays):
    flow = {i: rows[:-1, :4] for i, rows in arrays.items()}
    write_store(tmp_path / "folders" / "rgb", "npy", arrays)
    write_store(tmp_path / "folders" / "flow_raft", "pt", flow)
    write_store(tmp_path / "names", "npy", {f"{i}_rgb": rows for i, rows in arrays.items()})
    write_store(tmp_path / "names", "npy", {f"{i}_flow": rows for i, rows in flow.items()})
    np.save(tmp_path / "names" / "v0_fps.npy", 25.0)
    np.save(tmp_path / "names" / "v0_timestamps_ms.npy", np.arange(41.0))
    for store in (tmp_path / "folders", tmp_path / "names"):
        folder = opened(store)
        assert [*folder.folders] == ["rgb", "flow"] and folder.ids() == [*arrays]
        rgb, motion = folder.load("v0")
        assert rgb.shape == (40, 6) and motion.shape == (40, 4), "as long as the shorter one"
        assert np.array_equal(motion[:], flow["v0"])
        assert folder.only(["flow"]).load("v0")[0].shape == (40, 0)


class Evil:
    """Runs where a pickle is loaded without care."""

    ran = False

    def __reduce__(self):
        return setattr, (Evil, "ran", True)


def several(folder, arrays):
    np.savez(folder / "v0.npz", clip=np.ones((9, 4)), slow=np.zeros((9, 4)))


def other_lengths(folder, arrays):
    write_store(folder / "rgb", "npy", arrays)
    write_store(folder / "flow", "npy", {i: rows[::2] for i, rows in arrays.items()})


UNREADABLE = {
    "npy of three axes": (lambda f, a: write_store(f, "npy", {"v0": np.ones((1, 41, 6))}), "v0"),
    "npz of three axes": (lambda f, a: write_store(f, "npz", {"v0": np.ones((1, 41, 6))}), "v0"),
    "pt of three axes": (lambda f, a: write_store(f, "pt", {"v0": np.ones((1, 41, 6))}), "v0"),
    "another width": (lambda f, a: write_store(f, "npy", {**a, "v2": a["v2"][:, :5]}), "v2"),
    "several arrays": (several, "clip, slow"),
    "parts of other lengths": (other_lengths, "41 rgb and 21 flow"),
    "pickle": (lambda f, a: (f / "features.pkl").write_bytes(pickle.dumps(a)), "pickle"),
    "pickle in a tensor file": (lambda f, a: torch.save({"features": Evil()}, f / "v0.pt"), "v0.pt"),
    "npz cut": (lambda f, a: (f / "v0.npz").write_bytes(b"PK"), "v0.npz"),
    "npy empty": (lambda f, a: (f / "v0.npy").write_bytes(b""), "v0.npy"),
    "pt damaged": (lambda f, a: (f / "v0.pt").write_bytes(b"x"), "v0.pt"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_named(tmp_path, arrays, name):
    make, value = UNREADABLE[name]
    make(tmp_path, arrays)
    with pytest.raises(ExtractorError, match=value) as caught:
        folder = opened(tmp_path)
        folder.lengths()
        folder.load("v0")[0][:]
    assert caught.value.hint and not Evil.ran


def test_the_rate_is_asked_for_and_a_model_has_one(tmp_path, arrays):
    folder = open_features(write_store(tmp_path, "npy", arrays))
    with pytest.raises(RecipeError) as raised:
        folder.clock  # noqa: B018
    assert "features.rate=7.5" in raised.value.hint
    assert folder.on(Clock(Fraction(6))).clock == Clock(Fraction(6))
    with pytest.raises(RecipeError, match="7.5"):
        opened(tmp_path).on(Clock(Fraction(6)))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("29.97002997002997", "30000/1001"),  # as OpenCV has it
        ("29.97002997", "30000/1001"),
        ("24.98763", "2498763/100000"),
        ("7.5", "15/2"),
        ("30/4", "15/2"),
        ("29.97", "30000/1001"),
        ("30/1.001", "30000/1001"),
        ("24", "24"),
    ],
)
def test_rates_as_people_write_them(text, rate):
    clock = Stated(rate=text).clock
    assert clock == Clock(Fraction(rate)) == Clock.from_dict(clock.to_dict()), "as a model stores it"


@pytest.mark.parametrize("text", ["0", "-4", "fast", "1/0", "1e9", "2000", "4 a second"])
def test_a_rate_that_is_none(text):
    with pytest.raises(ConfigError, match="features.rate"):
        Stated(rate=text)


def test_settings_of_features_are_told_from_others():
    said, others = split_settings({"features.rate": "5", "model.kind": "rnn"})
    assert said == Stated(rate="5") and others == {"model.kind": "rnn"}
    with pytest.raises(ConfigError, match=r"features\.speed"):
        split_settings({"features.speed": "5"})


def test_a_run_or_a_folder_of_scores_is_no_store(tmp_path):
    folders = {"run": ["checkpoint.pt", "config.json"], "found": ["v.npy", "v.html"], "empty": ["._v.npy"]}
    folders["tracked"] = ["mouse.mp4", "mouseDLC_resnet50.h5"]
    for name, files in folders.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).touch()
        assert not is_feature_folder(tmp_path / name)
