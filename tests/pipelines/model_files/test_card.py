"""The model card: names of classes are only text in it, and it has all facts about the model."""

import json

import pytest
from markdown_it import MarkdownIt

from lstr.errors import CheckpointError
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.intervals import draw
from lstr.pipelines.model_files.card import card_of
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model
from tests.support.model_files import rewrite_model

HOSTILE = [
    "falling",
    'a "quoted" \\ name: of {two} [parts]',
    "two\nlines\r\n---\n- and a rule",
    "---",
    "- a list",
    "# a heading",
    "3. third",
    "> said",
    "| a | table |",
    "`code` and ```more```",
    "<script>alert(1)</script> &amp; <!-- -->",
    "[a link](https://example.org) ![a picture](x.png)",
    "*strong* _em_ ~~gone~~ pick_up_now",
    "fällt 落ちる 🧓",
    "\x1b[31mred\x07 \x85 \u2028 \u202e turned",
]
MARKUP = {"html_block", "html_inline", "link_open", "image", "hr", "blockquote_open", "ordered_list_open"}
MARKUP |= {"em_open", "s_open", "code_block"}


def about_of(classes: list[str]) -> dict:
    """The facts of a model that detected the first class in two videos, with a false alarm of the last."""
    truth = [Segment(1, 3, label) for label in classes]
    detections = [Segment(1, 3, classes[0]), Segment(20, 21, classes[-1])]
    events = [VideoEvents(truth, detections, 1800.0, [start, 20.5]) for start in (1.5, 2.0)]
    metrics = {
        "lstr": {"mAP": 0.62, "mcAP": 0.71, "per_class": {c: {"AP": 0.5, "cAP": 0.6, "positives": 8} for c in classes}},
        "chance": {"mAP": 0.1, "mcAP": 0.5, "per_class": {}},
        "interval": {"mAP": [0.4, 0.8], "mcAP": [0.5, 0.9], "level": 0.95, "resamples": 50},
        "videos": 2,
        "folds": 2,
        "decided_by_others": True,
        "events": measure_events(events, classes, draw(2, 50)),
    }
    subsets = {"training": {"videos": 2, "seconds": 3600.0, "labels": dict.fromkeys(classes, 2)}}
    return {
        "title": f"Models of {classes[-1]}",
        "metrics": metrics,
        "videos": dict.fromkeys(("scene_00", "scene_01"), "training"),
        "folds": [["day 1/scene_00"], ["day 2/scene_01"]],
        "data": {"subsets": subsets},
        "seen": {"day 1/scene_00": None, "scene_01": None},
        "tried": [{"model": "rnn", "mAP": 0.6}, {"model": "lstr", "mAP": 0.62}],
        "taken": "lstr",
    }


@pytest.fixture(scope="module")
def document(small_set, tmp_path_factory) -> dict:
    path = write_model(tmp_path_factory.mktemp("card") / "m.lstr", small_set.checkpoint, None, about_of(["wave"])).path
    return json.loads(json.dumps(dict(open_model(path).about)))


def test_names_of_classes_are_not_markup(document):
    thresholds = {label: {"on": 0.5, "off": 0.4} for label in HOSTILE}
    hostile = {**document, **about_of(HOSTILE), "classes": ["Background", *HOSTILE], "thresholds": thresholds}
    text = card_of(hostile, "m.lstr")
    assert all(character.isprintable() or character == "\n" for character in text)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens, expected = parser.parse(text), parser.parse(card_of(document, "m.lstr"))
    assert not MARKUP & {part.type for token in tokens for part in (token, *(token.children or ()))}
    headings, expected_headings = (sum(t.type == "heading_open" for t in page) for page in (tokens, expected))
    assert headings - expected_headings in (0, 1), "one more for the thresholds"
    texts = ["".join(part.content for part in token.children) for token in tokens if token.type == "inline"]
    for label in filter(str.isprintable, HOSTILE):
        assert texts.count(label) == 4, (label, "in the list, and in three tables")


def test_the_card_has_data_measurements_and_the_origin_of_weights(document):
    text = card_of({**document, **about_of(["wave"])}, "m.lstr")
    values = ["| `training` | 2 | 60.0 | 2 |", "`scene_00`, `scene_01`", "`efficientnet-lite0`", "64 × 64"]
    values += ["0.620 [0.400, 0.800] | 0.710 [0.500, 0.900] |", "| lstr | 0.620 |", "50 resamples", ".\n\n| per"]
    values += ["| wave | 0.500 | 2 of 2 | 0.67 [0.67, 0.67] | 2 | 2.00 [0.24 to 7.2] |"]
    values += [f"{name} {version}" for name, version in document["checkpoint"]["versions"].items()]
    assert [value for value in values if value not in text] == []
    assert "day 1" not in text, "ids without their folders"
    assert "ImageNet" not in text
    origin = {"file": "e.pth", "sha256": "0" * 64, "licence": "Apache-2.0 (them)", "dataset": "imagenet"}
    inside = {"from": "inside", "network": "efficientnet-lite0", "weights": "mine"}
    networks = {"rgb": inside | {"origin": origin | {"address": None}}, "flow": inside}
    text = card_of({**document, "networks": networks}, "m.lstr")
    assert all(value in text for value in ("`e.pth`", "Apache-2.0 (them)", "`0000", "ImageNet"))


def test_unpack_and_info_have_the_same_facts(lstr, small_set, tmp_path):
    model = write_model(tmp_path / "m.lstr", small_set.checkpoint, None, about_of(["wave", "squat"]))
    code, card = lstr("unpack", model.path, "-o", tmp_path / "x")[0], (tmp_path / "x" / "card.md").read_text()
    assert (code, card) == (0, model.card()) == lstr("info", model.path)[:2]


@pytest.mark.parametrize("entry", [{"data": {"subsets": 7}}, {"metrics": {"lstr": {}, "events": {"together": {}}}}])
def test_invalid_facts_are_refused(small_set, tmp_path, entry):
    """In a job that packs them, and in a file of another program."""
    with pytest.raises(CheckpointError):
        write_model(tmp_path / "n.lstr", small_set.checkpoint, None, entry)
    model = write_model(tmp_path / "m.lstr", small_set.checkpoint, None, {})
    path = rewrite_model(model.path, tmp_path / "h.lstr", lambda document, _: document.update(entry))
    with pytest.raises(CheckpointError):
        open_model(path).card()
