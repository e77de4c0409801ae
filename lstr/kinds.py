"""The kinds of model by name."""

from __future__ import annotations

from lstr.cmert import CMeRT
from lstr.colar import Colar
from lstr.config import LSTRConfig
from lstr.conv_deconv import ConvDeconv
from lstr.encoder_decoder import EncoderDecoder
from lstr.fats import FATS
from lstr.feature_bank import LFB
from lstr.gatehub import GateHUB
from lstr.idn import IDN
from lstr.kind import Model
from lstr.lap_like import LapLike
from lstr.mat import MAT
from lstr.miniroad import MiniROAD
from lstr.model import LSTR
from lstr.oadtr import OadTR
from lstr.recurrent import RNN, TRN
from lstr.testra import TeSTra
from lstr.tfn_like import TfnLike
from lstr.ttpp import TTPP
from lstr.woad import WOAD

CLASSES: dict[str, type[Model]] = {
    "lstr": LSTR,
    "rnn": RNN,
    "trn": TRN,
    "lfb": LFB,
    "miniroad": MiniROAD,
    "testra": TeSTra,
    "gatehub": GateHUB,
    "oadtr": OadTR,
    "colar": Colar,
    "cmert": CMeRT,
    "mat": MAT,
    "idn": IDN,
    "fats": FATS,
    "woad": WOAD,
    "efc": EncoderDecoder,
    "ed": EncoderDecoder,
    "red": EncoderDecoder,
    "ttm": TTPP,
    "lap-like": LapLike,
    "tfn-like": TfnLike,
    "conv-deconv": ConvDeconv,
}
"""By the names of `lstr.config.KINDS`."""


def make_model(config: LSTRConfig, n_classes: int) -> Model:
    """A model of the kind the configuration names, with fresh weights."""
    return CLASSES[config.kind](config, n_classes)
