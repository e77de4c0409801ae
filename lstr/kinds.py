"""The kinds of model, and what they have in common.

Every kind has `config`, `n_classes`, a last layer `classifier`, and:

- `outputs()`: what the N outputs of a window speak of, `lstr.windows.Outputs`.
- `forward(windows)`: logits (B, N, C), for training.
- `video_logits(features, batch_size)`: logits (L, 1 + n_ahead, C) of a whole video (L, D), the definition of the
  scores.
- for a stream, `constants()`, what follows from the weights alone; `begin(n_streams)`, tensors by name with the
  streams as first dimension; `advance(constants, tensors, chunks, features)`, logits (B, 1 + n_ahead, C) of the next
  chunk of every stream, changing the tensors in place. `chunks` (B,) counts the chunks each stream saw before. LSTR
  has these three in `lstr.caches`.
"""

from __future__ import annotations

from lstr.config import LSTRConfig
from lstr.feature_bank import LFB
from lstr.model import LSTR
from lstr.recurrent import RNN, TRN

Model = LSTR | RNN | TRN | LFB


def make_model(config: LSTRConfig, n_classes: int) -> Model:
    """A model of the kind the configuration names, with fresh weights."""
    kinds = {"lstr": LSTR, "rnn": RNN, "trn": TRN, "lfb": LFB}
    return kinds[config.kind](config, n_classes)
