"""Long-term feature banks (Wu et al., CVPR 2019) with non-local blocks, used causally: a baseline of the LSTR paper."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig, define_config
from lstr.models.kind import Kind, Model
from lstr.models.layers import FeatureHead, Step, Tensors, module_list, put, reset_fresh
from lstr.models.published import read_publication
from lstr.windows import indices as memory
from lstr.windows.plans import Bank, bank_chunks
from lstr.windows.windows import Windows

KeysValues = tuple[Tensor, Tensor]


class NonLocalBlock(nn.Module):
    """Short-term features look at the bank with one head, as wide as they are (Wu et al. 2019, the modified NL block).

    Scaled dot product and softmax, then LayerNorm, ReLU, a linear layer and dropout, added to the features.
    """

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, short: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Return short (B, N, d_model) after it met keys and values (B, M, d_model); mask (B, N, M), True = visible."""
        scores = self.query(short) @ keys.transpose(1, 2) * short.shape[-1] ** -0.5  # (B, N, M)
        attended = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ values  # (B, N, d_model)
        return short + self.dropout(self.out(F.relu(self.norm(attended))))


LFBConfig = define_config(__name__, "LFBConfig", "lfb", Uses(heads=False))


class LFB(Model):
    """A chunk's short-term feature, and what `config.l_dec` non-local blocks find for it in the bank.

    The bank at a chunk holds the visible chunks of the long memory, and of the work memory those up to the chunk
    itself, which is the causal bank of Wu et al. 2019. It is a set: the place of a chunk in it is not known.
    """

    plans = Bank

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_model)
        self.feature_head_long = FeatureHead(config.input_dim, config.d_model)
        self.blocks: Sequence[NonLocalBlock] = module_list(
            NonLocalBlock(config.d_model, config.dropout) for _ in range(config.l_dec)
        )
        self.classifier = nn.Linear(2 * config.d_model, n_classes)
        # The ring of the work memory, then of the long one. A chunk that both memories can hold is in both: until a
        # chunk leaves the work memory, the newest long slot has chunk 0 too (`lstr.windows.indices.long_indices`).
        names = [f"{name}.{i}" for i in range(config.l_dec) for name in ("keys", "values")]
        rows = config.work_length + memory.long_rows(config)
        self.memory_shapes = dict.fromkeys(names, (rows, config.d_model))

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W, C) of every work slot, from the long memory and the work slots up to itself."""
        W = windows.work.shape[1]
        causal = torch.ones(len(windows), W, W, dtype=torch.bool, device=windows.work.device).tril()
        mask = torch.cat([windows.long_mask[:, None].expand(-1, W, -1), causal], dim=2)  # (B, W, n_long + W)
        bank = self.keys_values(torch.cat([windows.long, windows.work], dim=1))  # (B, n_long + W, d_model) each
        return self.classify(windows.work, bank, mask)

    def keys_values(self, features: Tensor) -> list[KeysValues]:
        """Return keys and values (..., d_model) of chunks with features (..., D) for each block."""
        tokens = self.feature_head_long(features)
        return [(block.key(tokens), block.value(tokens)) for block in self.blocks]

    def classify(self, features: Tensor, bank: Iterable[KeysValues], mask: Tensor) -> Tensor:
        """Return logits (B, N, C) of chunks with features (B, N, D).

        bank: a pair (B, M, d_model) for each block; mask (B, N, M) bool, True = visible.
        """
        short = self.feature_head_work(features)  # (B, N, d_model)
        found = short
        for block, (keys, values) in zip(self.blocks, bank, strict=True):
            found = block(found, keys, values, mask)
        return self.classifier(torch.cat([short, found], dim=-1))

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        bank = self.keys_values(features)  # (L, d_model) each
        rows = []
        for ends in memory.in_pieces(len(features), batch_size):
            chunks, mask = bank_chunks(ends, self.config)  # (B, n_long + W)
            seen = ((keys[chunks], values[chunks]) for keys, values in bank)  # (B, n_long + W, d_model), block by block
            visible = torch.from_numpy(mask).to(features.device)[:, None]  # (B, 1, n_long + W)
            rows.append(self.classify(features[ends][:, None], seen, visible))
        return torch.cat(rows)

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        after, bank = {}, []
        for i, pair in enumerate(self.keys_values(features)):
            for name, new in zip((f"keys.{i}", f"values.{i}"), pair, strict=True):
                # A hidden row weighs 0, but 0 times what an earlier video left there need not be 0.
                ring = put(reset_fresh(tensors[name], plan.get("fresh")), plan["row"], new, donate)
                if "stores.row" in plan:
                    ring = put(ring, plan["stores.row"], new.index_select(0, plan["stores.streams"]), donate)
                after[name] = ring
            bank.append((after[f"keys.{i}"], after[f"values.{i}"]))  # (B, R, d_model)
        rows = bank[0][0].shape[1]
        hidden = plan["hidden"] if "hidden" in plan else features.new_zeros(len(features), rows, dtype=torch.bool)
        return self.classify(features[:, None], bank, ~hidden[:, None]), after


KIND = Kind(LFB, LFBConfig, read_publication("lfb"))
