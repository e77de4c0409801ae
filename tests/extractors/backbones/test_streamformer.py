"""StreamFormer against timm's SigLIP where time changes nothing, and against its layers written down anew."""

import math
from dataclasses import replace

import pytest
import torch

from lstr.extractors.backbones import streamformer
from lstr.extractors.backbones.network import Network
from lstr.extractors.backbones.networks import NETWORKS
from lstr.extractors.backbones.streamformer import FRAMES, HEADS, WIDTH, Layer, StreamFormer
from lstr.extractors.networks.weights import load_weights
from lstr.extractors.presets import PRESETS
from tests.support.moving import unsettled


def attention(x, qkv, out, mask):
    """Of one sequence (L, D), head by head."""
    made = []
    query, key, value = (x @ qkv.weight.T + qkv.bias).split(WIDTH, 1)
    for head in range(HEADS):
        at = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        scores = query[:, at] @ key[:, at].T / math.sqrt(WIDTH // HEADS) + mask
        made.append(torch.exp(scores - scores.logsumexp(1, keepdim=True)) @ value[:, at])
    return torch.cat(made, 1) @ out.weight.T + out.bias


def normed(x, norm):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + 1e-6) * norm.weight + norm.bias


@torch.inference_mode()
def test_a_layer_by_its_definition():
    layer = unsettled(Layer(), amount=0.05).double()
    x = torch.randn(1, 4, 3, WIDTH, dtype=torch.float64)
    found, expected = layer(x), x.clone()
    future = torch.full((4, 4), -math.inf).triu(1).double()
    for patch in range(3):
        over_time = attention(normed(x[0, :, patch], layer.time_norm), layer.time.qkv, layer.time.out, future)
        dense = over_time @ layer.time_dense.weight.T + layer.time_dense.bias
        expected[0, :, patch] += math.tanh(layer.time_gate) * dense
    for frame in range(4):
        tokens = expected[0, frame].clone()
        expected[0, frame] += attention(normed(tokens, layer.space_norm), layer.space.qkv, layer.space.out, 0.0)
    hidden = normed(expected, layer.mlp_norm) @ layer.fc1.weight.T + layer.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    expected = expected + hidden @ layer.fc2.weight.T + layer.fc2.bias
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9)
    later = x.clone()
    later[:, 3] += 1
    assert torch.allclose(layer(later)[:, :3], found[:, :3]) and not torch.allclose(layer(later)[:, 3], found[:, 3])


def published(network):
    """The tensors of a network in the published layout, with LoRA beside the layers over space, and all else there."""
    held, generator = {}, torch.Generator().manual_seed(1)
    for name, tensor in network.state_dict().items():
        layer, _, rest = name.partition(".")[2].partition(".") if name.startswith("layers.") else ("", "", name)
        table = streamformer.OF_LAYER if layer else streamformer.OF_NETWORK
        ours = sorted((ours for ours in table.values() if rest == ours or rest.startswith(f"{ours}.")), key=len)
        if ours and rest.removeprefix(ours[-1]) not in (".probe", ".attention.in_proj_weight"):
            theirs = next(theirs for theirs in table if table[theirs] == ours[-1])
            if ours[-1] != "head" or rest.startswith(("head.fc1", "head.fc2")):
                rest = theirs + rest.removeprefix(ours[-1])
        name = f"timesformer.encoder.layer.{layer}.{rest}" if layer else f"timesformer.{rest}"
        if (
            name.endswith((".attention.attention.qkv.weight", ".attention.output.dense.weight"))
            and "temporal" not in name
        ):
            a = torch.randn(32, tensor.shape[1], generator=generator)
            b = torch.randn(tensor.shape[0], 32, generator=generator)
            held[name.replace(".weight", "_lora_a.weight")], held[name.replace(".weight", "_lora_b.weight")] = a, b
            tensor = tensor - b @ a
        held[name] = tensor
    held["timesformer.encoder.layer.0.temporal_attention.attention.mask"] = torch.ones(16, 16)
    return {**held, "logit_scale": torch.ones(()), "text_encoder.a.weight": torch.zeros(2, 2)}


def small(network: Network) -> Network:
    return replace(network, build=lambda channels: StreamFormer(channels, depth=2))


@pytest.mark.long
def test_the_published_file_loads(tmp_path):
    """Of two layers; the names are its own, and LoRA is added to what it was learnt beside."""
    network, other = unsettled(StreamFormer(depth=2)), StreamFormer(depth=2)
    held = published(network)
    some = ("embeddings.patch_embeddings.projection.bias", "encoder.layer.1.attention.attention.qkv_lora_b.weight")
    more = ("encoder.layer.0.temporal_attention_gating", "head.mlp.fc2.bias", "head.attention.in_proj_weight")
    assert {f"timesformer.{name}" for name in (*some, *more, "head.probe", "post_layernorm.bias")} < held.keys()
    torch.save({"model": held}, tmp_path / "streamformer.pth")
    load_weights(other, tmp_path / "streamformer.pth", small(NETWORKS["streamformer"]))
    for name, tensor in network.state_dict().items():
        assert torch.allclose(other.state_dict()[name], tensor, atol=1e-4), name


@pytest.mark.long
@torch.inference_mode()
@pytest.mark.slow
def test_without_time_it_is_siglip():
    """timm's ViT-B/16 of SigLIP, by its tensors, on the last of six frames; other sides than 224 pixels, too."""
    timm = pytest.importorskip("timm")
    siglip = unsettled(timm.create_model("vit_base_patch16_siglip_224", pretrained=False, num_classes=0), amount=0.02)
    ours, theirs = StreamFormer().eval(), siglip.state_dict()
    table = {"patches.weight": theirs["patch_embed.proj.weight"], "patches.bias": theirs["patch_embed.proj.bias"]}
    table |= {
        "places": theirs["pos_embed"],
        "times": torch.zeros(1, 16, WIDTH),
        "head.probe": theirs["attn_pool.latent"],
    }
    pairs = {"space_norm": "norm1", "space.qkv": "attn.qkv", "space.out": "attn.proj"}
    pairs |= {"mlp_norm": "norm2", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
    for kind in ("weight", "bias"):
        table |= {f"norm.{kind}": theirs[f"norm.{kind}"], f"head.norm.{kind}": theirs[f"attn_pool.norm.{kind}"]}
        table |= {f"head.fc{n}.{kind}": theirs[f"attn_pool.mlp.fc{n}.{kind}"] for n in (1, 2)}
        table[f"head.attention.out_proj.{kind}"] = theirs[f"attn_pool.proj.{kind}"]
        both = [theirs[f"attn_pool.{part}.{kind}"] for part in ("q", "kv")]
        table[f"head.attention.in_proj_{kind}"] = torch.cat(both)
        for n in range(12):
            table |= {f"layers.{n}.{a}.{kind}": theirs[f"blocks.{n}.{b}.{kind}"] for a, b in pairs.items()}
    table |= {f"layers.{n}.time_gate": torch.zeros(()) for n in range(12)}
    missing, extra = ours.load_state_dict(table, strict=False)
    assert not extra and all(".time" in name for name in missing)
    clip = torch.randn(2 * FRAMES, 3, 224, 224)
    found = ours(clip)[..., 0, 0]
    expected = siglip(clip[FRAMES - 1 :: FRAMES])
    assert (found[::FRAMES] - expected).abs().max() < 1e-4 * expected.abs().max()
    assert torch.equal(found[0], found[FRAMES - 1]) and ours(torch.randn(FRAMES, 3, 96, 128)).shape == (6, 768, 1, 1)


def test_its_recipe_is_the_authors():
    """All frames of a chunk at 4 chunks a second, squares of 224 pixels of a short side of 224."""
    preset = PRESETS["streamformer"]
    assert (preset.streams, preset.short_side, preset.crop) == (("rgb",), 224, 224)
    assert NETWORKS["streamformer"].segments == FRAMES and NETWORKS["streamformer"].width == 768
