"""LSTR and what came after it, or beside it, as literature."""

from __future__ import annotations

from lstr.literature.publication import (
    AHEAD,
    ANET,
    KINETICS,
    LISTING,
    LSTR_TABLES,
    SAME,
    Publication,
    Result,
    anticipation,
    detection,
)

SUCCESSORS = {
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
        (
            *detection(69.5, 89.1, KINETICS, LSTR_TABLES),
            *detection(65.3, 88.1, ANET, LSTR_TABLES),
            *anticipation(50.1, 80.8, ANET),
        ),
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
        "within 1e-5 in probability, of the published batch evaluation; the published stream differs and ours does not",
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
        "GateHUB: Gated History Unit with Background Suppression for Online Action Detection, Chen et al., CVPR 2022",
        2022,
        "https://arxiv.org/abs/2206.04668",
        "g1910/GateHUB @ f9a2f27",
        "MIT",
        SAME,
        "within 1e-5 in probability, of whole videos; a stream of the published size adds in another order, and where "
        "scores are as large as random weights make them it is so at 98 % of chunks",
        ("gatehub_small",),
        (
            *detection(70.7, 89.6, KINETICS, "GateHUB's abstract and README"),
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
            *detection(71.6, 89.7, KINETICS, "MAT's README"),
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
            *detection(65.2, 87.2, KINETICS, "OadTR's abstract and README"),
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
        "within 1e-5 in probability, where a whole window precedes the chunk; published scores leave the first 63 and "
        "the last chunk of a video out",
        ("colar_small",),
        (Result("THUMOS'14 mAP", 66.9, KINETICS, "Colar's README"),),
    ),
}
"""By kind."""
