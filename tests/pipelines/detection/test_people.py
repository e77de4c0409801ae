"""Who and where: the people of decisions and events, from the features of their poses."""

import csv
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from lstr.extractors.networks.build import network_recipe
from lstr.extractors.networks.network import MOVENET
from lstr.extractors.presets import PEOPLE
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import FeatureRow
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.options import OutputOptions
from lstr.pipelines.detection.people import PeopleTracker
from lstr.pipelines.detection.source import Source
from lstr.timeline import Thresholds
from tests.extractors.networks.test_movenet import drawn_people, poses_of
from tests.support.detections import decisions_of, lines_of, run_session, scores_of, tiny_checkpoint

ONE, TWO = (0.4, 0.2), (0.5, 0.7)


@pytest.fixture
def loaded(tmp_path):
    recipe = Recipe(None, None, flow_algorithm=None, pose=replace(network_recipe("pose", PEOPLE.pose), weights="pose"))
    return tiny_checkpoint(tmp_path / "tiny.pt", ("Background", "wave"), MOVENET.width, 0, recipe.to_dict())


def row_of(people, index=0):
    """The features of a chunk in which people do not move."""
    features, others = poses_of(people, people)[0].tensor_split([MOVENET.width])
    return FeatureRow(index, (index + 1) / 4, {"pose": features.numpy()}, others.numpy())


def decided(people, loaded, **more):
    """Events of chunks with these people; the action lasts from the first to the last one."""
    rows = [row_of(drawn, k) for k, drawn in enumerate(people)]
    return list(run_session([Source("a", rows=rows)], loaded, thresholds=Thresholds(on=0.0, off=0.0), **more))


def test_decisions_and_events_have_people(loaded, tmp_path):
    """The second person leaves for less than two seconds, then for longer; the first one moves slowly."""
    there = [(TWO,)] * 2 + [()] * 4 + [(TWO,)] + [()] * 12 + [(TWO,)] * 2
    people = [drawn_people((0.4 + 0.01 * at, 0.2), *others) for at, others in enumerate(there)]
    found = decisions_of(decided(people, loaded, output=OutputOptions(tmp_path / "out", ("json", "jsonl", "csv"))))
    assert [[person.id for person in decision.people] for decision in found] == [
        [1, 2] if k < 2 or k == 6 else [1, 3] if k > 18 else [1] for k in range(21)
    ]
    for decision, drawn in zip(found, people, strict=True):
        for person, row in zip(decision.people, drawn[0], strict=False):
            np.testing.assert_allclose(person.keypoints, row[:51].reshape(17, 3)[:, [1, 0, 2]], atol=1e-5)
            np.testing.assert_allclose(person.box, row[[52, 51, 54, 53]], atol=1e-5)
    lines = lines_of(tmp_path / "out", "a")
    assert [person["id"] for person in lines[0]["people"]] == [1, 2] and len(lines[0]["people"][0]["keypoints"]) == 17
    (segment,) = json.loads((tmp_path / "out" / "a.json").read_text())["segments"]
    # the first one was there all the time, and the box is around all places; the others were not there for half of it
    assert segment["people"] == lines[-1]["people"] == [{"id": 1, "box": [0.1, 0.3, 0.3, 0.7], "share": 1.0}]
    assert [row["subject"] for row in csv.DictReader((tmp_path / "out" / "a.csv").open())] == ["person 1"]


def test_shares_of_three_people_are_by_streams_in_which_one_is_alone(loaded):
    crowd = [drawn_people((0.4 + 0.01 * at, 0.2), TWO, (0.7, 0.45)) for at in range(6)]
    alone = [[torch.cat([drawn[:, [n]], torch.zeros(1, 5, 56)], 1) for drawn in crowd] for n in range(3)]
    own = np.stack([scores_of(decisions_of(decided(people, loaded)))[:, 1] for people in alone], 1)
    *_, end = events = decided(crowd, loaded)
    found = decisions_of(events)
    (started,), (ended,) = found[0].events, end.events
    shares, near = own / own.sum(1, keepdims=True), partial(pytest.approx, abs=1e-5)
    assert [person.share for person in sorted(started.people, key=lambda person: person.id)] == near(shares[0])
    assert [person.share for person in ended.people] == near(sorted(own.sum(0) / own.sum(), reverse=True))
    for decision, row in zip(found, shares, strict=True):
        assert [person.id for person in decision.people] == [1, 2, 3]
        assert [person.share for person in decision.people] == near([*row] if decision.label == "wave" else [None] * 3)


def test_places_are_of_the_whole_image(loaded):
    """A network of 4:3 sees the middle of a wider or taller frame."""
    row = row_of(drawn_people(ONE))
    decision = Decision(0, 0.25, "wave", 1.0, [], 0.0, [], np.zeros(2, np.float32))
    for width, height, middle in ((160, 120, (0.4, 0.2)), (160, 90, (0.4, 0.275)), (40, 120, (0.475, 0.2))):
        ((seen,),) = [PeopleTracker(loaded).add_to(decision, row, (6, height, width, 3)).people]
        left, top, right, bottom = seen.box
        assert ((top + bottom) / 2, (left + right) / 2) == pytest.approx(middle), (width, height)


def test_only_people_with_their_feet_in_a_zone_count(loaded):
    both, hidden = drawn_people(ONE, TWO), drawn_people(ONE, TWO)  # whose feet are hidden
    both[:, :, [45, 48]], hidden[:, :, 45:51] = both[:, :, 53:54] - 0.02, 0
    corners = ((0, 0), (0.3, 0), (0.3, 0.4), (0, 0.4))
    left, right, top = (tuple((x + dx, y + dy) for dx, dy in corners) for x, y in ((0, 0.4), (0.5, 0.5), (0, -0.2)))
    for people in (both, hidden):
        for zones, others in (((left, right), []), ((left,), [1]), ((right,), [0]), ((top,), [0, 1])):
            seen = people.clone()
            seen[:, others, 55] = 0
            found = PeopleTracker(loaded, lambda zones=zones: zones).inside(row_of(people), ())
            np.testing.assert_array_equal(found.features["pose"], row_of(seen).features["pose"])


def test_the_model_sees_the_two_most_certain_people_in_a_zone(loaded):
    crowd = drawn_people(TWO, ONE, (0.6, 0.25), (0.5, 0.1))
    zone = ((0, 0.3), (0.3, 0.3), (0.3, 0.9), (0, 0.9))
    found = PeopleTracker(loaded, lambda: (zone,)).inside(row_of(crowd), ())
    poses = [row_of(crowd[:, [n, 5, 5, 5, 5, 5]]).features["pose"].reshape(2, -1)[:, :56] for n in (1, 2, 3)]
    expected = np.hstack([*poses[:2], np.zeros((2, 51))]).ravel()
    np.testing.assert_allclose(found.features["pose"], expected, atol=1e-6)
    np.testing.assert_array_equal(found.others, poses[2].ravel())
