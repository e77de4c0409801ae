"""The files of an evaluation, on scores and labels made by hand."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from markupsafe import escape

from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.metrics.per_frame import per_frame
from lstr.pipelines.evaluation.analysis import (
    JUDGED,
    Findings,
    analyse,
    compare,
    names_of,
    quoted_for,
    resample,
    verdict,
)
from lstr.pipelines.evaluation.figures import draw_operating_curves
from lstr.pipelines.evaluation.report import draw_page, write_evaluation
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.pipelines.pages.page import read_part
from tests.support.scored import evaluation_of

LIBRARY = read_part("vendor/preact-htm.js")
HOSTILE = '<script>alert("x")</script> & $x$ 日本'
CLASSES = ("Background", "run", HOSTILE, "never", "Ambiguous")


def judged(name="run", resamples=20, seed=0, lengths=(40, 60, 12, 80), about=None) -> Evaluation:
    """Four videos, one of them shorter than a work memory, with scores that know the labels a little."""
    rng = np.random.default_rng(seed)
    spans = ((0.1, 0.4, "run"), (0.5, 0.7, HOSTILE), (0.8, 0.9, "Ambiguous"))
    database, scores = {}, []
    for i, length in enumerate(lengths):
        segments = tuple(Segment(start * length / 4, end * length / 4, label) for start, end, label in spans)
        label = database[f"video {i} <b>"] = VideoLabels("testing", length / 4, segments)
        on = targets(label, CLASSES, length)
        rows = np.exp(rng.normal(0, 1, on.shape) + 1.5 * on)
        scores.append((rows / rows.sum(axis=1, keepdims=True)).astype(np.float32))
    training = VideoLabels("training", 5.0, (Segment(0.0, 2.0, "run"), Segment(3.0, 4.0, HOSTILE)))
    made = evaluation_of(CLASSES, {**database, "t": training}, scores, name, about=about)
    made.document.update(analyse(made, resample(made, resamples)))
    return made


def test_both_conventions_are_named():
    entry = judged()
    found, scores = entry.document["conventions"], entry.scores
    videos = entry.split.videos
    everything = per_frame(np.concatenate(scores), np.concatenate([v.targets for v in videos]), CLASSES)
    assert found["corrected"] == {**_means(everything), "videos": 4, "chunks": 192}
    rows = np.concatenate([scores[i] for i in (0, 1, 3)])
    truth = np.concatenate([videos[i].targets for i in (0, 1, 3)])
    assert found["published"] == {**_means(per_frame(rows, truth, CLASSES)), "videos": 3, "chunks": 180}
    assert entry.document["absent_classes"] == ["never"]
    assert {len(rows) for rows in entry.document["stages"].values()} == {10}
    short = judged(lengths=(8, 12))
    assert short.document["conventions"]["published"] == {"mAP": None, "mcAP": None, "videos": 0, "chunks": 0}


def _means(result):
    return {mean: result[mean] for mean in ("mAP", "mcAP")}


def test_checkpoints_are_compared_on_the_same_resamples():
    better, worse, same = judged("a"), judged("b", seed=1), judged("c")
    rows = compare([better, worse, same], [resample(entry, 50) for entry in (better, worse, same)])
    assert rows[0]["mAP"]["difference"] == worse.document["lstr"]["mAP"] - better.document["lstr"]["mAP"]
    low, high = rows[0]["mAP"]["interval"]
    assert low <= rows[0]["mAP"]["difference"] <= high and high > low
    mean = better.document["lstr"]["mcAP"]
    assert rows[1]["mcAP"] == {"new": mean, "old": mean, "difference": 0.0, "interval": [0.0, 0.0]}
    assert rows[1]["better"] is None and rows[1]["sentence"]
    (row,) = compare([better, worse], [resample(entry, 0) for entry in (better, worse)])
    assert row["mAP"]["difference"] and row["mAP"]["interval"] is None, "without resamples"


def test_a_verdict_needs_videos_and_an_interval_without_0():
    def better(low, high, n_videos, f1=None):
        of = {name: {"new": 0.7, "old": 0.6, "difference": 0.1} for name in JUDGED}
        row = {
            "mAP": of["mAP"] | {"interval": [low, high]},
            "event F1": of["event F1"] | {"interval": f1 or [low, high]},
        }
        found = verdict("new", "old", row, n_videos)
        assert "0.70" in found["sentence"] and f"{n_videos} videos" in found["sentence"]
        return found["better"]

    assert better(0.05, 0.2, 10) == "new" and better(-0.2, -0.05, 6) == "old"
    assert better(0.05, 0.2, 5) is better(-0.1, 0.2, 20) is better(0.1, 0.2, 20, [-0.2, -0.1]) is None
    undrawn = {name: {"new": 0.7, "old": 0.6, "difference": 0.1, "interval": None} for name in JUDGED}
    assert verdict("new", "old", undrawn, 20)["better"] is None


def test_names_tell_checkpoints_apart():
    assert names_of([Path("/x/a.pt"), Path("/x/b.pth")]) == ["a", "b"]
    assert names_of([Path("/x/1/a/best.pt"), Path("/x/2/a/best.pt"), Path("/x/2/b/best.pt")]) == ["1/a", "2/a", "2/b"]
    assert names_of([Path("/x/a.pt"), Path("/x/a.pt")]) == ["1. a", "2. a"]


@pytest.mark.filterwarnings("error")
def test_the_report_is_one_page_that_needs_nothing(tmp_path):
    entry = judged(lengths=(40, 60, 12))
    entry.document["anticipation"] = [{"chunks": 1, "seconds": 0.25, "mAP": 0.5, "mcAP": None}]
    findings = Findings([entry], warnings=["made <by hand>"])
    page = write_evaluation(tmp_path, findings).read_text()
    files = {"report.html", "evaluation.json", "evaluation.csv", "figures"}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert "<script>alert" not in page and "&lt;script&gt;" in page and "made &lt;by hand&gt;" in page
    own = re.sub(r'src="data:[^"]*"', "", page).replace(LIBRARY, "")  # which names the namespace of SVG
    assert not re.search(r"https?://", own)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy and "unsafe" not in policy
    names = {"classes", "precision-recall", "delay", "anticipation", "confusion", "found", "operating-curves"}
    figures = tmp_path / "figures"
    assert {path.stem for path in figures.glob("*.svg")} == {path.stem for path in figures.glob("*.png")} == names
    assert page.count("<figure") == page.count("data:image/svg+xml;base64,") == len(names)
    for path in figures.glob("*.svg"):
        ET.parse(path)
    assert HOSTILE[:12] in "".join(ET.parse(figures / "classes.svg").getroot().itertext())


@pytest.mark.long
def test_several_checkpoints_stand_side_by_side(tmp_path):
    entries = [judged("a", lengths=(40,)), judged("b/é", seed=1, lengths=(40,))]
    (row,) = compare(entries, [resample(entry, 20) for entry in entries])
    quiet = {**row, "mAP": row["mAP"] | {"difference": None}}  # as of videos without an action
    quoted = quoted_for(_loaded(THUMOS_CLASSES))
    page = write_evaluation(tmp_path, Findings(entries, [quiet], quoted)).read_text()
    assert "b/é" in page and f"{row['mcAP']['difference']:+.3f} [" in page and ">nan<" not in page
    assert all(line["method"] in page for line in quoted["rows"])
    assert len(list((tmp_path / "figures").glob("*-delay.svg"))) == 2


def _loaded(classes, **extra):
    return SimpleNamespace(classes=classes, extra=extra)


def test_quoted_figures_stand_beside_their_benchmark_alone():
    assert quoted_for(_loaded(CLASSES)) is None
    for classes in (THUMOS_CLASSES, THUMOS_CLASSES[:-1]):
        table = quoted_for(_loaded(classes))
        assert (table["name"], table["metric"]) == ("THUMOS'14", "mAP")
        assert [row["value"] for row in table["rows"] if row["method"] == "LSTR"] == [69.5, 65.3]
    assert quoted_for(_loaded(CLASSES, preset="tvseries-published"))["metric"] == "mcAP"


def test_the_page_says_what_the_networks_began_with():
    origin = {"file": "lite0.pth", "sha256": "0", "licence": "Apache-2.0", "dataset": HOSTILE, "address": None}
    networks = {stream: {"origin": origin} for stream in ("grey", "difference", "change")}
    page = draw_page(Findings([judged(about={"networks": {**networks, "flow": {}}})]), [], {})
    assert "lite0.pth" in page and "Apache-2.0" in page and str(escape(HOSTILE)) in page and HOSTILE not in page


@pytest.mark.filterwarnings("error:constrained_layout")
def test_what_is_known_of_a_rate_is_within_the_axes():
    """No false alarm in 16 s leaves 680 an hour open."""
    found = {"labels": 3, "found": 2, "false_alarms": 0, "false_alarms_per_hour": 0.0}
    points = [{"false_alarms_per_hour": 0.0, "recall": 0.6}]
    curves = {"together": points, "per_class": {"fall": points}}
    events = {"hours": 16 / 3600, "together": found, "per_class": {"fall": found}, "operating_curves": curves}
    figure = draw_operating_curves({"confusion": {"classes": ["Background", "fall"]}, "events": events})
    assert figure.axes[0].get_xlim()[1] > 600
