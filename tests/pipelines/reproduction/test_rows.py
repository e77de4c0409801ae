"""What may be said of a published number and ours, and what of the data is not as published."""

from dataclasses import replace

import pytest

from lstr.kinds import kind_named
from lstr.labels.label_set import THUMOS_CLASSES, Labels, VideoLabels
from lstr.models.publication import DESCRIPTION
from lstr.pipelines.datasets.published_sets import THUMOS, TVSERIES, published_set
from lstr.pipelines.reproduction.rows import Row, rows_of

KINETICS = ("rgb_kinetics_resnet50", "flow_kinetics_bninception")
ANET = ("rgb_anet_resnet50", "flow_anet_resnet50")
ROW = Row("mAP", "mAP", "now", 69.5, "TSN pair", "a table")


def rows(
    kind: str, preset: str, width=3072, arrays=KINETICS, n_ahead=0, changed=(), reasons=(), on=THUMOS
) -> list[Row]:
    return [*rows_of(kind_named(kind).publication, on, preset, width, arrays, n_ahead, changed, reasons)]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([69.0, 70.0, 71.0], "mAP: the published 69.5 is within the spread of 3 seeds, 69.0 to 71.0."),
        ([68.0, 69.0], "mAP: the published 69.5 is 0.5 above the spread of 2 seeds, 68.0 to 69.0."),
        ([70.25, 71.0], "mAP: the published 69.5 is 0.8 below the spread of 2 seeds, 70.2 to 71.0."),
        ([69.5], "mAP: 69.5 of one seed, which has no spread, beside the published 69.5."),
        ([None], "mAP: nothing to compare with the published 69.5 yet."),
    ],
)
def test_a_verdict_is_a_sentence(values, sentence):
    assert ROW.verdict(values) == sentence


def test_nothing_is_claimed_where_data_differ_or_no_number_is_at_hand():
    other = replace(ROW, reasons=("synthetic data",))
    assert other.verdict([69.5, 69.5]) == "mAP: not comparable with the published 69.5: synthetic data."
    assert replace(ROW, published=None).verdict([69.5]) == "mAP: no published number is at hand."
    assert replace(ROW, exact=DESCRIPTION).verdict([69.0, 70.0]).endswith("of a design built from the description.")


def test_the_row_of_settings_and_features():
    (kinetics,) = rows("lstr", "thumos14-published")
    assert (kinetics.published, kinetics.reasons) == (69.5, ())
    (paper,) = rows("lstr", "thumos14")
    assert (paper.published, paper.reasons) == (69.5, ())
    (anet,) = rows("lstr", "thumos14-published", 4096, ANET)
    assert (anet.published, anet.reasons) == (65.3, ())
    (tvseries,) = rows("lstr", "tvseries-published", on=TVSERIES)
    assert (tvseries.name, tvseries.published, tvseries.reasons) == ("mcAP", 89.1, ())
    (box,), (laplace,) = rows("testra", "testra-thumos14"), rows("testra", "testra-laplace-thumos14")
    assert (box.published, laplace.published) == (71.2, 70.8)
    (wide,) = rows("colar", "colar-thumos14")
    assert wide.reasons == ("features: 3072 wide, published 4096",)
    (trn,) = rows("trn", "trn-thumos14", arrays=("rgb_anet", "flow_anet"), n_ahead=7)
    assert (trn.published, trn.reasons) == (47.2, ())
    (swapped,) = rows("mat", "mat-thumos14", 3072, ANET)
    assert swapped.published == 71.6 and swapped.reasons[0].startswith("features: rgb_anet_resnet50")


def test_numbers_ahead_stand_beside_eight_horizons():
    now, ahead = rows("mat", "mat-thumos14", n_ahead=8)
    assert (now.published, ahead.published, ahead.measure) == (71.6, 58.2, "ahead")
    assert len(rows("mat", "mat-thumos14", n_ahead=4)) == 1
    (following, later) = rows("red", "red-thumos14", n_ahead=8)
    assert (following.measure, following.published, later.published) == ("next", 45.3, 37.5)
    one, many = rows("lstr", "thumos14-published", 4096, ANET, 8, ["model.anticipation=8"])
    assert one.reasons == ("settings: model.anticipation=8",) and (many.published, many.reasons) == (50.1, ())


def test_settings_that_are_not_at_hand_are_said():
    (lfb,) = rows("lfb", "thumos14")
    assert lfb.published == 64.8 and "are not at hand, those of thumos14 stand in" in lfb.reasons[0]
    (rnn,) = rows("rnn", "thumos14")
    assert rnn.published is None
    (changed,) = rows("lstr", "thumos14-published", changed=["train.lr=0.1"])
    assert changed.reasons == ("settings: train.lr=0.1",)


def test_values_of_documents():
    document = {"lstr": {"mAP": 0.5}, "anticipation": [{"mAP": 0.4}, {"mAP": 0.2}]}
    assert ROW.value(document) == 50.0
    assert replace(ROW, measure="next").value(document) == 40.0
    assert replace(ROW, measure="ahead").value(document) == pytest.approx(30.0)
    assert replace(ROW, measure="ahead").value({"lstr": {"mAP": 0.5}}) is None
    assert ROW.value({"lstr": {"mAP": float("nan")}}) is None


def test_data_sets_are_known_by_their_labels():
    def labels(classes, *ids):
        return Labels(tuple(classes), {name: VideoLabels("testing", 1.0, ()) for name in ids})

    assert published_set(labels(THUMOS_CLASSES, "a")) is THUMOS
    assert published_set(labels(THUMOS_CLASSES[:-1], "a")) is THUMOS, "without Ambiguous too"
    assert published_set(labels(("Background", "A"), "24_ep4")) is TVSERIES
    assert published_set(labels(("Background", "A"), "v0")) is None
    assert {subset: len(ids) for subset, ids in THUMOS.ids.items()} == THUMOS.videos
    assert THUMOS.missing("testing", THUMOS.ids["testing"] - {"video_test_0000004"}) == ["video_test_0000004"]
    assert THUMOS.others("testing", ["video_test_0000004", "v0"]) == ["v0"] and not TVSERIES.others("training", ["x"])


def test_ids_are_those_of_the_published_targets(shared):
    found = {path.stem for path in (shared / "data" / "thumos14" / "target_perframe").glob("*.npy")}
    assert found == THUMOS.ids["training"] | THUMOS.ids["testing"]
