"""StreamFormer (Yan et al. 2025, arXiv 2504.20041): SigLIP's ViT-B/16 with causal attention over the frames of a chunk.

As its authors make features for online action detection: all six frames of a chunk of a quarter second, each chunk by
itself, and of them what the last one has come to.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, DEPTH, HEADS, HIDDEN = 768, 12, 12, 3072
PATCH, SIDE = 16, 14
"""Pixels of a patch's side; patches of an image's side, of which the file knows the places."""
FRAMES, KNOWN_FRAMES = 6, 16
"""Frames of a chunk; frames that the file knows the times of."""
EPSILON = 1e-6

OF_NETWORK = {
    "embeddings.patch_embeddings.projection": "patches",
    "embeddings.position_embeddings": "places",
    "embeddings.time_embeddings": "times",
    "post_layernorm": "norm",
    "head.layernorm": "head.norm",
    "head.mlp": "head",
}
OF_LAYER = {
    "temporal_layernorm": "time_norm",
    "temporal_attention.attention.qkv": "time.qkv",
    "temporal_attention.output.dense": "time.out",
    "temporal_dense": "time_dense",
    "temporal_attention_gating": "time_gate",
    "layernorm_before": "space_norm",
    "attention.attention.qkv": "space.qkv",
    "attention.output.dense": "space.out",
    "layernorm_after": "mlp_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
}
"""Names here by those of the published file."""
ELSEWHERE = ("text_encoder.", "task_heads.", "logit_scale", "logit_bias")
"""What of a published file is no part of the features."""


class Attention(nn.Module):
    """Self-attention of HEADS heads: (B, L, D) → (B, L, D); a causal one sees nothing later."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to tokens."""
        query, key, value = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # each (B, heads, L, d)
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(made.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention over time, then over space, then each token by itself: (B, T, N, D) → (B, T, N, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.time_norm, self.time = nn.LayerNorm(WIDTH, eps=EPSILON), Attention(causal=True)
        self.time_dense = nn.Linear(WIDTH, WIDTH)
        # the authors begin with 0; a random network would then not see that frames have an order
        self.time_gate = nn.Parameter(torch.ones(()))
        self.space_norm, self.space = nn.LayerNorm(WIDTH, eps=EPSILON), Attention(causal=False)
        self.mlp_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of all frames to tokens."""
        frames, patches = x.shape[1:3]
        over_time = self.time(self.time_norm(x).transpose(1, 2).flatten(0, 1)).unflatten(0, (-1, patches))
        x = x + self.time_gate.tanh() * self.time_dense(over_time).transpose(1, 2)
        x = x + self.space(self.space_norm(x).flatten(0, 1)).unflatten(0, (-1, frames))
        return x + self.fc2(functional.gelu(self.fc1(self.mlp_norm(x))))


class Head(nn.Module):
    """What a learnt question finds among the tokens of a frame: (B, N, D) → (B, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to features."""
        made = self.attention(self.probe.expand(len(x), -1, -1), x, x, need_weights=False)[0][:, 0]
        return made + self.fc2(functional.gelu(self.fc1(self.norm(made))))


class StreamFormer(nn.Module):
    """Without its heads for tasks: the six frames of each of B chunks (6 B, C, H, W) → (6 B, 768, 1, 1).

    The features of a chunk are those of its last frame, for each of its frames: their mean is what they are.
    """

    def __init__(self, in_channels: int = 3, depth: int = DEPTH):
        super().__init__()
        self.patches = nn.Conv2d(in_channels, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(1, SIDE * SIDE, WIDTH))
        self.times = nn.Parameter(0.02 * torch.randn(1, KNOWN_FRAMES, WIDTH))
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        """Images → features."""
        maps = self.patches(x)  # (6 B, D, h, w)
        tokens = maps.flatten(2).transpose(1, 2) + self._places(maps.shape[2], maps.shape[3])
        tokens = tokens.unflatten(0, (-1, FRAMES)) + self.times[:, :FRAMES, None]  # (B, T, N, D)
        for layer in self.layers:
            tokens = layer(tokens)
        features = self.head(self.norm(tokens[:, -1]))
        return features.repeat_interleave(FRAMES, 0)[..., None, None]

    def _places(self, height: int, width: int) -> Tensor:
        """Where each patch is, (1, N, D), on a grid of another size in between."""
        if (height, width) == (SIDE, SIDE):
            return self.places
        grid = self.places.unflatten(1, (SIDE, SIDE)).permute(0, 3, 1, 2)
        grid = functional.interpolate(grid, (height, width), mode="bicubic", antialias=True)
        return grid.flatten(2).transpose(1, 2)


def our_tensors(held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a published file by our names; what LoRA has learnt of a layer is added to it."""
    found = {}
    for name, tensor in held.items():
        plain = name.removeprefix("timesformer.")
        if plain.startswith(ELSEWHERE) or plain.endswith(".attention.mask") or "_lora_" in plain:
            continue
        added, again = (held.get(re.sub(r"(qkv|dense)\.weight$", rf"\1_lora_{n}.weight", name)) for n in "ab")
        if name.endswith((".qkv.weight", ".dense.weight")) and added is not None and again is not None:
            tensor = tensor + again.to(tensor) @ added.to(tensor)
        found[_our_name(plain)] = tensor
    return found


def _our_name(plain: str) -> str:
    layer = re.match(r"encoder\.layer\.(\d+)\.", plain)
    rest, table = (plain[layer.end() :], OF_LAYER) if layer else (plain, OF_NETWORK)
    for theirs, ours in table.items():
        if rest == theirs or rest.startswith(f"{theirs}."):
            rest = ours + rest.removeprefix(theirs)
            break
    return f"layers.{layer[1]}.{rest}" if layer else rest
