"""The analysis of scores, the files and tables of an evaluation, and its page in headless Chromium."""

import csv
import json
import re
import statistics
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from markupsafe import escape

from lstr import train
from lstr.chunk import CLOCK
from lstr.kinds import configure
from lstr.labels.label_set import THUMOS_CLASSES, Labels, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.pipelines.evaluation import report
from lstr.pipelines.evaluation.analysis import JUDGED, Findings, analyse, compare, quoted_for, resample, verdict
from lstr.pipelines.evaluation.report import describe_watching, draw_page, write_evaluation
from lstr.pipelines.evaluation.scoring import Evaluation, pooled_metrics
from lstr.pipelines.evaluation.tables import OF_FALSE_ALARMS, OF_LABELS, class_tables, csv_rows, csv_text
from lstr.pipelines.features.dataset import LabelledVideo, Split
from lstr.pipelines.pages.page import read_part
from tests.support import browser
from tests.support.feature_set import TINY_SETTINGS

LIBRARY = read_part("vendor/preact-htm.js")  # contains the namespace of SVG
HOSTILE = '<script>alert("x")</script> & $x$ 日本'
CLASSES = ("Background", "run", HOSTILE, "never", "Ambiguous")

ACTIONS = ("Background", "kick", browser.HOSTILE, "Ambiguous")
CHUNKS = 40
LABELS = {
    "a": [Segment(1, 3, "kick"), Segment(5, 6, browser.HOSTILE)],
    "b": [Segment(2, 4, "kick"), Segment(8, 9, "Ambiguous")],
    "c": [],
}
DETECTED = {
    "a": [(1, 3, "kick"), (4, 4.5, "kick")],  # correct, false; the other class is missed
    # correct, ignored because it is ambiguous, and three false ones
    "b": [(2, 4, "kick"), (8, 9, browser.HOSTILE), (5, 6, browser.HOSTILE), (6.5, 7, browser.HOSTILE), (0, 1, "kick")],
    "c": [],
}


def evaluation_of(
    classes: tuple[str, ...],
    database: dict[str, VideoLabels],
    scores: list[np.ndarray],
    name: str = "run",
    records: dict | None = None,
    about: dict | None = None,
) -> Evaluation:
    """Return the evaluation of scores, with one array for each testing video."""
    testing = {i: video for i, video in database.items() if video.subset == "testing"}
    labelled = [
        LabelledVideo(i, np.zeros((len(rows), 0)), targets(video, classes, len(rows)))
        for (i, video), rows in zip(testing.items(), scores, strict=True)
    ]
    folder = SimpleNamespace(recipe=None, clock=CLOCK, path=Path("features"), read_record=(records or {}).get)
    split = Split(folder, Labels(classes, database), labelled)
    document = {
        **pooled_metrics(split, {"lstr": scores}),
        **{"convention": "corrected", "mode": "batch", "videos": len(testing), "chunks": sum(map(len, scores))},
        "checkpoint": f"{name}.pt",
    }
    entries = {"path": Path(name), "classes": classes, "extra": {}, "about": about or {}, "recipe": None}
    loaded = SimpleNamespace(model=SimpleNamespace(scoring_rule=LSTR_RULE), config=configure(), **entries)
    return Evaluation(loaded, split, scores, document, name=name)


def make_evaluation(videos: dict[str, Path] | None = None, name: str = "run") -> Evaluation:
    """Return the evaluation, with files of `videos` by id."""
    database = {i: VideoLabels("testing", CHUNKS / 4, tuple(segments)) for i, segments in LABELS.items()}
    scores = [np.full((CHUNKS, len(ACTIONS)), 0.1, np.float32) for _ in LABELS]
    for rows, detected in zip(scores, DETECTED.values(), strict=True):
        for start, end, label in detected:
            rows[int(start * 4) : int(end * 4), ACTIONS.index(label)] = 0.9
    records = {i: {"source": str(path), "bytes": path.stat().st_size} for i, path in (videos or {}).items()}
    evaluation = evaluation_of(ACTIONS, database, scores, name, records)
    evaluation.document.update(analyse(evaluation, resample(evaluation, 0)))
    return evaluation


def judged(name="run", seed=0, lengths=(40, 60, 12), about=None) -> Evaluation:
    """Return an evaluation of videos of these lengths, with scores that depend on the labels and on chance."""
    rng = np.random.default_rng(seed)
    spans = ((0.1, 0.4, "run"), (0.5, 0.7, HOSTILE), (0.8, 0.9, "Ambiguous"))
    database, scores = {"t": VideoLabels("training", 5.0, (Segment(0.0, 2.0, "run"), Segment(3.0, 4.0, HOSTILE)))}, []
    for i, length in enumerate(lengths):
        segments = tuple(Segment(start * length / 4, end * length / 4, label) for start, end, label in spans)
        labels = database[f"video {i} <b>"] = VideoLabels("testing", length / 4, segments)
        on = targets(labels, CLASSES, length)
        rows = np.exp(rng.normal(0, 1, on.shape) + 1.5 * on)
        scores.append((rows / rows.sum(axis=1, keepdims=True)).astype(np.float32))
    entry = evaluation_of(CLASSES, database, scores, name, about=about)
    entry.document.update(analyse(entry, resample(entry, 20)))
    return entry


def test_the_published_convention_excludes_videos_that_are_shorter_than_a_work_memory():
    document = judged(lengths=(8, 12)).document
    assert document["conventions"]["published"] == {"mAP": None, "mcAP": None, "videos": 0, "chunks": 0}
    assert document["absent_classes"] == ["never"] and {len(rows) for rows in document["stages"].values()} == {10}


def test_checkpoints_are_compared_on_the_same_resamples():
    entries = better, worse, _ = judged("a"), judged("b", seed=1), judged("c")
    rows = compare(entries, [resample(entry, 50) for entry in entries])
    assert rows[0]["mAP"]["difference"] == worse.document["lstr"]["mAP"] - better.document["lstr"]["mAP"]
    low, high = rows[0]["mAP"]["interval"]
    assert low <= rows[0]["mAP"]["difference"] <= high and high > low
    mean = better.document["lstr"]["mcAP"]
    assert rows[1]["mcAP"] == {"new": mean, "old": mean, "difference": 0.0, "interval": [0.0, 0.0]}
    assert rows[1]["better"] is None and rows[1]["sentence"]
    (row,) = compare([better, worse], [resample(entry, 0) for entry in (better, worse)])
    assert row["mAP"]["difference"] and row["mAP"]["interval"] is None


@pytest.mark.parametrize(
    ("mAP", "f1", "n_videos", "better"),
    [
        ((0.05, 0.2), (0.05, 0.2), 10, "new"),
        ((-0.2, -0.05), (-0.2, -0.05), 6, "old"),
        ((0.05, 0.2), (0.05, 0.2), 5, None),
        ((-0.1, 0.2), (-0.1, 0.2), 20, None),
        ((0.1, 0.2), (-0.2, -0.1), 20, None),
        (None, None, 20, None),
    ],
)
def test_a_verdict_needs_six_videos_and_intervals_without_zero(mAP, f1, n_videos, better):
    values = {"new": 0.7, "old": 0.6, "difference": 0.1}
    row = {name: values | {"interval": interval} for name, interval in zip(JUDGED, (mAP, f1), strict=True)}
    result = verdict("new", "old", row, n_videos)
    assert result["better"] == better and "0.70" in result["sentence"] and f"{n_videos} videos" in result["sentence"]


@pytest.mark.filterwarnings("error")
def test_the_report_is_a_single_file(tmp_path):
    entry = judged()
    entry.document["anticipation"] = [{"chunks": 1, "seconds": 0.25, "mAP": 0.5, "mcAP": None}]
    page = write_evaluation(tmp_path, Findings([entry], warnings=["by <hand>"])).read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "evaluation.json", "evaluation.csv", "figures"}
    assert "<script>alert" not in page and "&lt;script&gt;" in page and "by &lt;hand&gt;" in page
    assert not re.search(r"https?://", re.sub(r'src="data:[^"]*"', "", page).replace(LIBRARY, ""))
    names = {"classes", "precision-recall", "delay", "delay-curve", "anticipation", "confusion", "found"}
    names.add("operating-curves")
    figures = {suffix: {path.stem: path for path in tmp_path.glob(f"figures/*.{suffix}")} for suffix in ("svg", "png")}
    assert figures["svg"].keys() == figures["png"].keys() == names
    assert page.count("<figure") == page.count("data:image/svg+xml;base64,") == len(names)
    roots = {name: ET.parse(path).getroot() for name, path in figures["svg"].items()}
    assert HOSTILE[:12] in "".join(roots["classes"].itertext())


@pytest.mark.long
def test_a_report_of_two_checkpoints(tmp_path):
    entries = [judged("a", lengths=(40,)), judged("b/é", seed=1, lengths=(40,))]
    (row,) = compare(entries, [resample(entry, 20) for entry in entries])
    undefined = {**row, "mAP": row["mAP"] | {"difference": None}}  # without an action
    quoted = quoted_for(SimpleNamespace(classes=THUMOS_CLASSES, extra={}))
    page = write_evaluation(tmp_path, Findings(entries, [undefined], quoted)).read_text()
    assert "b/é" in page and f"{row['mcAP']['difference']:+.3f} [" in page and ">nan<" not in page
    assert all(line["method"] in page for line in quoted["rows"])
    assert len(list((tmp_path / "figures").glob("*-delay.svg"))) == 2


def test_published_results_are_quoted_for_their_benchmark():
    for classes in (THUMOS_CLASSES, THUMOS_CLASSES[:-1]):
        table = quoted_for(SimpleNamespace(classes=classes, extra={}))
        assert (table["name"], table["metric"]) == ("THUMOS'14", "mAP")
        assert [row["value"] for row in table["rows"] if row["method"] == "LSTR"] == [69.5, 65.3]
    assert quoted_for(SimpleNamespace(classes=CLASSES, extra={})) is None
    assert quoted_for(SimpleNamespace(classes=CLASSES, extra={"preset": "tvseries-published"}))["metric"] == "mcAP"


def test_the_report_names_the_origin_of_networks():
    origin = {"file": "lite0.pth", "sha256": "0", "licence": "Apache-2.0", "dataset": HOSTILE, "address": None}
    networks = {stream: {"origin": origin} for stream in ("grey", "difference", "change")}
    page = draw_page(Findings([judged(about={"networks": {**networks, "flow": {}}})]), [], {})
    assert "lite0.pth" in page and "Apache-2.0" in page and str(escape(HOSTILE)) in page and HOSTILE not in page


def test_the_csv_and_the_page_have_every_class():
    """Of three videos with a detected kick in each of two, one missed action, and false alarms."""
    entry = make_evaluation()
    entry.document.update(analyse(entry, resample(entry, 50)))
    rows = list(csv.DictReader(csv_text(csv_rows([entry, make_evaluation(name="other")])).splitlines()))
    assert [(row["checkpoint"], row["class"]) for row in rows[2::3]] == [("run", "together"), ("other", "together")]
    for _, columns, lines in class_tables(entry.document):
        assert {len(line) for line in lines} == {len(columns)}
        assert [line[0] for line in lines[:-1]] == [*entry.split.labels.classes[1:3]]
    together = rows[2]
    assert float(together["instances_mAP_0.5"]) == float(together["instances_mean"]) == 0.25
    assert float(together["instances_interval_mean_low"]) == entry.document["instances"]["interval"]["mean"][0]
    assert float(rows[0]["segments_F1_0.5"]) == pytest.approx(2 / 3) and rows[0]["segments_edit"]
    assert {f"starts_AP_{offset}" for offset in range(1, 11)} <= rows[0].keys()
    assert rows[5]["instances_interval_mean_low"] == ""


@pytest.mark.long
def test_a_paper_table_averages_runs_with_different_seeds(feature_set, tmp_path, lstr, run):
    paths = []
    for name, setting in (("a_seed1", {"seed": "1"}), ("b", {"lr": "0.01"}), ("a_seed2", {"seed": "2"})):
        settings = TINY_SETTINGS | {f"train.{key}": value for key, value in {"max_steps": "2", **setting}.items()}
        where = (feature_set.features, feature_set.labels, tmp_path / name)
        paths.append(train(*where, preset="lstr-small", settings=settings, device="cpu").checkpoint)
    words = ("evaluate", *paths, feature_set.features, "--labels", feature_set.labels, "--subset", "validation")
    words += ("--set", "resamples=0")
    documents = json.loads(lstr(*words, "--json")[1])["checkpoints"]
    mAP = {document["name"]: document["lstr"]["mAP"] for document in documents}
    out, _ = run(*words, "--to", "csv")
    seeds, single = csv.DictReader(out.splitlines())
    assert (seeds["checkpoint"], seeds["runs"], seeds["seeds"], single["checkpoint"]) == ("a", "2", "1 2", "b")
    values = [mAP["a_seed1"], mAP["a_seed2"]]
    assert float(seeds["mAP"]) == pytest.approx(statistics.fmean(values))
    assert float(seeds["mAP deviation"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert float(single["mAP"]) == pytest.approx(mAP["b"]) and single["mAP deviation"] == ""
    for form in ("md", "latex"):
        assert f"{100 * statistics.fmean(values):.1f}" in lstr(*words, "--to", form)[1]


ERRORS = [
    ("b", "false alarm", "kick", 0.0),
    ("b", "false alarm", browser.HOSTILE, 5.0),
    ("b", "false alarm", browser.HOSTILE, 6.5),
    ("a", "false alarm", "kick", 4.0),
    ("a", "missed", browser.HOSTILE, 5.0),
]
"""In the order of the page: the video with the most errors first"""


def videos_of(entry, folder: Path = Path("/")) -> list[dict]:
    return describe_watching(Findings([entry]), folder)["models"][0]["videos"]


def test_error_types_have_the_counts_of_the_tables():
    entry = make_evaluation()
    kinds = entry.document["events"]["together"]["kinds"]
    missed, false = Counter(), Counter()
    for video in videos_of(entry):
        missed.update(label[4] for label in video["labels"] if label[3] == "missed")
        false.update(detection[6] for detection in video["detections"] if detection[3] == "false")
    for names, counts, expected in (
        (OF_LABELS, missed, kinds["missed"]),
        (OF_FALSE_ALARMS, false, kinds["false_alarms"]),
    ):
        by_kind = {kind: counts[name] for kind, name in names.items()}
        by_kind["edges"] += counts["late"] + counts["early"]
        assert by_kind == {kind: expected[kind] for kind in by_kind} and sum(expected.values())


@pytest.mark.parametrize("codec, address", [("libx264", "../greys.mp4"), ("mpeg4", "videos/b.lstr-proxy.mp4")])
def test_the_page_links_the_video_of_the_features(tmp_path, monkeypatch, codec, address):
    """Or a copy that browsers play, for a limited duration; but not a file that has changed since or is unknown."""
    video, folder = tmp_path / "greys.mp4", tmp_path / "report"
    folder.mkdir()
    browser.write_greys(video, codec, late=1)
    entry = make_evaluation({"b": video})
    for limit, expected in ((report.COPIED_SECONDS, address), (0, "../greys.mp4")):
        monkeypatch.setattr(report, "COPIED_SECONDS", limit)
        first = videos_of(entry, folder)[0]
        assert first["video"] == expected
        assert first["ahead"] == pytest.approx(0.0 if "proxy" in expected else 1.0, abs=0.13), "frames start late"
        assert (folder / "videos" / "b.lstr-proxy.mp4").exists() == (codec == "mpeg4")
    video.write_bytes(video.read_bytes() + b"more")
    assert videos_of(entry, folder)[0]["video"] is None
    for record in ({}, {"source": "s3://bucket/b.mp4", "bytes": 3}, {"source": "x" * 5000, "bytes": 0}):
        entry.split.folder.read_record = {"b": record}.get
        assert videos_of(entry)[0]["video"] is None, record


@pytest.mark.long
def test_evaluation(show, tmp_path):
    """By keys, with the frames of the errors, and by mouse."""
    browser.write_greys(tmp_path / "greys.mp4")
    entry = make_evaluation({"b": tmp_path / "greys.mp4"})
    page = show(write_evaluation(tmp_path / "report", Findings([entry])))

    def current() -> tuple[str, str, float]:
        """Return the text about the current error, its video and the position of the cursor."""
        video = page.locator("#videos [aria-current] .cut").inner_text()
        return page.locator("#error").inner_text(), video, browser.seconds(page)

    assert page.locator("table:visible").count() == 0 and page.locator("figure:visible").count() == 5
    page.locator("summary").first.click()
    assert page.locator("table:visible").count() and browser.ink(page, 0) > 0
    figures = dict(item.split("\n")[:2] for item in page.locator(".needed > div").all_inner_texts())
    assert "2 of 3" in figures.values() and "4" in figures.values()
    browser.wait_for(page, "watchable")
    for number, (video, kind, label, start) in enumerate(ERRORS, start=1):
        page.keyboard.press("x")
        text, *place = current()
        assert all(part in text for part in (f"{number} of {len(ERRORS)}", kind, label, f"0:0{start:.2f}"))
        assert place == [video, start]
        if video == "b" and start:
            browser.wait_for_picture(page, {5.0: 140, 6.5: 190}[start])
    assert page.locator("#no-video").is_visible(), "the file of the last video is missing"
    page.keyboard.press("x")
    assert current()[1:] == ("b", ERRORS[0][3]), "starts over"
    page.keyboard.press("Shift+X")
    assert browser.seconds(page) == ERRORS[-1][3]
    page.click("#error-before")
    assert browser.seconds(page) == ERRORS[-2][3]

    page.select_option("#which", label="Missed (1)")
    page.keyboard.press("x")
    assert "1 of 1" in current()[0] and current()[1] == "a"
    page.select_option("#which", label=f"{browser.HOSTILE} (3)")
    assert page.locator("#errors button").count() == 1
    page.select_option("#which", "")
    page.locator("#videos button", has_text="b").first.click()
    page.locator("#errors button").nth(1).focus()
    page.keyboard.press("Enter")
    assert browser.seconds(page) == 5.0
    box = page.locator("#surface").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 5)
    page.keyboard.press("x")
    assert "3 of 5" in current()[0], "the next error after the cursor"
    page.locator("#videos button", has_text="c").click()
    assert page.locator("#nothing").is_visible()
