"""OadTR (Wang et al., ICCV 2021): a transformer over the last chunks, and queries for the chunks to come.

A class token follows the tokens of the window through a pre-norm encoder. The queries of a decoder, one for each chunk
ahead, attend to all of them. The score of the newest chunk comes from the class token and the mean of the decoder's
outputs; the score of a chunk ahead from the output of its query.

The published code scores no chunk before its window is full, none with chunks ahead beyond the end of the video, and
skips the ambiguous class in its softmax; here every chunk is scored, over all classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import SizeOrZero, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import EVERY_WINDOW, FixedWindow, Kind, Preset
from lstr.models.layers import CausalBlock, Head, module_list
from lstr.models.published import Published, Tables, packed_blocks, read_publication, with_prefixes
from lstr.windows.windows import Outputs

UNUSED = "decoder_position_encoding."  # prefix of published tensors that are not used


class PreNormBlock(nn.Module):
    """Self-attention whose projections have no bias, and a feed-forward, each added to what was normalised for it."""

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.proj = nn.Linear(d_model, d_model)
        self.linear1 = nn.Linear(d_model, d_feedforward)
        self.linear2 = nn.Linear(d_feedforward, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return x (B, N, D) after it met itself."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1))  # (B, N, 3, n_heads, D / n_heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        dropout = self.dropout.p if self.training else 0.0
        heads = F.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout)
        x = x + self.dropout(self.proj(heads.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.linear2(self.dropout(F.gelu(self.linear1(self.norm2(x))))))


class OadTRConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, ahead=8)

    kind = "oadtr"
    decoder_heads: SizeOrZero = 0
    """Heads of the decoder; 0 is n_heads."""
    decoder_feedforward: SizeOrZero = 0
    """Width inside the feed-forward layers of the decoder; 0 is d_feedforward."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_heads("decoder_heads")


class OadTR(FixedWindow):
    """`config.l_enc` encoder and `config.l_dec` decoder layers; a query for each of `config.n_ahead` chunks ahead."""

    config: OadTRConfig
    scoring_rule = ScoringRule("OadTR", "whole windows", "exclude alone")

    def __init__(self, config: OadTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, dropout = config.d_model, config.dropout
        asking = (d_model, config.decoder_heads or config.n_heads, config.decoder_feedforward or config.d_feedforward)
        self.feature_head_work = Head(nn.Linear(config.input_dim, d_model))
        self.class_token = nn.Parameter(torch.zeros(d_model))
        self.positions = nn.Embedding(config.work_length + 1, d_model)
        self.encoder: Sequence[PreNormBlock] = module_list(
            PreNormBlock(d_model, config.n_heads, config.d_feedforward, dropout) for _ in range(config.l_enc)
        )
        self.encoder_norm = nn.LayerNorm(d_model)
        self.queries = nn.Parameter(torch.zeros(config.n_ahead, d_model))
        self.decoder: Sequence[CausalBlock] = module_list(CausalBlock(*asking, dropout) for _ in range(config.l_dec))
        self.decoder_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.now = nn.Linear(2 * d_model, n_classes)
        self.classifier = nn.Linear(d_model, n_classes)

    def outputs(self) -> Outputs:
        """Return the newest chunk and the chunks after it; their mean has half the weight in the loss."""
        outputs = super().outputs()
        return replace(outputs, parts=(outputs.parts[0], replace(outputs.parts[1], weight=0.5)))

    def score(self, kept: Tensor, constants: None = None) -> Tensor:
        """Return logits (B, 1 + n_ahead, C) from the tokens (B, W, d_model) of a window."""
        # A stream can keep no more than these tokens: each moves to another slot with every chunk, and attends to all.
        last = self.class_token.expand(len(kept), 1, -1)
        x = self.dropout(torch.cat([kept, last], dim=1) + self.positions.weight)  # (B, W + 1, d_model)
        for block in self.encoder:
            x = block(x)
        x = self.encoder_norm(x)
        asked = self.queries.expand(len(kept), -1, -1)  # (B, n_ahead, d_model)
        for layer in self.decoder:
            asked = layer(asked, x)
        asked = self.decoder_norm(asked)
        now = self.now(torch.cat([x[:, -1], asked.mean(dim=1)], dim=-1))  # (B, C)
        return torch.cat([now[:, None], self.classifier(asked)], dim=1)


PUBLISHED = OadTRConfig(dropout=0.1, n_heads=8, decoder_heads=4, work_length=64, l_enc=3, l_dec=5, anticipation=8)
TRAINING = EVERY_WINDOW | dict(epochs=4, batch_size=128, lr=1e-4, weight_decay=1e-4, schedule="tenths", clip=1.0)


class PublishedOadTR(Published):
    """The published code of OadTR."""

    config = PUBLISHED
    marks = ("decoder_cls_token", "class_token")
    # the encoder's blocks, which have two numbers there, follow in `renamed`
    names = {
        "linear_encoding.": "feature_head_work.input_linear.0.",
        "position_encoding.pe.": "positions.",
        "pre_head_ln.": "encoder_norm.",
        "decoder.layers.": "decoder.",
        "decoder.norm.": "decoder_norm.",
        "mlp_head.": "now.",
    }
    sizes = {
        "d_feedforward": ("encoder.0.linear1.weight", 0),
        "n_ahead": ("queries", 0),
        "decoder_feedforward": ("decoder.0.linear1.weight", 0),
        "work_length": ("positions.weight", 0),
    }
    layers = {"l_enc": "encoder.", "l_dec": "decoder."}
    unknown = ("n_heads", "decoder_heads")

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        names, alone = dict(self.names), {"cls_token": "class_token", "decoder_cls_token": "queries"}
        numbers = {name.split(".")[2] for name in tensors if name.startswith("encoder.net.")}
        for number in numbers:
            block, feeds = divmod(int(number), 2)
            names[f"encoder.net.{number}.fn.norm."] = f"encoder.{block}.norm{1 + feeds}."
            inner = {"net.0.": "linear1.", "net.3.": "linear2.", "qkv.": "qkv.", "proj.": "proj."}
            names |= {
                f"encoder.net.{number}.fn.fn.{theirs}": f"encoder.{block}.{ours}" for theirs, ours in inner.items()
            }
        found = {}
        for name, tensor in tensors.items():
            if name in alone:
                found[alone[name]] = tensor[0, 0] if name == "cls_token" else tensor[0]
            elif not name.startswith(UNUSED):
                found[name] = tensor
        return packed_blocks(with_prefixes(found, names))

    def shapes(self, tensors: Tables) -> dict[str, int]:
        found = super().shapes(tensors)
        return found | ({"work_length": found["work_length"] - 1} if "work_length" in found else {})  # the class token

    def settings(self, tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        known = super().settings(tensors, changes)
        return {"anticipation": known.pop("n_ahead"), **known}


PRESETS = {"oadtr-thumos14": Preset(PUBLISHED, TRAINING)}
KIND = Kind(OadTR, OadTRConfig, read_publication("oadtr"), PRESETS, PublishedOadTR())
