"""Features of other programs: files of every form, rates, and files that cannot be read."""

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


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {f"v{n}": random.normal(size=(41 + n, 6)).astype(np.float32) for n in range(3)}


def open_store(path):
    return open_features(path, stated=Stated(rate="7.5"))


@pytest.mark.parametrize("form", FORMATS)
def test_rows_do_not_depend_on_the_form(tmp_path, arrays, form):
    store = write_store(tmp_path / "store", form, arrays)
    for path in [*store.iterdir(), store / "v0.pkl"]:  # hidden files that macOS writes on other file systems
        (store / f"._{path.name}").write_bytes(b"\x00\x05\x16\x07Mac OS X")
    folder = open_store(store)
    assert folder.ids() == [*arrays] and folder.lengths() == {i: len(rows) for i, rows in arrays.items()}
    rgb, flow = folder.load("v1")
    assert flow.shape == (42, 0) and rgb.shape == (42, 6)
    for index in (3, -1, slice(None), slice(4, 9), slice(0, 0), np.array([5, 2, 2, 40]), np.array([[0, 7], [7, 1]])):
        assert np.array_equal(rgb[index], arrays["v1"][index]), index
    assert np.array_equal(folder.load("v1", 10)[0][:], arrays["v1"][:10])
    assert folder.clock == Clock(Fraction(15, 2)) and folder.describe()["widths"] == {"rgb": 6}
    assert is_feature_folder(folder.path)


def test_folders_and_endings_of_names_are_streams(tmp_path, arrays):
    flow = {i: rows[:-1, :4] for i, rows in arrays.items()}
    write_store(tmp_path / "folders" / "rgb", "npy", arrays)
    write_store(tmp_path / "folders" / "flow_raft", "pt", flow)
    write_store(tmp_path / "names", "npy", {f"{i}_rgb": rows for i, rows in arrays.items()})
    write_store(tmp_path / "names", "npy", {f"{i}_flow": rows for i, rows in flow.items()})
    np.save(tmp_path / "names" / "v0_fps.npy", 25.0)
    np.save(tmp_path / "names" / "v0_timestamps_ms.npy", np.arange(41.0))
    for store in (tmp_path / "folders", tmp_path / "names"):
        folder = open_store(store)
        assert [*folder.folders] == ["rgb", "flow"] and folder.ids() == [*arrays]
        rgb_rows, flow_rows = folder.load("v0")
        assert rgb_rows.shape == (40, 6) and np.array_equal(flow_rows[:], flow["v0"]), "the shorter length"
        assert folder.only(["flow"]).load("v0")[0].shape == (40, 0)


class Evil:
    """Changes a class attribute if it is unpickled."""

    is_unpickled = False

    def __reduce__(self):
        return setattr, (Evil, "is_unpickled", True)


def write_lengths(folder, arrays):
    write_store(folder / "rgb", "npy", arrays)
    write_store(folder / "flow", "npy", {i: rows[::2] for i, rows in arrays.items()})


CUBE = {"v0": np.ones((1, 41, 6))}
UNREADABLE = {
    **{f"{form} of three axes": (lambda f, a, form=form: write_store(f, form, CUBE), "v0") for form in FORMATS},
    "another width": (lambda f, a: write_store(f, "npy", {**a, "v2": a["v2"][:, :5]}), "v2"),
    "several arrays": (lambda f, a: np.savez(f / "v0.npz", clip=a["v0"], slow=a["v0"]), "clip, slow"),
    "streams of other lengths": (write_lengths, "41 rgb and 21 flow"),
    "pickle": (lambda f, a: (f / "features.pkl").write_bytes(pickle.dumps(a)), "pickle"),
    "pickle in a tensor file": (lambda f, a: torch.save({"features": Evil()}, f / "v0.pt"), "v0.pt"),
    "cut npz": (lambda f, a: (f / "v0.npz").write_bytes(b"PK"), "v0.npz"),
    "empty npy": (lambda f, a: (f / "v0.npy").write_bytes(b""), "v0.npy"),
    "damaged pt": (lambda f, a: (f / "v0.pt").write_bytes(b"x"), "v0.pt"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_file_is_named(tmp_path, arrays, name):
    write, value = UNREADABLE[name]
    write(tmp_path, arrays)
    with pytest.raises(ExtractorError, match=value):
        folder = open_store(tmp_path)
        folder.lengths()
        folder.load("v0")[0][:]
    assert not Evil.is_unpickled


def test_an_unknown_rate_is_the_rate_of_the_model(tmp_path, arrays):
    folder = open_features(write_store(tmp_path, "npy", arrays))
    with pytest.raises(RecipeError) as caught:
        folder.clock  # noqa: B018
    assert "features.rate=" in caught.value.hint
    assert folder.on(Clock(Fraction(6))).clock == Clock(Fraction(6))
    with pytest.raises(RecipeError, match="7.5"):
        open_store(tmp_path).on(Clock(Fraction(6)))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("29.97002997002997", "30000/1001"),  # as OpenCV has it
        ("24.98763", "2498763/100000"),
        ("7.5", "15/2"),
        ("30/4", "15/2"),
        ("29.97", "30000/1001"),
        ("30/1.001", "30000/1001"),
    ],
)
def test_rates_are_exact_fractions(text, rate):
    clock = Stated(rate=text).clock
    assert clock == Clock(Fraction(rate)) == Clock.from_dict(clock.to_dict()), "as a model stores it"


@pytest.mark.parametrize("text", ["0", "-4", "fast", "1/0", "1e9", "2000", "4 a second"])
def test_an_invalid_rate_is_refused(text):
    with pytest.raises(ConfigError, match="features.rate"):
        Stated(rate=text)


def test_settings_of_features_are_separated():
    assert split_settings({"features.rate": "5", "model.kind": "rnn"}) == (Stated(rate="5"), {"model.kind": "rnn"})
    with pytest.raises(ConfigError, match=r"features\.speed"):
        split_settings({"features.speed": "5"})


@pytest.mark.parametrize(
    "files",
    [["checkpoint.pt", "config.json"], ["v.npy", "v.html"], ["._v.npy"], ["mouse.mp4", "mouseDLC_resnet50.h5"]],
    ids=["run", "scores", "hidden", "tracking"],
)
def test_folders_of_other_files_are_not_features(tmp_path, files):
    for file in files:
        (tmp_path / file).touch()
    assert not is_feature_folder(tmp_path)
