"""Feature folders held against a reference."""

import json
import shutil

import numpy as np
import pytest

from lstr.extractors.errors import MissingPathError, RecipeError, VideoError
from lstr.pipelines.features.compare import compare, pair_streams

WIDTHS = {"rgb_kinetics_resnet50": 48, "flow_kinetics_bninception": 24}


def walk(rng, length: int, width: int) -> np.ndarray:
    """Non-negative rows (length, width) that change slowly, as features of a video do."""
    steps = rng.normal(size=(length, width)) * 0.5
    return np.abs(rng.normal(size=width) + steps.cumsum(0)).astype(np.float32)


@pytest.fixture
def reference(tmp_path):
    """A folder as it is published: no recipe, two streams, three videos of 120 chunks."""
    rng = np.random.default_rng(0)
    for name, width in WIDTHS.items():
        (tmp_path / "reference" / name).mkdir(parents=True)
        for i in range(3):
            np.save(tmp_path / "reference" / name / f"v{i}.npy", walk(rng, 120, width))
    return tmp_path / "reference"


def changed(reference, change, stream="flow"):
    """A copy of the reference with `change` done to one stream of v1."""
    mine = reference.parent / "mine"
    shutil.rmtree(mine, ignore_errors=True)
    shutil.copytree(reference, mine)
    (path,) = mine.glob(f"{stream}_*/v1.npy")
    np.save(path, change(np.load(path)))
    return mine


def matches(reference, mine):
    return {(m.id, m.stream): m for m in compare(pair_streams(reference, mine))}


def test_a_folder_matches_itself(reference, lstr):
    for match in matches(reference, reference).values():
        assert (match.shift, match.chunks, match.reason) == (0, 120, "")
        assert match.cosine == pytest.approx(1) and match.norm_ratio == pytest.approx(1)
    code, out, _ = lstr("compare", reference, reference, "--json")
    document = json.loads(out)
    assert code == 0 and [len(document["videos"]), document["only_in_mine"]] == [6, []]
    assert document["streams"]["rgb"]["matching"] == document["streams"]["rgb"]["videos"] == 3


@pytest.mark.parametrize("by", [-3, -1, 2, 8])
def test_a_shift_is_found_with_its_sign(reference, by):
    """Row k + shift of mine is row k of the reference."""
    mine = changed(reference, lambda a: a[-by:] if by < 0 else np.concatenate([np.zeros((by, a.shape[1]), a.dtype), a]))
    match = matches(reference, mine)["v1", "flow"]
    assert match.shift == by and match.cosine == pytest.approx(1) and f"shifted by {by}" in match.reason
    assert not matches(reference, mine)["v1", "rgb"].reason


def test_each_difference_is_named(reference):
    noise = np.random.default_rng(1).normal(size=(120, 24)).astype(np.float32)
    cases = {
        "norms are 3 times": lambda a: a * 3,
        "lengths 120 and 96 (1.25 ×": lambda a: a[:96],
        "is below 0.95": lambda a: np.abs(a + 3 * a.std() * noise),
        "widths 24 and 20": lambda a: a[:, :20],
        "not finite": lambda a: np.where(np.arange(120)[:, None] == 5, np.nan, a),
        "not rows of features": lambda a: a[0],
    }
    for words, change in cases.items():
        found = matches(reference, changed(reference, change))
        assert words in found["v1", "flow"].reason and [k for k, m in found.items() if m.reason] == [("v1", "flow")]
    assert not matches(reference, changed(reference, lambda a: a[:-1]))["v1", "flow"].reason, "the tail of a video"
    assert not matches(reference, changed(reference, lambda a: a.astype(np.float16)))["v1", "flow"].reason


def test_cosine_and_norm_are_the_textbooks(reference):
    """The numbers themselves, computed again in double precision, without a shift that could fit better."""
    noise = np.random.default_rng(1).normal(size=(120, 24))
    mine = changed(reference, lambda a: 1.05 * a + 0.1 * noise)
    (match,) = (m for m in compare(pair_streams(reference, mine), max_shift=0) if (m.id, m.stream) == ("v1", "flow"))
    a, b = (np.load(folder / "flow_kinetics_bninception" / "v1.npy").astype(float) for folder in (reference, mine))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert match.cosine == pytest.approx(cosines.mean(), abs=1e-6)
    assert match.cosine_p5 == pytest.approx(np.quantile(cosines, 0.05), abs=1e-6)
    ratios = np.linalg.norm(b, axis=1) / np.linalg.norm(a, axis=1)
    assert match.norm_ratio == pytest.approx(np.median(ratios), rel=1e-5)


def test_still_and_empty_videos(reference):
    """Every shift fits a still video: none is meant. Rows of zeros equal rows of zeros and nothing else."""
    still = changed(reference, lambda a: np.repeat(a[:1], 120, 0))
    match = matches(still, still)["v1", "flow"]
    assert (match.shift, match.reason) == (0, "") and match.cosine == pytest.approx(1)
    zeros = changed(reference, np.zeros_like)
    assert matches(zeros, zeros)["v1", "flow"].cosine == 1 and not matches(zeros, zeros)["v1", "flow"].reason
    assert matches(reference, zeros)["v1", "flow"].cosine == 0


def test_damaged_arrays_and_ids_of_one_side(reference, lstr):
    mine = changed(reference, lambda a: a)
    path = mine / "rgb_kinetics_resnet50" / "v0.npy"
    path.write_bytes(path.read_bytes()[:-7])
    (mine / "rgb_kinetics_resnet50" / "v2.npy").unlink()
    (mine / "flow_kinetics_bninception" / "v2.npy").rename(mine / "flow_kinetics_bninception" / "v9.npy")
    code, out, err = lstr("compare", reference, mine)
    assert code == 3 and "v0\trgb\t-\t-\t-\t-\t-\t-\tmine is damaged" in out and err.count("hint: ") == 1
    assert "v2" in err and "v9" in err and "1 of 4 arrays do not match" in err


def test_none_in_common(reference, lstr):
    mine = reference.parent / "mine"
    shutil.copytree(reference, mine)
    for path in list(mine.rglob("*.npy")):
        path.rename(path.with_name("other_" + path.name))
    code, out, err = lstr("compare", reference, mine)
    assert code == 3 and out == "" and "'v0'" in err and "'other_v0'" in err and err.count("hint: ") == 1
    with pytest.raises(VideoError):
        next(compare(pair_streams(reference, mine)))


def test_which_folders_are_compared(reference, tmp_path):
    """A published set may hold the features of two recipes: the name that both have decides."""
    mine = tmp_path / "mine"
    shutil.copytree(reference, mine)
    (reference / "rgb_anet_resnet50").mkdir()
    assert pair_streams(reference, mine)["rgb"][0].name == "rgb_kinetics_resnet50"
    (mine / "rgb_kinetics_resnet50").rename(mine / "rgb_random_resnet50")
    with pytest.raises(RecipeError, match="rgb_anet_resnet50, rgb_kinetics_resnet50 against rgb_random_resnet50"):
        pair_streams(reference, mine)
    shutil.rmtree(mine / "rgb_random_resnet50")
    assert list(pair_streams(reference, mine)) == ["flow"], "one stream is enough"
    with pytest.raises(RecipeError, match="no stream in common"):
        pair_streams(reference, tmp_path)
    with pytest.raises(MissingPathError):
        pair_streams(reference, tmp_path / "none")


def test_recipes_that_differ_are_shown(reference, tmp_path, lstr):
    from lstr.extractors.recipe import NetworkRecipe, Recipe

    mine = changed(reference, lambda a: a)
    for folder, crops in ((reference, 10), (mine, 1)):
        rgb = NetworkRecipe("resnet50", "kinetics", "0" * 16, 1, (0.0,), (1.0,))
        flow = NetworkRecipe("bninception", "kinetics", "1" * 16, crops, (0.0,), (1.0,))
        (folder / "recipe.json").write_text(Recipe(rgb, flow).to_json())
    code, _, err = lstr("compare", reference, mine)
    assert code == 0 and "flow.crops: 10 against 1" in err
