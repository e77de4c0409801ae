"""Networks that remember, from chunks to features: in order, together with other streams, and after a restart."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.extractors.errors import MissingPathError, NetworkRuntimeError, RecipeError, WeightsError
from lstr.extractors.memory import StreamMemory
from lstr.extractors.networks.runtimes.exported import make_network_graph
from lstr.extractors.presets import PRESETS, StreamPreset, preset_of, read_preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.sources import WeightSources
from lstr.pipelines.networks.stream_memory import restore_memory, save_memory
from tests.support.moving import moving_chunks, unsettled

SIDE = 48
SMALL = replace(PRESETS["movinet-a0"], long_side=SIDE, short_side=SIDE, crop=SIDE)


def made_of(network, segments=None, crops=1, threads=2):
    part = StreamPreset(network, crops=crops, segments=segments)
    twostream = build_twostream(replace(SMALL, rgb=part), WeightSources(), "cpu")
    unsettled(twostream.networks["rgb"], amount=0.02)
    return twostream.again(options=RunOptions(threads=threads))


@pytest.fixture(scope="module")
def movinet():
    return made_of("movinet-a0-stream")


def features(rows):
    return np.stack([row.rgb for row in rows])


def one_by_one(twostream, chunks, segments):
    """The same by the network itself, a frame after the other."""
    network, part = twostream.networks["rgb"], twostream.recipe.rgb
    state, found = None, []
    for chunk in chunks:
        crops = twostream.inputs.cropped("rgb", chunk.frames).reshape(part.crops, segments, SIDE, SIDE, 3)
        images = torch.from_numpy(crops).permute(1, 0, 4, 2, 3).float()
        images = (images - torch.tensor(part.mean).view(3, 1, 1)) / torch.tensor(part.std).view(3, 1, 1)
        state = network.begin(part.crops, SIDE, SIDE) if state is None else state
        means = []
        with torch.inference_mode():
            for frame in images:
                maps, state = network.step(frame, state)
                means.append(maps.mean((0, 2, 3)))
        found.append(torch.stack(means).mean(0).numpy())
    return np.stack(found)


@pytest.mark.parametrize("name, segments, crops", [("movinet-a0-stream", 1, 1), ("tsm-mobilenetv2", 2, 2)])
def test_chunks_of_a_video_go_through_in_their_order(name, segments, crops):
    """In batches of several, on several threads: each sees those before it, of every frame that the recipe names."""
    twostream, chunks = made_of(name, segments, crops), moving_chunks(13)
    found = features(twostream.rows(chunks, None))
    expected = one_by_one(twostream, chunks, segments)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()
    alone = features(twostream.rows(chunks[-1:], None))
    assert np.abs(found[-1] - alone[0]).max() > 1e-3 * np.abs(expected).max(), "the chunks before change nothing"
    assert twostream.runtimes == {"rgb": "torch"}


def test_a_stream_goes_on_to_the_bit_after_a_restart(movinet, tmp_path):
    chunks = moving_chunks(11)
    whole = features(movinet.rows(chunks, None))
    memory = StreamMemory()
    first = features(movinet.rows(chunks[:5], None, memory=memory))
    save_memory(tmp_path / "camera.memory", memory, movinet.recipe)
    again = movinet.again()
    restored = restore_memory(tmp_path / "camera.memory", again.recipe)
    rest = features(again.rows(chunks[5:], None, memory=restored))
    assert np.array_equal(np.concatenate([first, rest]), whole)
    memory.forget()
    assert not np.array_equal(features(movinet.rows(chunks[5:], None, memory=memory)), rest)


def test_streams_that_go_together_stay_apart(movinet):
    """Two cameras that share batches have the features that each has alone, one that begins later too."""
    one, two = moving_chunks(6, seed=1), moving_chunks(4, seed=2)
    alone = [features(movinet.rows(chunks, None)) for chunks in (one, two)]
    memories, found = (StreamMemory(), StreamMemory()), ([], [])
    movinet.prepare(1)
    with ThreadPoolExecutor(1, initializer=movinet.begin_thread) as pool:
        for at, chunk in enumerate(one):
            pairs = [(0, chunk)] + ([(1, two[at - 2])] if at >= 2 else [])
            rows = movinet.submit(pool, [c for _, c in pairs], None, [memories[n] for n, _ in pairs]).result()
            for (n, _), row in zip(pairs, rows, strict=True):
                found[n].append(row)
    for rows, expected in zip(found, alone, strict=True):
        assert np.abs(features(rows) - expected).max() < 1e-5 * np.abs(expected).max()


def test_what_fails_is_not_remembered(movinet):
    chunks, memory = moving_chunks(2), StreamMemory()
    movinet.prepare(1)
    with ThreadPoolExecutor(1) as pool:
        movinet.submit(pool, chunks[:1], None, [memory]).result()
        before = dict(memory.states)
        broken = replace(chunks[1], frames=chunks[1].frames[..., :2])
        with pytest.raises(Exception):  # noqa: B017  # whatever a frame of two colours leads to
            movinet.submit(pool, [broken], None, [memory]).result()
        assert memory.states == before


def test_only_torch_runs_them(movinet):
    with pytest.raises(NetworkRuntimeError, match="remembers the frames before"):
        movinet.again(options=RunOptions("openvino")).open()
    with pytest.raises(NetworkRuntimeError, match="no ONNX form"):
        make_network_graph(movinet.job("rgb"))
    with pytest.raises(RecipeError, match="int8 and a network that remembers"):
        Recipe.from_dict({**movinet.recipe.to_dict(), "precision": "int8"})


def test_a_recipe_says_how_many_frames(tmp_path, movinet):
    (tmp_path / "two.json").write_text('{"based_on": "movinet-a0", "rgb": {"segments": 2}}')
    preset = read_preset(tmp_path / "two.json")
    assert preset.rgb.segments == 2 and preset.crop == 172
    two = made_of("movinet-a0-stream", 2)
    assert two.recipe.rgb.segments == 2 and preset_of(two.recipe).rgb.segments == 2
    assert preset_of(movinet.recipe).rgb.segments is None and two.recipe.id != movinet.recipe.id
    assert Recipe.from_dict(two.recipe.to_dict()) == two.recipe
    (tmp_path / "two.json").write_text('{"based_on": "fast", "rgb": {"segments": 2}}')
    with pytest.raises(RecipeError, match="segments is 2"):
        read_preset(tmp_path / "two.json")


def test_a_memory_of_something_else_is_refused(movinet, tmp_path):
    with pytest.raises(MissingPathError):
        restore_memory(tmp_path / "none", movinet.recipe)
    (tmp_path / "no memory").write_bytes(b"something else")
    with pytest.raises(WeightsError, match="no memory"):
        restore_memory(tmp_path / "no memory", movinet.recipe)
    save_memory(tmp_path / "memory", StreamMemory(), movinet.recipe)
    with pytest.raises(RecipeError, match="was written by the recipe"):
        restore_memory(tmp_path / "memory", replace(movinet.recipe, rgb_frame=1))
