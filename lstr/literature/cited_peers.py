"""The systems that the LSTR paper compares with, as literature."""

from __future__ import annotations

from lstr.literature.publication import (
    ANET,
    DESCRIPTION,
    KINETICS,
    LSTR_TABLES,
    SAME,
    Publication,
    Result,
    anticipation,
    detection,
)

OLD_ANET = "ResNet-200 and BN-Inception of ActivityNet"

CITED_PEERS = {
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
        "within 1e-5 in probability with the settings of its preset; without them the decoder begins at the next chunk",
        ("trn_small",),
        (
            *detection(62.1, 86.2, KINETICS, "TRN's README"),
            *detection(47.2, 83.7, OLD_ANET, LSTR_TABLES),
            *anticipation(38.9, 75.7, OLD_ANET),
        ),
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
        (*detection(64.8, 85.8, KINETICS, LSTR_TABLES), *detection(61.6, 84.8, ANET, LSTR_TABLES)),
    ),
    "idn": Publication(
        "IDN",
        "Learning to Discriminate Information for Online Action Detection, Eun et al., CVPR 2020",
        2020,
        "https://arxiv.org/abs/1912.04461",
        "hjeun/idu @ 38ffd09",
        "ETRI's, for academic research alone",
        SAME,
        "within 1e-5 in logits at every position; its training code was withheld, so the losses are those of two "
        "others who wrote it again",
        ("idn_small",),
        (
            *detection(60.3, 86.1, "Inception-V3 of Kinetics", "IDN's README; TVSeries is after a smoothing of scores"),
            *detection(50.0, 84.7, OLD_ANET, "IDN's README; TVSeries is after a smoothing of scores"),
        ),
    ),
    "fats": Publication(
        "FATS",
        "Temporally smooth online action detection using cycle-consistent future anticipation, Kim et al., "
        "Pattern Recognition 2021",
        2021,
        "https://arxiv.org/abs/2104.08030",
        "YHKimGithub/FATSnet @ 04682ba",
        "none",
        SAME,
        "within 1e-5 in probability, losses and gradients too; its chunks are of five frames",
        ("fats_small",),
        (
            *detection(59.0, 84.6, "2048 wide, of Kinetics", "LSTR paper, tables; THUMOS'14 in FATS' README too"),
            *detection(51.6, 81.7, OLD_ANET, "LSTR paper, tables; THUMOS'14 in FATS' README too"),
        ),
    ),
    "woad": Publication(
        "WOAD",
        "WOAD: Weakly Supervised Online Action Detection in Untrimmed Videos, Gao et al., CVPR 2021",
        2021,
        "https://arxiv.org/abs/2006.03732",
        "salesforce/woad-pytorch @ 405fa0c",
        "BSD-3-Clause",
        SAME,
        "within 1e-5 in logits, losses, gradients and labels made; its chunks are of 0.64 s; ours makes labels anew in "
        "each batch",
        ("woad_small",),
        (
            Result(
                "THUMOS'14 mAP, labels of segments",
                67.1,
                "I3D",
                "LSTR paper, tables, whose text calls it weakly supervised",
            ),
        ),
    ),
    "efc": Publication(
        "EFC",
        "RED: Reinforced Encoder-Decoder Networks for Action Anticipation, Gao et al., BMVC 2017",
        2017,
        "https://arxiv.org/abs/1707.04818",
        "",
        "no code found",
        DESCRIPTION,
        "the regressor of the newest chunk alone is one of two readings",
        (),
        anticipation(34.4, 72.5, OLD_ANET),
    ),
    "ed": Publication(
        "ED",
        "RED: Reinforced Encoder-Decoder Networks for Action Anticipation, Gao et al., BMVC 2017",
        2017,
        "https://arxiv.org/abs/1707.04818",
        "",
        "no code found",
        DESCRIPTION,
        "widths and lengths are as they are told elsewhere; RED without its reward",
        (),
        anticipation(36.6, 74.5, OLD_ANET),
    ),
    "red": Publication(
        "RED",
        "RED: Reinforced Encoder-Decoder Networks for Action Anticipation, Gao et al., BMVC 2017",
        2017,
        "https://arxiv.org/abs/1707.04818",
        "",
        "no code found",
        DESCRIPTION,
        "the reward is ours, for its constants are unknown; the published detection is anticipation at one chunk",
        (),
        (
            *detection(45.3, 79.2, OLD_ANET, "LSTR paper, tables: anticipation at 0.25 s"),
            *anticipation(37.5, 75.1, OLD_ANET),
        ),
    ),
    "ttm": Publication(
        "TTPP",
        "TTPP: Temporal Transformer with Progressive Prediction for Efficient Action Anticipation, Wang et al., "
        "Neurocomputing 2021",
        2021,
        "https://arxiv.org/abs/2003.03530",
        "",
        "no code found",
        DESCRIPTION,
        "sizes and the progressive network are ours; TTM is what the LSTR paper calls it",
        (),
        anticipation(40.9, 77.9, OLD_ANET),
    ),
    "lap-like": Publication(
        "after LAP-Net",
        "LAP-Net: Adaptive Features Sampling via Learning Action Progression for Online Action Detection, Qu et al., "
        "arXiv 2020",
        2020,
        "https://arxiv.org/abs/2011.07915",
        "",
        "no code found",
        DESCRIPTION,
        "only the idea is the paper's, that progression chooses the range of time; layout and sizes are ours, and no "
        "number of the paper is claimed",
    ),
    "tfn-like": Publication(
        "after TFN",
        "Temporal filtering networks for online action detection, Eun et al., Pattern Recognition 2021",
        2021,
        "",
        "",
        "no code that can still be fetched",
        DESCRIPTION,
        "only the idea is the paper's, a filter that scores the chunks of a window; layout and sizes are ours, and no "
        "number of the paper is claimed",
    ),
    "conv-deconv": Publication(
        "in the place of CDC",
        "CDC: Convolutional-De-Convolutional Networks for Precise Temporal Action Localization in Untrimmed Videos, "
        "Shou et al., CVPR 2017",
        2017,
        "https://arxiv.org/abs/1703.01515",
        "",
        "MIT; no code looked at",
        DESCRIPTION,
        "not CDC, whose filters work on pixels and see the future: convolutions in time on chunk features, all of it "
        "ours, and no number of the paper is claimed",
    ),
}
"""By kind."""
