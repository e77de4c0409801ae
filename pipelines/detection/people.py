"""The people in the features of poses: their places, their numbers, and the share that each has in an action."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.networks.network import MOVENET
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.zones import Zones
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.model import Streams, seen_parts
from lstr.pipelines.model_files.networks import recipe_of
from lstr.timeline import Box, Event, Person

LOST_SECONDS = 2.0  # after which someone who comes back is another person
OVERLAP = 0.2  # least intersection over union of a person's box and the latest one
LONG_ENOUGH = 0.5  # of the chunks of an action, for the people of its end
ANKLES = slice(15, 17)
# People, those of the features, and the features of one: see `lstr.extractors.networks.movenet.Poses`.
PEOPLE, MATCHED, WIDTH, KEYPOINTS = 6, 2, 56, 17
# By number, in how many chunks a person was seen, the sum of the person's own scores, and the box around all places.
Seen = dict[int, tuple[int, float, Box]]


class PeopleTracker:
    """The people of one source: their numbers by the overlap of their boxes, and who was there during each action."""

    def __init__(self, loaded: Checkpoint, zones: Callable[[], Zones] = tuple):
        """Of a model on poses; if it has no other stream, people whose feet are outside all `zones` do not count."""
        recipe = recipe_of(loaded)
        assert recipe, "its streams are known"
        self._size, self._zones, self._is_alone = recipe.size_of("pose"), zones, recipe.streams == ("pose",)
        self._latest: dict[int, tuple[Box, float]] = {}  # box and time by number
        self._n = 0
        self._active: dict[str, tuple[int, Seen]] = {}  # chunks and people of each active action
        self._classes = loaded.classes
        # the model on each person's own poses, and the number of the person at each place; other streams see all people
        self._streams, self._owners = Streams(loaded, PEOPLE) if self._is_alone else None, [0] * PEOPLE

    def add_to(self, decision: Decision, row: FeatureRow, shape: tuple[int, ...] = ()) -> Decision:
        """Return a decision with the people of its chunk, and its events with theirs.

        Args:
            decision: The decision.
            row: The features of the stream `pose`, and the people who are not in them.
            shape: The shape of the frames (6, H, W, 3), of which the network sees the middle; () if unknown.
        """
        poses = poses_in(row)
        people = self._numbered(decision.time, self._places(poses, shape))
        numbers = [person.id for person in people]
        own = [dict.fromkeys(self._classes, 0.0)] * len(people)  # by label, of each person
        if streams := self._streams:  # the scores of each person, as if nobody else had ever been there
            for number in numbers:
                if number not in self._owners:
                    place = next(at for at, owner in enumerate(self._owners) if owner not in numbers)
                    self._owners[place] = number
                    streams.reset([place])
            alone = [poses[[at for at, number in enumerate(numbers) if number == owner]] for owner in self._owners]
            inputs = streams.as_input(np.stack([features_of(pose) for pose in alone])), None
            scores = np.asarray(streams.step(range(PEOPLE), *inputs))[:, 0].tolist()
            own = [dict(zip(self._classes, scores[self._owners.index(number)], strict=True)) for number in numbers]
        scored = [*zip(people, own, strict=True)]
        for label, (n, seen) in self._active.items():
            for person, score_of in scored:
                number, total, box = seen.get(person.id, (0, 0.0, person.box))
                corners = zip(box, person.box, strict=True)
                left, top, right, bottom = (f(pair) for f, pair in zip((min, min, max, max), corners, strict=True))
                seen[person.id] = number + 1, total + score_of[label], (left, top, right, bottom)
            self._active[label] = n + 1, seen
        events = self.with_people(decision.events, scored)
        if self._streams and decision.label not in (BACKGROUND, AMBIGUOUS):
            shares = shares_of({person.id: score_of[decision.label] for person, score_of in scored})
            people = [replace(person, share=shares[person.id]) for person in people]
        return replace(decision, people=people, events=events)

    def inside(self, row: FeatureRow, shape: tuple[int, ...]) -> FeatureRow:
        """Return features without the people whose feet are outside the zones; `shape` as of `add_to`.

        If one of the two whom the model sees is outside, it sees the most certain others instead.
        """
        if not self._is_alone or not (zones := self._zones()):
            return row
        poses, features = poses_in(row), row.features["pose"]
        is_inside = np.array([stands_in(zones, person) for person in self._places(poses, shape)], bool)
        if is_inside.all():
            return row
        n_seen = int(np.count_nonzero(features[: MATCHED * WIDTH : WIDTH]))
        poses = poses[is_inside]
        if not is_inside[:n_seen].all():
            n_seen, features = MATCHED, features_of(poses[:MATCHED])
        return replace(row, features={"pose": features}, others=poses[n_seen:].swapaxes(0, 1).ravel())

    def _places(self, poses: NDArray[np.float32], shape: tuple[int, ...]) -> list[Person]:
        """Return the people of a chunk without numbers."""
        part = np.array(seen_parts(self._size, shape[2], shape[1]) if shape else (1.0, 1.0))
        return [place_of(pose, part) for pose in poses[:, 0]]

    def with_people(
        self, events: Iterable[Event], scored: Sequence[tuple[Person, Mapping[str, float]]] = ()
    ) -> list[Event]:
        """Return events with their people: of a start those who are there, of an end those of half of the action.

        The first one has the largest share of it. `scored` are those who are there, each with scores by label.
        """
        found = []
        for event in events:
            n, seen = 1, Seen()
            if event.event == "started":
                seen |= {person.id: (1, score_of[event.label], person.box) for person, score_of in scored}
                self._active[event.label] = n, seen
            elif event.event == "ended":
                n, seen = self._active.pop(event.label, (n, seen))
            seen = {number: values for number, values in seen.items() if values[0] >= LONG_ENOUGH * n}
            shares = shares_of({number: total for number, (_, total, _) in seen.items()})
            those = [Person(at, box, share=shares[at] if self._streams else None) for at, (_, _, box) in seen.items()]
            found.append(replace(event, people=tuple(sorted(those, key=lambda person: -shares[person.id]))))
        return found

    def _numbered(self, time: float, people: list[Person]) -> list[Person]:
        """Return people with the numbers of those that they overlap most, and new numbers for others."""
        self._latest = {number: known for number, known in self._latest.items() if time - known[1] <= LOST_SECONDS}
        pairs = [
            (overlap(person.box, box), at, number)
            for at, person in enumerate(people)
            for number, (box, _) in self._latest.items()
        ]
        numbers: dict[int, int] = {}
        for share, at, number in sorted(pairs, reverse=True):
            if share >= OVERLAP and at not in numbers and number not in numbers.values():
                numbers[at] = number
        for at, person in enumerate(people):
            if at not in numbers:
                self._n += 1
                numbers[at] = self._n
            self._latest[numbers[at]] = person.box, time
        return [replace(person, id=numbers[at]) for at, person in enumerate(people)]


def poses_in(row: FeatureRow) -> NDArray[np.float32]:
    """Return the poses of the people of a chunk, and their change (N, 2, 56); first those that the model sees."""
    seen = row.features["pose"].reshape(2, -1)[:, : MATCHED * WIDTH]
    poses = np.hstack([seen, row.others.reshape(2, -1)])
    poses = poses.reshape(2, -1, WIDTH).swapaxes(0, 1)
    return poses[poses[:, 0, 0] > 0]


def features_of(poses: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return features (326,) of at most two people (N, 2, 56) from left to right, without distances between them."""
    features = np.zeros((2, MOVENET.width // 2), np.float32)
    features[:, : len(poses) * WIDTH] = poses[poses[:, 0, 2].argsort()].swapaxes(0, 1).reshape(2, -1)
    return features.ravel()


def shares_of(scores: Mapping[int, float]) -> dict[int, float]:
    """Return the part that each score has in the sum of all; equal parts if all are 0."""
    whole = sum(scores.values())
    return {number: score / whole if whole else 1 / len(scores) for number, score in scores.items()}


def place_of(features: NDArray[np.float32], part: NDArray[np.floating]) -> Person:
    """Return a person, without a number, from the features (56,) of a network that sees a `part` of (width, height)."""
    y, x, height, aspect = features[1:5].astype(float)
    half = np.array([aspect * height, height]) / 2
    points, scores = features[5:39].reshape(KEYPOINTS, 2)[:, ::-1], features[39:WIDTH, None]
    is_seen = points.any(1, keepdims=True)  # hidden keypoints are 0

    def on_image(place: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.clip((1 - part) / 2 + part * place, 0, 1)

    left, top, right, bottom = np.concatenate([on_image((x, y) - half), on_image((x, y) + half)]).tolist()
    keypoints = np.hstack([on_image(points * height + (x, y)), scores]) * is_seen
    return Person(0, (left, top, right, bottom), keypoints.astype(np.float32))


def stands_in(zones: Zones, person: Person) -> bool:
    """Return whether the feet of a person are in any of the zones: between the ankles, or at the foot of the box."""
    left, _, right, bottom = person.box
    assert person.keypoints is not None, "it is not of an event"
    ankles = person.keypoints[ANKLES]
    seen = ankles[ankles[:, 2] > 0, :2]
    x, y = seen.mean(0).tolist() if len(seen) else ((left + right) / 2, bottom)
    return any(cv2.pointPolygonTest(np.array(zone, np.float32), (x, y), False) >= 0 for zone in zones)


def overlap(one: Box, other: Box) -> float:
    """Return the intersection over union of two boxes."""
    areas = [max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]) for box in (one, other)]
    width, height = (min(one[n + 2], other[n + 2]) - max(one[n], other[n]) for n in (0, 1))
    shared = max(0.0, width) * max(0.0, height)
    return shared / (sum(areas) - shared) if shared else 0.0
