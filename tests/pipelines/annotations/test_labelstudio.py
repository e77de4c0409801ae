"""Label Studio's tasks."""

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.annotations.format import ConvertOptions
from tests.support.annotated import parse, segments

AT_25 = ConvertOptions(frames=25)


def test_an_export_of_label_studio():
    """What a person corrected goes before what was predicted; the frame rate is not in an export."""
    region = {"type": "timelinelabels", "value": {"ranges": [{"start": 26, "end": 50}], "timelinelabels": ["jump"]}}
    task = {
        "id": 7,
        "data": {"video": "/data/upload/1/game.mp4"},
        "annotations": [{"result": [region, {"type": "choices", "value": {"choices": ["sharp"]}}]}],
        "predictions": [{"result": []}],
    }
    read = parse("labelstudio", [task], "x", AT_25)
    assert segments(read.videos["game"]) == [(1.0, 2.0, "jump")]
    with pytest.raises(LabelsError, match="without a frame rate") as caught:
        parse("labelstudio", [task])
    assert "--frames 30" in caught.value.hint


def exported(video: str, *annotations: tuple) -> dict:
    """A task; each annotation is (start, who, whether it was skipped)."""
    made = [
        {
            "completed_by": who,
            "was_cancelled": skipped,
            "result": [
                {
                    "type": "timelinelabels",
                    "value": {"ranges": [{"start": start, "end": 50}], "timelinelabels": ["jump"]},
                }
            ],
        }
        for start, who, skipped in annotations
    ]
    return {"data": {"video": video}, "annotations": made}


@pytest.mark.parametrize(
    ("media", "names"),
    [
        (["/data/upload/3/ab12cd00-seq01.mp4"], ["seq01"]),
        (["/data/upload/3/ab12cd00-a-b.mp4", "/data/upload/3/ab12cd01-c.mp4"], ["a-b", "c"]),
        (["/data/upload/3/ab12cd00-a.mp4", "/data/upload/3/ab12cd01-a.mp4"], ["ab12cd00-a", "ab12cd01-a"]),
        (["/films/ab12cd00-a.mp4", "s3://films/ab12cd01-b.mp4"], ["ab12cd00-a", "ab12cd01-b"]),
    ],
)
def test_the_name_of_an_upload_is_the_one_that_it_had_before(media, names):
    assert list(parse("labelstudio", [exported(path, (1, 1, False)) for path in media], "x", AT_25).videos) == names


def test_skipped_tasks_are_left_out_and_the_last_annotation_counts():
    tasks = [
        exported("a.mp4", (1, 1, False), (26, 2, False), (30, 3, True)),
        exported("b.mp4", (1, 1, True)),
        exported("c.mp4"),
    ]
    read = parse("labelstudio", tasks, "x", AT_25)
    assert read.videos.keys() == {"a", "c"} and segments(read.videos["a"]) == [(1.0, 2.0, "jump")]
    assert [note.sentence for note in read.notes] == [
        "'a' has 2 annotations; the last one is used",
        "'b' was skipped in Label Studio and is not read",
    ]
