"""The model card: a head that the Hub reads, a page that no name of a class can break, and all that is known."""

import json

import pytest
from markdown_it import MarkdownIt

from lstr.errors import CheckpointError
from lstr.extractors.networks.archive import TENSORS, Archive, write_archive
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.intervals import draw
from lstr.pipelines.model_files.card import card_of
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.packing import write_model

HOSTILE = [
    "falling",
    'a "quoted" \\ name: of {two} [parts]',
    "'single' # no comment",
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
    "no",
    "12",
    "~",
    "fällt 落ちる 🧓",
    "\x1b[31mred\x07 \x85 \u2028 \u202e turned",
]
VIDEOS = ("scene_00", "scene_01")


def metrics_of(classes: list[str]) -> dict:
    """As an evaluation has them, of a detection that fits the first class and a false alarm of the last."""
    truth = [Segment(1, 3, label) for label in classes]
    found = [Segment(1, 3, classes[0]), Segment(20, 21, classes[-1])]
    videos = [VideoEvents(truth, found, 1800.0, [1.5, 20.5]), VideoEvents(truth, found, 1800.0, [2.0, 20.5])]
    per_class = {label: {"AP": 0.5, "cAP": 0.6, "positives": 8} for label in classes}
    return {
        "lstr": {"mAP": 0.62, "mcAP": 0.71, "per_class": per_class},
        "chance": {"mAP": 0.1, "mcAP": 0.5, "per_class": {}},
        "interval": {"mAP": [0.4, 0.8], "mcAP": [0.5, 0.9], "level": 0.95, "resamples": 50},
        "videos": 2,
        "folds": 2,
        "decided_by_others": True,
        "events": measure_events(videos, classes, draw(2, 50)),
    }


def about_of(classes: list[str]) -> dict:
    return {
        "title": f"Models of {classes[-1]}",
        "metrics": metrics_of(classes),
        "videos": dict.fromkeys(VIDEOS, "training"),
        "folds": [["day 1/scene_00"], ["day 2/scene_01"]],
        "data": {
            "subsets": {"training": {"videos": 2, "seconds": 3600.0, "labels": dict.fromkeys(classes, 2)}},
            "files": ["scene_00.mp4", "scene_01.mp4"],
        },
        "tried": [{"model": "rnn", "mAP": 0.6}, {"model": "lstr", "mAP": 0.62}],
        "taken": "lstr",
    }


@pytest.fixture(scope="module")
def document(small_set, tmp_path_factory) -> dict:
    """What a model file states of a model with such classes and such figures."""
    path = write_model(tmp_path_factory.mktemp("card") / "m.lstr", small_set.checkpoint, None, about_of(["wave"])).path
    return json.loads(json.dumps(dict(open_model(path).about)))


def hostile(document: dict) -> dict:
    thresholds = {label: {"on": 0.5, "off": 0.4} for label in HOSTILE}
    return {**document, **about_of(HOSTILE), "classes": ["Background", *HOSTILE], "thresholds": thresholds}


def test_names_of_classes_do_not_break_the_page(document):
    """Rendered, each is its text, and nothing of it is markup."""
    text = card_of(hostile(document), "m.lstr")
    assert all(character.isprintable() or character == "\n" for character in text)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    kinds = {token.type for token in tokens} | {one.type for token in tokens for one in token.children or ()}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "hr", "blockquote_open", "ordered_list_open"}
    assert not kinds & {"em_open", "s_open", "code_block"}
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings[1:] == [
        *("What it detects", "What it was trained on", "What is inside", "How well"),
        *("Thresholds", "Limits", "Licences", "Software", "How to use it"),
    ]
    shown = ["".join(one.content for one in token.children) for token in tokens if token.type == "inline"]
    for label in HOSTILE[:3] + HOSTILE[4:-1]:
        assert shown.count(label) == 4, (label, "in the list, and in three tables")
    rows = [token.map for token in tokens if token.type == "tr_open"]
    assert len(rows) == (1 + 1) + 3 * (1 + len(HOSTILE)) + (1 + 2) + (1 + 2)


def test_all_that_is_known_is_in_it(document):
    text = card_of({**document, **about_of(["wave"])}, "m.lstr")
    for words in (
        "| `training` | 2 | 60.0 | 2 |",
        "The files were called `scene_00.mp4`, `scene_01.mp4`.",
        "`mobilenetv3`, with random weights, made from their seed; it sees the middle at 64 × 64 pixels",
        "What sees the features is a model of kind lstr, of 1600 features of a chunk, itself 64 wide.",
        "| this model | 0.620 [0.400, 0.800] | 0.710 [0.500, 0.900] |",
        "in 2 folds, each of the 2 videos was scored by a model and feature networks that were not trained on it.",
        "Of 2 labelled actions 2 were found, with 2 false alarms in 1.0 hours of video: 2.00 [0.24 to 7.2] an hour.",
        "F1 is 0.67 [0.67, 0.67].",
        "| wave | 0.500 | 2 of 2 | 0.67 [0.67, 0.67] | 2 | 2.00 [0.24 to 7.2] |",
        "- Scored by what lacked fold 2: `scene_01`",
        "| lstr | 0.620 | this file |",
        "50 resamples",
        "Let no decision about the safety, health or rights of anybody rest on it alone",
        "- rgb: random weights",
        "Nobody has stated a licence of the model itself",
    ):
        assert words in text, words
    assert "day 1" not in text, "names of files without their folders"
    assert all(f"{name} {version}" in text for name, version in document["checkpoint"]["versions"].items())


def test_weights_that_imagenet_has_taught(document):
    origin = {
        "file": "e.pth",
        "sha256": "0" * 64,
        "licence": "Apache-2.0 (them)",
        "dataset": "imagenet",
        "address": None,
    }
    inside = {"from": "inside", "network": "efficientnet-lite0", "weights": "mine"}
    networks = {"rgb": inside | {"origin": origin}, "flow": inside}
    text = card_of({**document, "networks": networks}, "m.lstr")
    assert "- rgb: began with `e.pth`, trained on imagenet, licence Apache-2.0 (them) (SHA-256 `0000" in text
    assert "- flow: trained from random weights, as far as is recorded" in text and "whether that binds weights" in text
    assert "ImageNet" not in card_of(document, "m.lstr")


def test_unpack_writes_it_as_it_is_in_the_file(lstr, small_set, tmp_path):
    """It is made of model.json alone, whatever order its entries have there."""
    model = write_model(tmp_path / "m.lstr", small_set.checkpoint, None, about_of(["wave", "squat"]))
    code, _, _ = lstr("unpack", model.path, "-o", tmp_path / "x")
    assert code == 0 and (tmp_path / "x" / "card.md").read_text() == model.card()
    code, out, _ = lstr("info", model.path)
    assert code == 0 and "mAP, 95 %\t0.4 to 0.8" in out and "training labels wave\t2" in out and "fold 2\tday 2/" in out


@pytest.mark.parametrize("entry", [{"data": {"subsets": 7}}, {"metrics": {"lstr": {}, "events": {"together": {}}}}])
def test_a_file_of_somebody_else_with_other_entries(small_set, tmp_path, entry):
    """It ends in a sentence, here and where such figures are to be packed."""
    with pytest.raises(CheckpointError, match="is not valid"):
        write_model(tmp_path / "n.lstr", small_set.checkpoint, None, entry)
    archive = Archive(write_model(tmp_path / "m.lstr", small_set.checkpoint, None, {}).path)
    parts = {name: archive.read(name) for name in archive.sizes if name.endswith(TENSORS)}
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}
    write_archive(tmp_path / "h.lstr", document | entry, "", parts)
    with pytest.raises(CheckpointError, match="is not valid"):
        open_model(tmp_path / "h.lstr").card()
