"""The forms of planners by name, and how a planner is written and read: JSON that holds numbers and nothing to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lstr.errors import ConfigError, brief
from lstr.windows.long_plan import Bank, Compressed, Generated, History
from lstr.windows.plan import Plan, Planner, joined
from lstr.windows.short_plan import Ring, Runs, Slots, States

FORMS: Mapping[str, type[Planner]] = {
    "states": States,
    "runs": Runs,
    "slots": Slots,
    "ring": Ring,
    "compressed": Compressed,
    "generated": Generated,
    "bank": Bank,
    "history": History,
}
JOINED = "joined"
MOST_MEMBERS = 1000
AGAIN = "Export the model again with `lstr export`."


@dataclass(frozen=True)
class Joined(Planner):
    """The plan of several models that step together."""

    members: tuple[Planner, ...]

    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """See Planner."""
        return joined(member(chunks) for member in self.members)

    def check(self) -> None:
        """Like `Planner.check`, of each member."""
        for member in self.members:
            member.check()


def to_dict(planner: Planner) -> dict[str, Any]:
    """A planner as JSON has it. Raises ConfigError for one of a form that no file knows."""
    if isinstance(planner, Joined):
        return {"form": JOINED, "members": [to_dict(member) for member in planner.members]}
    for name, form in FORMS.items():
        if type(planner) is form:
            return {"form": name, **asdict(planner)}  # type: ignore[call-overload]
    raise ConfigError(
        f"{type(planner).__name__} is no form of plan that a file can hold.",
        f"Let the kind's planner be one of lstr.plans: {', '.join(form.__name__ for form in FORMS.values())}.",
    )


def from_dict(entry: Any) -> Planner:
    """A planner from its JSON. Raises ConfigError for anything else."""
    try:
        values = msgspec.convert(entry, dict[str, Any])
        form = values.pop("form")
        if form == JOINED:
            members = msgspec.convert(values["members"], list[dict[str, Any]])
            if not 0 < len(members) <= MOST_MEMBERS or any(member.get("form") == JOINED for member in members):
                raise ValueError("members of members")
            return Joined(tuple(map(from_dict, members)))
        planner = msgspec.convert(values, FORMS[form])
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{brief(entry)} is no plan of a model.", AGAIN) from error
    planner.check()
    return planner
