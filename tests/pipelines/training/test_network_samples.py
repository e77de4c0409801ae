"""Training samples of networks: segments and background, balanced draws, crops and mirror images."""

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lstr.extractors.streams import COMPARING, STREAMS
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.pipelines.features.chunk_cache import CachedVideo
from lstr.pipelines.training.network_config import FinetuneConfig
from lstr.pipelines.training.network_samples import Sample, SampleSet, augment, samples_of, single_chunks
from tests.support.planted import ACTION, CLASSES, LENGTH, planted


def test_samples_cover_segments_and_background():
    labels, cached = planted(2)
    samples = samples_of({i: (labels.videos[i], LENGTH) for i in cached}, CLASSES)
    for video_id in cached:
        covered = np.zeros((LENGTH, len(CLASSES)), int)
        for sample in samples:
            if sample.video == video_id:
                covered[sample.start : sample.end, sample.label] += 1
        np.testing.assert_array_equal(covered, targets(labels.videos[video_id], CLASSES, LENGTH))
    pieces = [sample.end - sample.start for sample in samples if CLASSES[sample.label] == BACKGROUND]
    assert 0 < min(pieces) and max(pieces) <= 1.5 * ACTION


def test_ambiguous_chunks_and_chunks_after_the_end_are_in_no_sample():
    classes = (BACKGROUND, "a", AMBIGUOUS)
    segments = ((0.0, 1.0, "a"), (1.0, 2.0, AMBIGUOUS), (2.5, 9.0, "a"), (7.0, 8.0, "a"))
    video = VideoLabels("training", 3.0, tuple(Segment(*row) for row in segments))
    samples = samples_of({"v": (video, 12)}, classes)
    assert {(s.start, s.end, classes[s.label]) for s in samples} == {(0, 4, "a"), (10, 12, "a"), (8, 10, BACKGROUND)}


def draw_epoch(epoch: int, samples: list[Sample], **settings) -> list[tuple[int, int, int]]:
    return SampleSet(samples, {}, "flow", FinetuneConfig(**settings)).draw_epoch(epoch)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 9), st.integers(1, 80))
def test_draws_are_balanced(labels, epoch, n_draws):
    """Each class is drawn about as often as others, and within a class each sample, for any distribution of classes."""
    samples = [Sample("v", i, i + 1, label) for i, label in enumerate(labels)]
    drawn = draw_epoch(epoch, samples, seed=3, draws=n_draws)
    assert len(drawn) == n_draws and [draw for _, draw, _ in drawn] == list(range(n_draws))
    counts = np.bincount([index for _, _, index in drawn], minlength=len(samples))
    max_per_class = -(-n_draws // len(set(labels)))
    for label in set(labels):
        of_class = counts[np.array(labels) == label]
        assert of_class.sum() <= max_per_class and of_class.max() <= -(-max_per_class // len(of_class))
    unbalanced = draw_epoch(epoch, samples, balanced=0.0, seed=3, draws=len(samples))
    assert sorted(index for _, _, index in unbalanced) == list(range(len(samples)))


def test_draws_depend_on_seed_and_epoch():
    samples = [Sample("v", i, i + 1, i % 3) for i in range(30)]
    assert draw_epoch(4, samples, seed=1) == draw_epoch(4, samples, seed=1)
    orders = {tuple(i for _, _, i in draw_epoch(epoch, samples, seed=s)) for s in (1, 2) for epoch in range(5)}
    assert len(orders) == 10


def test_single_chunks_of_segments():
    segments = [Sample("v", 2, 5, 1), Sample("v", 4, 6, 1), Sample("v", 4, 5, 2)]
    chunks = [(s.start, s.end, s.label) for s in single_chunks(segments)]
    assert sorted(chunks) == [(2, 3, 1), (3, 4, 1), (4, 5, 1), (4, 5, 2), (5, 6, 1)]


def test_mirrored_images():
    image = np.random.default_rng(0).integers(0, 256, (32, 40, 10), np.uint8)
    box, config = (0.875, 0.75, 0.5, 0.5), FinetuneConfig(short_side=32, crop=32)
    plain, mirrored = (augment(image, box, is_mirrored, config, False, (32, 32)) for is_mirrored in (False, True))
    np.testing.assert_array_equal(mirrored[:, ::-1], plain)


class Still(CachedVideo):
    """A video of one chunk with this flow (H, W, 10)."""

    def __init__(self, image: np.ndarray):
        planes = np.ascontiguousarray(np.concatenate([image[..., :3], image], 2).transpose(2, 0, 1))
        record = {"crc32": [zlib.crc32(planes.data)]}
        super().__init__(Path("still.npy"), planes[None], record, {"rgb_frame": 3})


def test_mirrored_flow_has_the_opposite_sign_but_differences_do_not():
    image = np.random.default_rng(0).integers(0, 256, (32, 40, 10), np.uint8)
    videos, config = {"v": Still(image)}, FinetuneConfig(short_side=32, crop=32, draws=40)
    directed, undirected = (SampleSet([Sample("v", 0, 1, 1)], videos, "flow", config, on) for on in (True, False))
    keys = directed.draw_epoch(0)
    turned, plain = (data.batch(keys)[0] for data in (directed, undirected))
    mirrored = (turned != plain).flatten(1).any(1)
    assert torch.equal(turned[:, :, 1::2], plain[:, :, 1::2]) and 8 < mirrored.sum() < 32
    assert torch.equal(turned[mirrored][:, :, ::2], 255 - plain[mirrored][:, :, ::2])


@pytest.mark.parametrize(("stream", "channels"), [("rgb", 3), ("flow", 10)])
def test_a_drawn_sample_has_images_and_a_label(stream, channels):
    known, cached = planted(1)
    samples = samples_of({i: (known.videos[i], LENGTH) for i in cached}, CLASSES)
    config = FinetuneConfig(segments=3, short_side=40, crop=32, seed=5, epochs=4, early_size=0.75)
    data = SampleSet(samples, cached, stream, config)
    images, labels = data.batch([(2, 7, 1)])
    assert images.shape == (1, 3, channels, 32, 32) and images.dtype == torch.uint8 and labels == (samples[1].label,)
    assert data.batch([(1, 7, 1)])[0].shape == (1, 3, channels, 24, 24), "the first half of the epochs"
    assert torch.equal(data.batch([(2, 7, 1)])[0], images) and not torch.equal(data.batch([(2, 8, 1)])[0], images)


@pytest.mark.parametrize("stream", STREAMS)
def test_half_of_the_samples_simulate_a_shaking_camera(stream):
    plane = np.random.default_rng(0).integers(0, 256, (32, 40, 1), np.uint8)
    videos = {"v": Still(np.concatenate([plane] * 10, 2))}  # all frames are equal
    configs = (FinetuneConfig(short_side=32, crop=32, draws=200, shake=shake) for shake in (0.0, 0.05))
    plain, moving = (SampleSet([Sample("v", 0, 1, 1)], videos, stream, config) for config in configs)
    keys = plain.draw_epoch(0)
    before, after = (data.batch(keys)[0] for data in (plain, moving))
    changed = (before != after).flatten(1).any(1)
    assert 70 < changed.sum() < 130 if stream in COMPARING else not changed.any()
    assert torch.equal(moving.batch(keys)[0], after)
