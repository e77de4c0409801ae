"""The kinds of model by name."""

from __future__ import annotations

from lstr.config import LSTRConfig
from lstr.models.foresight.cmert import CMeRT
from lstr.models.foresight.mat import MAT
from lstr.models.kind import Model
from lstr.models.lstr.model import LSTR
from lstr.models.lstr.testra import TeSTra
from lstr.models.recurrent.fats import FATS
from lstr.models.recurrent.lap_like import LapLike
from lstr.models.recurrent.miniroad import MiniROAD
from lstr.models.recurrent.recurrent import RNN, TRN
from lstr.models.recurrent.woad import WOAD
from lstr.models.windowed.colar import Colar
from lstr.models.windowed.conv_deconv import ConvDeconv
from lstr.models.windowed.encoder_decoder import EncoderDecoder
from lstr.models.windowed.feature_bank import LFB
from lstr.models.windowed.gatehub import GateHUB
from lstr.models.windowed.idn import IDN
from lstr.models.windowed.oadtr import OadTR
from lstr.models.windowed.tfn_like import TfnLike
from lstr.models.windowed.ttpp import TTPP

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
