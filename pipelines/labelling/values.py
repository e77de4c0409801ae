"""The values of a labels project (labels, proposals, actions, subjects, facts about each video), changes, and undo."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from lstr.errors import ConflictError, RequestError, brief
from lstr.labels.label_set import BACKGROUND
from lstr.labels.segment import LATEST

# The action of a label that says: nothing happens here.
NOTHING = "nothing"
# Keys that the page itself uses, which no action can have.
RESERVED = set("jkl ,.<>[]+-=0?/n\t")
WITH_SHIFT = "CR"  # the small letters are free
MAX_NAME, MAX_COMMENT, MAX_KEY = 200, 4000, 4096  # characters
UTF_8 = "^[^\ud800-\udfff]*$"  # JSON may have lone surrogates, which cannot be written

Time = Annotated[float, Meta(ge=0, le=LATEST)]
Name = Annotated[str, Meta(max_length=MAX_NAME, pattern=UTF_8)]
Comment = Annotated[str, Meta(max_length=MAX_COMMENT, pattern=UTF_8)]
Key = Annotated[str, Meta(max_length=MAX_KEY)]
Score = Annotated[float, Meta(ge=0, le=1)]
Place = Annotated[int, Meta(ge=0, le=10**6)]


class Value(Struct, frozen=True):
    """A value of a project. msgspec turns the ValueError of a check into an error of the whole request."""


class Label(Value, frozen=True):
    """An action from `start` to `end` in seconds; an open label has no `end` yet."""

    action: Name
    start: Time
    end: Time | None = None
    subject: Name = ""
    comment: Comment = ""

    def __post_init__(self) -> None:
        if self.end is not None and self.end <= self.start:
            raise ValueError("a label must end after its start")


class Proposal(Value, frozen=True):
    """An action that a model proposes from `start` to `end` in seconds, and what a person decided about it.

    Edges and action stay as the model found them; a correction is in the label. An open proposal is not used for
    training.

    Attributes:
        peak: Highest score of the model in it.
        threshold: Score at which the model detects the action; the peak of a near miss is below.
        model: Hash of the model file.
    """

    action: Name
    start: Time
    end: Time
    peak: Score
    threshold: Score
    model: Name
    state: Literal["open", "accepted", "corrected", "rejected"] = "open"

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError("a proposal must end after its start")


class Search(Value, frozen=True):
    """The model that searched a video last; it does not search it again."""

    model: Name


class About(Value, frozen=True):
    """Facts about a whole video; `complete` means that every occurrence is labelled, so that the rest is background."""

    complete: bool = False
    comment: Comment = ""
    subset: Name = ""


class Action(Value, frozen=True):
    """A class to label, the key that starts and stops it, and its place among the lanes."""

    name: Name
    key: Annotated[str, Meta(max_length=1, pattern=UTF_8)] = ""
    place: Place = 0

    def __post_init__(self) -> None:
        if not self.name.strip() or self.name == BACKGROUND:
            raise ValueError(f"an action needs a name other than {BACKGROUND!r}")
        if self.key and (self.key.lower() in RESERVED or self.key in WITH_SHIFT):
            raise ValueError(f"the key {self.key!r} is reserved for the page")


class Subject(Value, frozen=True):
    """An animal or a person; its name is its key."""

    place: Place = 0


# The type and the attribute of `State` for each kind of value.
KINDS: dict[str, type[Value]] = {
    "label": Label, "proposal": Proposal, "search": Search, "about": About, "action": Action, "subject": Subject,
}  # fmt: skip
HOMES = {kind: f"{kind}s" for kind in KINDS} | {"search": "searches"}
# Kinds that belong to one video; of the second group a video has one value, without a key.
BY_KEY, ONE_PER_VIDEO = ("label", "proposal"), ("search", "about")
OF_VIDEO = (*BY_KEY, *ONE_PER_VIDEO)

AnyValue = TypeVar("AnyValue")


class Change(Struct, Generic[AnyValue], frozen=True):
    """A value that changes; None if there was or will be none.

    `video` is empty for values of the project, `key` for kinds with one value per video.
    """

    kind: str
    video: Key = ""
    key: Key = ""
    before: AnyValue | None = None
    after: AnyValue | None = None

    def reversed(self) -> "Change[AnyValue]":
        """Return the change that undoes it."""
        return Change(self.kind, self.video, self.key, self.after, self.before)


def change_of(entry: Any) -> Change[Any]:
    """Return a change from its JSON object. Raises RequestError for one that is not valid."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind not in KINDS:
        raise RequestError(f"The change is not valid: {brief(entry)}.", "reload the page.")
    try:
        change: Change[Any] = msgspec.convert(entry, Change[KINDS[kind]])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        raise RequestError(f"Not a valid {kind}: {reason}.", "correct it, or reload the page.") from error
    if bool(change.video) != (kind in OF_VIDEO) or bool(change.key) == (kind in ONE_PER_VIDEO):
        raise RequestError(f"A {kind} cannot be at video {change.video!r}, key {change.key!r}.", "reload the page.")
    return change


@dataclass
class State:
    """All values: labels and proposals by video and key, the others by their video or key."""

    labels: dict[str, dict[str, Label]] = field(default_factory=dict)
    proposals: dict[str, dict[str, Proposal]] = field(default_factory=dict)
    searches: dict[str, Search] = field(default_factory=dict)
    abouts: dict[str, About] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def get(self, kind: str, video: str, key: str) -> Any:
        """Return a value, or None."""
        home = getattr(self, HOMES[kind])
        return home.get(video, {}).get(key) if kind in BY_KEY else home.get(key or video)

    def put(self, change: Change[Any]) -> None:
        """Set the value of a change, without any check."""
        by_video = getattr(self, HOMES[change.kind])
        home = by_video.setdefault(change.video, {}) if change.kind in BY_KEY else by_video
        name = change.key or change.video
        if change.after is None:
            home.pop(name, None)
        else:
            home[name] = change.after
        if change.kind in BY_KEY and not home:
            del by_video[change.video]

    def apply(self, changes: Iterable[Change[Any]]) -> None:
        """Make all changes, or none.

        Raises ConflictError if a value differs from `before`, RequestError if values do not fit together.
        """
        made: list[Change[Any]] = []
        try:
            # all are made before the first check, because a request may rename two actions or add one with its labels
            for change in changes:
                if self.get(change.kind, change.video, change.key) != change.before:
                    hint = "check it, and repeat the change."
                    raise ConflictError("The value has changed, for example in another tab.", hint)
                self.put(change)
                made.append(change)
            for change in made:
                value = change.after
                if isinstance(value, Label) and value.action != NOTHING and value.action not in self.actions:
                    raise RequestError("The action was removed.", "add it again.")
                if isinstance(value, Action):
                    for other in (other for key, other in self.actions.items() if key != change.key):
                        if other.name == value.name:
                            raise RequestError(f"There is already an action {value.name!r}.", "choose another name.")
                        if value.key and other.key.lower() == value.key.lower():
                            hint = "choose another key."
                            raise RequestError(f"The action {other.name!r} has the key {value.key!r}.", hint)
                if change.kind == "action" and value is None:
                    if any(label.action == change.key for held in self.labels.values() for label in held.values()):
                        raise RequestError("The action has labels.", "delete them first.")
        except (ConflictError, RequestError):
            for change in reversed(made):
                self.put(change.reversed())
            raise

    def ordered(self) -> list[tuple[str, Action]]:
        """Return the actions in the order of their lanes, with their ids."""
        return sorted(self.actions.items(), key=lambda pair: (pair[1].place, pair[1].name))

    def videos(self) -> list[str]:
        """Return the videos about which a person has said something; a proposal does not count."""
        commented = (video for video, about in self.abouts.items() if about != About())
        return list(dict.fromkeys([*commented, *self.labels]))

    def copy(self) -> "State":
        """Return the same values, independent of later changes."""
        labels = {video: dict(held) for video, held in self.labels.items()}
        proposals = {video: dict(held) for video, held in self.proposals.items()}
        of_videos = dict(self.searches), dict(self.abouts)
        return State(labels, proposals, *of_videos, dict(self.actions), dict(self.subjects))


# What a person does to a video, and what a model proposes, which cannot be undone
Deed = Literal["do", "undo", "redo", "propose"]
Changes = Sequence[Change[Any]]


class Entry(Struct, frozen=True):
    """A revision of a project and a line of its journal: the id of the request, what was done, and the changes.

    `video` is empty for changes of the project's own values, which cannot be undone.
    """

    revision: int
    id: str
    deed: Deed
    video: str
    changes: tuple[Change[Any], ...]


@dataclass
class History:
    """The changes that can be undone and redone, by video, and the last value of each removed action."""

    done: dict[str, list[Changes]] = field(default_factory=dict)
    undone: dict[str, list[Changes]] = field(default_factory=dict)
    former: dict[str, Action] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Add an entry. If it removes an action, changes of labels of that action can no longer be undone."""
        for change in entry.changes:
            if isinstance(change.before, Action):
                self.former[change.key] = change.before
                for deeds in (*self.done.values(), *self.undone.values()) if change.after is None else ():
                    values = (value for made in deeds for one in made for value in (one.before, one.after))
                    if any(isinstance(value, Label) and value.action == change.key for value in values):
                        deeds.clear()
        if not entry.video:  # values of the project itself have no undo
            return
        done, undone = (side.setdefault(entry.video, []) for side in (self.done, self.undone))
        if entry.deed == "propose":
            gone = {(change.kind, change.key) for change in entry.changes if change.after is None}
            if any((change.kind, change.key) in gone for changes in undone for change in changes):
                undone.clear()  # among them is a decision about a proposal that no longer exists
        elif entry.deed == "do":
            done.append(entry.changes)
            undone.clear()
        else:
            taken, given = (done, undone) if entry.deed == "undo" else (undone, done)
            if taken:  # the change may have been in a damaged line of the journal, which is skipped
                given.append(taken.pop())

    def next(self, video: str, deed: Deed) -> Changes:
        """Return the changes that undo the last deed in a video, or redo the one undone last; empty without one."""
        deeds = (self.done if deed == "undo" else self.undone).get(video)
        if not deeds:
            return ()
        return tuple(change.reversed() for change in reversed(deeds[-1])) if deed == "undo" else deeds[-1]
