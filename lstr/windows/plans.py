"""Plans: the place in time of the next chunk of each of B streams, as arrays by name.

The arrays follow from the number of chunks that each stream has seen, so that `Model.step` is arithmetic on tensors
alone. A planner makes them. It is a struct of numbers, so an exported file can hold it. Needs numpy, not torch.

- A bool array says where something has to be done. If it is False everywhere it may be missing, which costs less.
- `NAME.…`, each (B, ...), are about the streams where the bool array NAME (B,) is true, and harmless for the others.
  They may be cut to those streams (NAME is then missing), and are missing without such a stream.

Rows count through the rings of all streams, one ring after the other.
"""

from typing import Annotated, Any, Literal, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from lstr.config import Size, SizeOrZero
from lstr.errors import ConfigError
from lstr.windows import indices as index
from lstr.windows.indices import Indices, Lengths

Plan = dict[str, NDArray[Any]]

# The streams whose long memory has changed and has to be compressed again, the most expensive part of a step.
CHANGES = "changes"


def needed(plan: Plan) -> Plan:
    """Return the arrays of a plan that have an effect: the least work, in shapes that differ from chunk to chunk."""
    groups = {name.partition(".")[0] for name in plan if "." in name}
    kept = {}
    for name, values in plan.items():
        group, _, rest = name.partition(".")
        if rest:
            values = values[plan[group]]
        if name not in groups and len(values) and (values.dtype != np.bool_ or values.any()):
            kept[name] = values
    return kept


def of_two_shapes(plan: Plan) -> Plan:
    """Return the plan, without the arrays for long memories if none has changed: for captured or exported steps."""
    if CHANGES not in plan or plan[CHANGES].any():
        return plan
    # in the plan of several models the number of the model comes before the name of the group
    return {n: values for n, values in plan.items() if n.partition(".")[0].rpartition("/")[2] != CHANGES}


class Planner(msgspec.Struct, frozen=True, tag_field="form", tag=str.lower):
    """Makes plans. Each subclass is a form that files know by its lower-case name."""

    def __call__(self, chunks: Indices) -> Plan:
        """Return the plan of the next chunk of streams that have seen `chunks` (B,); a stream at 0 starts over.

        The shapes of the arrays follow from B alone.
        """
        return self.plan(chunks, np.arange(len(chunks)))

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        """Return the plan of the next chunk of streams that have seen `chunks` (B,), with the rings `streams` (B,)."""
        raise NotImplementedError

    @classmethod
    def of(cls, config: Any) -> Self:
        """Return the planner with the numbers of a configuration, by name; defaults where it has none."""
        names = cls.__struct_fields__
        return cls(**{name: getattr(config, name) for name in names if hasattr(config, name)})


class States(Planner, frozen=True):
    """Plan of a state that never ends: `fresh` (B,) bool, streams that start."""

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        return {"fresh": chunks == 0}


class Runs(Planner, frozen=True):
    """Plan of `runs` runs that start one after the other, and start over after `work_length` chunks.

    `fresh` (B, R) bool, runs that start; `waiting` (B, R) bool, runs that have not started yet; `unmixed` (B,) bool,
    streams where all runs are mixed from scratch.
    """

    work_length: Size
    runs: Size

    @property
    def beginnings(self) -> Indices:
        """First chunk of each run (R,)."""
        return np.arange(self.runs) * self.work_length // self.runs

    def active(self, chunks: Indices) -> NDArray[np.bool_]:
        """Return which runs (B, R) have started at chunks (B,)."""
        return chunks[:, None] >= self.beginnings

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        waiting = ~self.active(chunks)
        place = (chunks[:, None] - self.beginnings) % self.work_length  # (B, R) chunks since the run started
        return {"fresh": (place == 0) | waiting, "waiting": waiting, "unmixed": chunks % self.work_length == 0}


class Slots(Planner, frozen=True):
    """Plan of a window whose chunks move up one slot once it is full.

    `fresh` (B,) bool, streams that start; `full` (B,) bool, streams that drop their oldest chunk; `newest` (B,), slot
    of the newest chunk.
    """

    work_length: Size

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        W = self.work_length
        return {"fresh": chunks == 0, "full": chunks >= W, "newest": np.minimum(chunks, W - 1)}


class Ring(Planner, frozen=True):
    """Plan of a window in a ring: `fresh` (B,) bool, `row` (B,) of the newest chunk, `rows` (B * W,) of all chunks.

    If `convolved`, also `settled` (B,), the row of the chunk two before the newest, and `between`, the rows of all
    chunks before it except the first.
    """

    work_length: Size
    convolved: bool = False

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        W = self.work_length
        rows = streams[:, None] * W + (chunks[:, None] + 1 + np.arange(W)) % W  # (B, W) oldest first
        plan = {"fresh": chunks == 0, "row": rows[:, -1], "rows": rows.ravel()}
        return plan | ({"settled": rows[:, -3], "between": rows[:, 1:-3].ravel()} if self.convolved else {})


class Memories(Planner, frozen=True):
    """Lengths of the forms with a long memory; `lstr.windows.indices` accepts it as a configuration."""

    work_length: Size
    long_length: SizeOrZero
    long_stride: Size
    grid: Literal["fixed", "sliding", "anchored"]

    def __post_init__(self) -> None:
        if self.long_length % self.long_stride:
            raise ValueError(f"long_stride {self.long_stride} does not divide long_length {self.long_length}")

    @property
    def n_long(self) -> int:
        """Slots of the long memory."""
        return self.long_length // self.long_stride


class Compressed(Memories, frozen=True):
    """Plan of LSTR and TeSTra, which compress a long memory again when it changes.

    - `work_row` (B,) and `work_rows` (B * (W + anticipation),): the work memory by slot, then a row of zeros for each
      token of the future
    - `absent` (B, W) bool, work slots without a chunk
    - `stores` (B,) bool, streams whose long memory takes this chunk: `stores.streams` (B,), `stores.row` (B,)
    - `changes` (B,) bool, streams whose long memory changes: `changes.streams` (B,), then, each (B, n_long),
      `changes.held`, rows of the stream's own ring, the spare row for a hidden slot, `changes.hidden` bool, and, if
      positions are distances, `changes.positions`, rows of the position table
    - for a GRU `waiting_row` (B,), `leaving_row` (B,), `leaving` (B,) bool, a chunk becomes older than both memories,
      and `fresh` (B,) bool, the first chunk of the stream
    """

    anticipation: SizeOrZero
    positions: str
    gru: bool

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        W, last = self.work_length, np.maximum(chunks - 1, 0)
        work, present = index.work_indices(chunks, self)  # (B, W)
        slots = np.pad(work % W, ((0, 0), (0, self.anticipation)), constant_values=W)
        plan: Plan = {
            "work_row": streams * (W + 1) + chunks % W,
            "work_rows": (streams[:, None] * (W + 1) + slots).ravel(),
            "absent": ~present,
        }
        if self.n_long:
            rows, apart = index.long_rows(self), index.spacing(self)  # and a spare row after those
            stores = chunks % apart == 0
            row = np.where(stores, chunks // apart % rows, rows)
            plan |= {"stores": stores, "stores.streams": streams, "stores.row": streams * (rows + 1) + row}
            long, visible = index.long_indices(chunks, self)  # (B, n_long)
            changes = (chunks == 0) | (long != index.long_indices(last, self)[0]).any(axis=1)
            if self.positions == "distance":
                positions = index.long_distances(chunks, self)
                changes |= (positions != index.long_distances(last, self)).any(axis=1)
                plan[f"{CHANGES}.positions"] = positions
            plan |= {
                CHANGES: changes,
                f"{CHANGES}.streams": streams,
                f"{CHANGES}.held": np.where(visible, long // apart % rows, rows),
                f"{CHANGES}.hidden": ~visible,
            }
        if self.gru:
            waiting, older = self.long_length + W + 1, index.older_ends(chunks, self)
            plan |= {
                "waiting_row": streams * waiting + chunks % waiting,
                "leaving_row": streams * waiting + np.maximum(older - 1, 0) % waiting,
                "leaving": (older > index.older_ends(last, self)) & (chunks > 0),
                "fresh": chunks == 0,
            }
        return plan


class Generated(Memories, frozen=True):
    """Plan of CMeRT and MAT, by the names of `Compressed`; but `changes.rows` are of the rings of all streams."""

    context: SizeOrZero

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        ring, rows, apart = self.context + self.work_length, index.long_rows(self), index.spacing(self)
        slots, present = short_memory(chunks, self)
        long, visible = index.long_indices(chunks, self)  # (B, n_long)
        held_before, visible_before = index.long_indices(np.maximum(chunks - 1, 0), self)
        changed = np.where(visible, long, -1) != np.where(visible_before, held_before, -1)
        return {
            "work_row": streams * ring + chunks % ring,
            "work_rows": (streams[:, None] * ring + slots % ring).ravel(),
            "absent": ~present,
            "stores": chunks % apart == 0,
            "stores.streams": streams,
            "stores.row": streams * rows + chunks // apart % rows,
            CHANGES: (chunks == 0) | changed.any(axis=1),
            f"{CHANGES}.streams": streams,
            f"{CHANGES}.rows": streams[:, None] * rows + long // apart % rows,
            f"{CHANGES}.hidden": ~visible,
        }


def short_memory(ends: Indices, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks (B, context + work_length) of the windows that end at `ends`, and which work slots are present."""
    work, present = index.work_indices(ends, config)
    return np.concatenate([index.context_indices(ends, config), work], axis=1), present


class Bank(Memories, frozen=True):
    """Plan of a feature bank: `fresh` (B,) bool, and `hidden` (B, R) bool, rows to skip.

    `row` and `stores.row` (B,) are the rows of the newest chunk in the ring of the work memory and of the long memory.
    """

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        W, apart, long_rows = self.work_length, index.spacing(self), index.long_rows(self)
        first = streams * (W + long_rows)
        held, mask = bank_chunks(chunks, self)
        rows = held[:, self.n_long :] % W
        if self.n_long:
            rows = np.concatenate([W + held[:, : self.n_long] // apart % long_rows, rows], axis=1)
        hidden = np.ones((len(chunks), W + long_rows), dtype=np.bool_)
        stream, slot = np.nonzero(mask)
        hidden[stream, rows[stream, slot]] = False
        plan = {"fresh": chunks == 0, "row": first + chunks % W, "hidden": hidden}
        if self.n_long:
            stores = chunks % apart == 0
            # a stream that stores nothing writes the row of its work memory again, which is harmless
            long_row = np.where(stores, first + W + chunks // apart % long_rows, plan["row"])
            plan |= {"stores": stores, "stores.streams": streams, "stores.row": long_row}
        return plan


def bank_chunks(ends: Indices, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks of the bank at ends (B,), long before work memory, and which exist: both (B, n_long + W)."""
    long, long_mask = index.long_indices(ends, config)
    work, work_mask = index.work_indices(ends, config)
    return np.concatenate([long, work], axis=1), np.concatenate([long_mask, work_mask], axis=1)


class History(Memories, frozen=True):
    """Plan of GateHUB: `fresh` (B,) bool, and `missing` (B, n_long + W) bool, slots without a chunk.

    `row` (B,) and `rows` (B * (n_long + W),) are the rows of the newest chunk and of the history, `work_row` and
    `work_rows` the same in rings that are as long as the work memory.
    """

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        W = self.work_length
        held, exist = history_chunks(chunks, self)  # (B, n_long + W)
        plan = {"fresh": chunks == 0, "missing": ~exist}
        for name, ring, slots in (("", W + self.long_length, held), ("work_", W, held[:, -W:])):
            plan[f"{name}row"] = streams * ring + chunks % ring
            plan[f"{name}rows"] = (streams[:, None] * ring + slots % ring).ravel()
        return plan


def history_chunks(ends: Indices, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks of the history at ends (B,), oldest first, and which exist: both (B, n_long + work_length)."""
    long, visible = index.long_indices(ends, config)
    work = ends[:, None] - config.work_length + 1 + np.arange(config.work_length)  # (B, W)
    visible = visible & (index.work_start(ends, config) > 0)[:, None]
    exist = np.concatenate([visible, work >= 0], axis=1)
    return np.where(exist, np.concatenate([long, work], axis=1), 0), exist


Form = States | Runs | Slots | Ring | Compressed | Generated | Bank | History


class Joined(Planner, frozen=True):
    """Plan of several models: the arrays of each as NUMBER/NAME, and `CHANGES` where that of any model is true."""

    members: Annotated[tuple[Form, ...], msgspec.Meta(min_length=1, max_length=1000)]

    def plan(self, chunks: Indices, streams: Indices) -> Plan:
        plans = (member.plan(chunks, streams) for member in self.members)
        plan = {f"{at}/{name}": values for at, own in enumerate(plans) for name, values in own.items()}
        changes = [values for name, values in plan.items() if name.endswith(f"/{CHANGES}")]
        return plan | ({CHANGES: np.logical_or.reduce(changes)} if changes else {})


def check_known(planner: Planner) -> None:
    """Raise ConfigError for a form of plans that files do not know."""
    forms = get_args(Form | Joined)
    if type(planner) not in forms:
        known = ", ".join(form.__name__ for form in forms)
        name = type(planner).__name__
        raise ConfigError(f"A file cannot hold the plan {name}.", f"use one of lstr.windows.plans: {known}.")
