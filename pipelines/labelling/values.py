"""What a labels project holds: labels, proposals, actions, subjects and what is said of each video; changes of them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from lstr.errors import ConflictError, RequestError, brief
from lstr.labels.label_set import BACKGROUND
from lstr.labels.segment import LATEST, is_name

# The action of a label that says: nothing happens here.
NOTHING = "nothing"
# Keys of the page that no action can have.
RESERVED = set("jkl ,.<>[]+-=0?/n\t")
LONGEST_NAME, LONGEST_COMMENT = 200, 4000  # characters

Time = Annotated[float, msgspec.Meta(ge=0, le=LATEST)]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
Comment = Annotated[str, msgspec.Meta(max_length=LONGEST_COMMENT)]
Score = Annotated[float, msgspec.Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Label:
    """An action from `start` to `end` in seconds; `end` is None while it is still open."""

    action: Name
    start: Time
    end: Time | None = None
    subject: Name = ""
    comment: Comment = ""


@dataclass(frozen=True)
class Proposal:
    """An action that a model proposes from `start` to `end` in seconds, and what a person has decided of it.

    Edges and action stay those that the model has found; what they were corrected to is in the label. An open one
    teaches nothing.
    """

    action: Name
    start: Time
    end: Time
    peak: Score
    """The highest score of the model in it."""
    threshold: Score
    """The score from which the model detects the action; a near miss has its peak below."""
    model: Name
    """The hash of the model file."""
    state: Literal["open", "accepted", "corrected", "rejected"] = "open"


@dataclass(frozen=True)
class Search:
    """Which model has proposed last in a video: it need not look again."""

    model: Name


@dataclass(frozen=True)
class About:
    """What is said of a whole video."""

    complete: bool = False
    """Every occurrence is labelled, so that all other time is background."""
    comment: Comment = ""
    subset: Name = ""


@dataclass(frozen=True)
class Action:
    """A class to label, the key that starts and stops it, and its place among the lanes."""

    name: Name
    key: Annotated[str, msgspec.Meta(max_length=1)] = ""
    place: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 0


@dataclass(frozen=True)
class Subject:
    """An animal or a person; its name is its key."""

    place: Annotated[int, msgspec.Meta(ge=0, le=10**6)] = 0


Value = Label | Proposal | Search | About | Action | Subject
KINDS: dict[str, type] = {
    "label": Label, "proposal": Proposal, "search": Search, "about": About, "action": Action, "subject": Subject,
}  # fmt: skip
# Kinds whose values belong to one video; the others belong to the project.
OF_VIDEO = ("label", "proposal", "search", "about")
# Kinds of which a video has one value, without a key.
ONE_A_VIDEO = ("search", "about")


@dataclass(frozen=True)
class Change:
    """One value that becomes another; None where there was or will be none.

    A place is its kind, the id of its video ("" for the project's own) and its key ("" where a video has only one).
    """

    kind: str
    video: str
    key: str
    before: Value | None
    after: Value | None

    @property
    def place(self) -> tuple[str, str, str]:
        """Where the value is."""
        return self.kind, self.video, self.key

    def reversed(self) -> "Change":
        """The change that takes it back."""
        return Change(self.kind, self.video, self.key, self.after, self.before)

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object."""
        sides = {"before": self.before, "after": self.after}
        values = {name: None if value is None else asdict(value) for name, value in sides.items()}
        return {"kind": self.kind, "video": self.video, "key": self.key, **values}


def change_of(entry: Any) -> Change:
    """A change from a JSON object as of `to_dict`. Raises RequestError where it is none."""
    if not isinstance(entry, dict) or entry.get("kind") not in KINDS:
        raise RequestError(f"{brief(entry)} is no change.", "reload the page.")
    kind, video, key = (entry.get(name, "") for name in ("kind", "video", "key"))
    for name, text in (("video", video), ("key", key)):
        if not isinstance(text, str) or len(text) > 4096:
            raise RequestError(f"The {name} {brief(text)} of a change is no text.", "reload the page.")
    if bool(video) != (kind in OF_VIDEO) or bool(key) == (kind in ONE_A_VIDEO):
        raise RequestError(f"A change of {kind} has no such place: {video!r}, {key!r}.", "reload the page.")
    before, after = (_value(kind, entry.get(side)) for side in ("before", "after"))
    return Change(kind, video, key, before, after)


def _value(kind: str, content: Any) -> Value | None:
    if content is None:
        return None
    try:
        value: Value = msgspec.convert(content, KINDS[kind])
    except msgspec.ValidationError as error:
        raise RequestError(
            f"A {kind} cannot be {brief(content)} ({error}).", "correct it, or reload the page."
        ) from error
    for name, text in asdict(value).items():
        if isinstance(text, str) and text and not is_name(text):
            raise RequestError(f"The {name} {brief(text)} is no text that a file can hold.", "write it otherwise.")
    if isinstance(value, Label | Proposal) and value.end is not None and value.end <= value.start:
        raise RequestError(f"A {kind} ends after its start.", "let it last at least one frame.")
    if isinstance(value, Action):
        _check_action(value)
    return value


def _check_action(action: Action) -> None:
    if not action.name.strip():
        raise RequestError("An action needs a name.", "type one.")
    if action.name == BACKGROUND:
        raise RequestError(f"{BACKGROUND!r} is where no action is.", "label it as: nothing happens here.")
    if action.key and action.key.lower() in RESERVED:
        raise RequestError(f"The key {action.key!r} is one of the page's own.", "choose another letter or digit.")


Place = tuple[str, str, str]


@dataclass
class State:
    """Values by place, as `Change.place` has it; videos and actions are found through `labels_of` and `actions`."""

    labels: dict[str, dict[str, Label]] = field(default_factory=dict)
    """By video and id."""
    proposals: dict[str, dict[str, Proposal]] = field(default_factory=dict)
    """By video and id."""
    searches: dict[str, Search] = field(default_factory=dict)
    abouts: dict[str, About] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def get(self, place: Place) -> Value | None:
        """The value at a place; None where there is none."""
        kind, video, key = place
        by_video = self._by_video.get(kind)
        by_name = self._by_name[kind] if by_video is None else by_video.get(video, {})
        value: Value | None = by_name.get(video if kind in ONE_A_VIDEO else key)
        return value

    def put(self, change: Change) -> None:
        """Let the change's value after it be the one at its place."""
        kind, video, key = change.place
        by_video = self._by_video.get(kind)
        by_name = self._by_name[kind] if by_video is None else by_video.setdefault(video, {})
        name = video if kind in ONE_A_VIDEO else key
        if change.after is None:
            by_name.pop(name, None)
        else:
            by_name[name] = change.after
        if by_video is not None and not by_name:
            del by_video[video]

    @property
    def _by_video(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {"label": self.labels, "proposal": self.proposals}

    @property
    def _by_name(self) -> dict[str, dict[str, Any]]:
        return {"search": self.searches, "about": self.abouts, "action": self.actions, "subject": self.subjects}

    def apply(self, changes: Iterable[Change]) -> None:
        """Take all changes, or none. Raises ConflictError where a value is not what it was, RequestError."""
        taken: list[Change] = []
        try:
            for change in changes:
                if self.get(change.place) != change.before:
                    raise ConflictError("That has been changed meanwhile, as in another tab.", "look at it again.")
                self.put(change)
                taken.append(change)
            for change in taken:
                self._check(change)
        except (ConflictError, RequestError):
            for change in reversed(taken):
                self.put(change.reversed())
            raise

    def _check(self, change: Change) -> None:
        """Raise RequestError where the values do not go together after a change."""
        value = self.get(change.place)
        if isinstance(value, Label) and value.action != NOTHING and value.action not in self.actions:
            raise RequestError("There is no such action any more.", "add it again.")
        if isinstance(value, Action):
            for key, other in self.actions.items():
                if key != change.key and other.name == value.name:
                    raise RequestError(f"There is an action {value.name!r} already.", "choose another name.")
                if key != change.key and value.key and other.key.lower() == value.key.lower():
                    raise RequestError(f"{value.key!r} is the key of {other.name!r}.", "choose another key.")
        if change.kind == "action" and value is None and self.uses(change.key):
            raise RequestError("The action has labels.", "delete them first.")

    def uses(self, action: str) -> int:
        """How many labels an action has."""
        return sum(label.action == action for labels in self.labels.values() for label in labels.values())

    def ordered(self) -> list[tuple[str, Action]]:
        """The actions in the order of their lanes, with their ids."""
        return sorted(self.actions.items(), key=lambda pair: (pair[1].place, pair[1].name))

    def videos(self) -> list[str]:
        """The videos of which a person has said anything; a proposal alone says nothing."""
        said = (video for video, about in self.abouts.items() if about != About())
        return list(dict.fromkeys([*said, *self.labels]))

    def copy(self) -> "State":
        """The same values, which change no more with this one's."""
        labels = {video: dict(by_id) for video, by_id in self.labels.items()}
        proposals = {video: dict(by_id) for video, by_id in self.proposals.items()}
        of_videos = dict(self.searches), dict(self.abouts)
        return State(labels, proposals, *of_videos, dict(self.actions), dict(self.subjects))
