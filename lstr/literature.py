"""What is known of each kind of model: its paper, its published code and numbers, and how exact ours is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lstr.config import PRESETS, LSTRConfig

DESCRIPTION = "built from the description"
SAME = "same weights, same numbers"

LSTR_TABLES = "LSTR paper, tables"
LISTING = "a third party's list of results"
KINETICS = "TSN pair of Kinetics"
ANET = "TSN pair of ActivityNet"
AHEAD = "mean of 0.25 to 2 s ahead"


@dataclass(frozen=True)
class Result:
    """A number that was published, in percent."""

    of: str
    """Data set and metric."""
    value: float
    features: str
    seen: str
    """Where it was read."""


@dataclass(frozen=True)
class Publication:
    """A kind of model in the literature."""

    name: str
    """What its paper calls it."""
    paper: str
    """Title, authors and venue."""
    year: int
    address: str
    """Where the paper is; empty where no address was looked up."""
    code: str
    """The published code that was looked at, with its revision; empty where none was found."""
    licence: str
    """That of the published code, which has no part in ours."""
    exact: str
    """`SAME` or `DESCRIPTION`."""
    note: str
    """What else a reader must know of how exact ours is."""
    golden: tuple[str, ...] = ()
    """Data that the published code made, which ours is held against."""
    results: tuple[Result, ...] = ()


def presets_of(kind: str) -> tuple[str, ...]:
    """The presets of a kind, the published size first."""
    return tuple(name for name, config in PRESETS.items() if config.kind == kind)


def published_size(kind: str) -> LSTRConfig:
    """The configuration that a kind was published with: its first preset, or the defaults where it has none."""
    return next((config for config in PRESETS.values() if config.kind == kind), LSTRConfig(kind=kind))


def _both(thumos: float, tvseries: float, features: str, seen: str) -> tuple[Result, ...]:
    return Result("THUMOS'14 mAP", thumos, features, seen), Result("TVSeries mcAP", tvseries, features, seen)


def _ahead(thumos: float, tvseries: float, seen: str = LSTR_TABLES) -> tuple[Result, ...]:
    return (
        Result(f"THUMOS'14 mAP, {AHEAD}", thumos, ANET, seen),
        Result(f"TVSeries mcAP, {AHEAD}", tvseries, ANET, seen),
    )


PUBLICATIONS: Mapping[str, Publication] = MappingProxyType(
    {
        "lstr": Publication(
            "LSTR",
            "Long Short-Term Transformer for Online Action Detection, Xu et al., NeurIPS 2021",
            2021,
            "https://arxiv.org/abs/2107.03377",
            "amazon-science/long-short-term-transformer",
            "Apache-2.0",
            SAME,
            "within 1e-5 in probability",
            ("lstr_small",),
            (*_both(69.5, 89.1, KINETICS, LSTR_TABLES), *_both(65.3, 88.1, ANET, LSTR_TABLES), *_ahead(50.1, 80.8)),
        ),
        "rnn": Publication(
            "RNN",
            "Online Action Detection, De Geest et al., ECCV 2016",
            2016,
            "",
            "",
            "no code looked at",
            DESCRIPTION,
            "an LSTM on chunk features is among the baselines of that paper",
        ),
        "trn": Publication(
            "TRN",
            "Temporal Recurrent Networks for Online Action Detection, Xu et al., ICCV 2019",
            2019,
            "https://arxiv.org/abs/1811.07391",
            "xumingze0308/TRN.pytorch @ d432c1e",
            "MIT",
            SAME,
            "within 1e-5 in probability",
            ("trn_small",),
            (*_both(62.1, 86.2, KINETICS, "TRN's README"), *_both(47.2, 83.7, ANET, LSTR_TABLES), *_ahead(38.9, 75.7)),
        ),
        "lfb": Publication(
            "LFB",
            "Long-Term Feature Banks for Detailed Video Understanding, Wu et al., CVPR 2019",
            2019,
            "https://arxiv.org/abs/1812.05038",
            "",
            "no code looked at",
            DESCRIPTION,
            "used causally as the LSTR paper does; the numbers are the LSTR authors' own run",
            (),
            (*_both(64.8, 85.8, KINETICS, LSTR_TABLES), *_both(61.6, 84.8, ANET, LSTR_TABLES)),
        ),
        "miniroad": Publication(
            "MiniROAD",
            "MiniROAD: Minimal RNN Framework for Online Action Detection, An et al., ICCV 2023",
            2023,
            "",
            "jbistanbul/MiniROAD @ 8307131",
            "Apache-2.0 by its README, without a licence file",
            SAME,
            "within 1e-5 in logits, losses and gradients too",
            ("miniroad_small", "miniroad_anticipation_small"),
            (
                Result("THUMOS'14 mAP", 71.8, KINETICS, "MiniROAD's README"),
                Result("THUMOS'14 mAP", 68.4, "RGB of Kinetics, flow by NVOF", "MiniROAD's README"),
                Result("TVSeries mcAP", 89.6, "RGB and flow by ResNet-50 of Kinetics", "MiniROAD's README"),
                Result("FineAction mAP", 37.1, "I3D", "MiniROAD's README"),
            ),
        ),
        "testra": Publication(
            "TeSTra",
            "Real-time Online Video Detection with Temporal Smoothing Transformers, Zhao and Krähenbühl, ECCV 2022",
            2022,
            "https://arxiv.org/abs/2209.09236",
            "zhaoyue-zephyrus/TeSTra @ dfb4754",
            "Apache-2.0",
            SAME,
            "within 1e-5 in probability, of the published batch evaluation; the published stream differs and ours "
            "does not",
            ("testra_box_small", "testra_laplace_small", "testra_anticipation_small"),
            (
                Result("THUMOS'14 mAP, box kernel", 71.2, KINETICS, "TeSTra's README"),
                Result("THUMOS'14 mAP, Laplace kernel", 70.8, KINETICS, "TeSTra's README"),
                Result(f"THUMOS'14 mAP, {AHEAD}", 56.8, KINETICS, LISTING),
            ),
        ),
        "cmert": Publication(
            "CMeRT",
            "Context-Enhanced Memory-Refined Transformer for Online Action Detection, Pang et al., CVPR 2025",
            2025,
            "https://arxiv.org/abs/2503.18359",
            "pangzhan27/CMeRT @ 6917072",
            "none",
            SAME,
            "within 1e-5 in probability",
            ("cmert_small",),
            (
                Result("THUMOS'14 mAP", 73.2, KINETICS, "CMeRT's README and log"),
                Result(f"THUMOS'14 mAP, {AHEAD}", 59.5, KINETICS, f"{LISTING}; its log has 59.44"),
                Result("CrossTask mAP", 35.9, "I3D and ResNet-152 with audio", LISTING),
            ),
        ),
        "gatehub": Publication(
            "GateHUB",
            "GateHUB: Gated History Unit with Background Suppression for Online Action Detection, Chen et al., "
            "CVPR 2022",
            2022,
            "https://arxiv.org/abs/2206.04668",
            "g1910/GateHUB @ f9a2f27",
            "MIT",
            SAME,
            "within 1e-5 in probability",
            ("gatehub_small",),
            (
                *_both(70.7, 89.6, KINETICS, "GateHUB's abstract and README"),
                Result("THUMOS'14 mAP", 72.5, "RGB by TimeSformer, flow by TSN", "GateHUB's README"),
                Result("HDD mAP", 32.1, "TSN", "GateHUB's README"),
            ),
        ),
        "mat": Publication(
            "MAT",
            "Memory-and-Anticipation Transformer for Online Action Understanding, Wang et al., ICCV 2023",
            2023,
            "https://arxiv.org/abs/2308.07893",
            "Echo0125/MAT-Memory-and-Anticipation-Transformer @ 8a7f49b",
            "Apache-2.0",
            SAME,
            "within 1e-4 in probability and 1e-5 at 99 % of chunks, for its attention keeps the highest scores "
            "and some are nearly equal; published scores of a video's first work memory see its end, ours do not",
            ("mat_small",),
            (
                *_both(71.6, 89.7, KINETICS, "MAT's README"),
                Result("THUMOS'14 mAP", 70.5, ANET, "MAT's README"),
                Result(f"THUMOS'14 mAP, {AHEAD}", 58.2, KINETICS, LISTING),
            ),
        ),
        "oadtr": Publication(
            "OadTR",
            "OadTR: Online Action Detection with Transformers, Wang et al., ICCV 2021",
            2021,
            "https://arxiv.org/abs/2106.11149",
            "wangxiang1230/OadTR @ b4721b0",
            "MIT",
            SAME,
            "within 1e-5 in probability, where a whole window precedes the chunk; published scores leave the "
            "first 63 and the last 9 chunks of a video out",
            ("oadtr_small",),
            (
                *_both(65.2, 87.2, KINETICS, "OadTR's abstract and README"),
                Result("THUMOS'14 mAP", 58.9, ANET, "OadTR's log"),
            ),
        ),
        "colar": Publication(
            "Colar",
            "Colar: Effective and Efficient Online Action Detection by Consulting Exemplars, Yang et al., CVPR 2022",
            2022,
            "https://arxiv.org/abs/2203.01057",
            "VividLe/Online-Action-Detection @ 9eed670",
            "none",
            SAME,
            "within 1e-5 in probability",
            ("colar_small",),
            (Result("THUMOS'14 mAP", 66.9, KINETICS, "Colar's README"),),
        ),
    }
)
"""By the names of `lstr.config.KINDS`."""
