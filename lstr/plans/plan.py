"""A plan: what the next chunk of each of B streams needs to know of its place in time, as arrays by name.

The numbers follow from how many chunks each stream has seen. `Model.step` then is arithmetic on tensors alone. Of the
arrays

- a bool one tells where something is to be done; where that is so nowhere it may be missing, which costs less.
- `NAME.…`, each (B, ...), are about the streams where the bool array NAME (B,) is true, and do no harm to the others.
  They may be cut to those streams (NAME is then missing), and missing where there are none.

Rows count through the rings of all streams, one ring after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Plan = dict[str, NDArray[Any]]

CHANGES = "changes"
"""The streams whose long memory is not what it was, and has to be summed up anew: what costs most of a step."""


def needed(plan: Plan) -> Plan:
    """What of a plan does anything: the least work, in shapes that differ from chunk to chunk."""
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
    """The plan, without what sums up long memories where none is to be: what a captured or exported step needs."""
    if CHANGES not in plan or plan[CHANGES].any():
        return plan
    # of a model of several each group has its member's number before it
    return {n: values for n, values in plan.items() if n.partition(".")[0].rpartition("/")[2] != CHANGES}


def joined(plans: Iterable[Plan]) -> Plan:
    """The plan of several models that step together: each one's arrays as NUMBER/NAME, and whether any has CHANGES."""
    plan = {f"{at}/{name}": values for at, own in enumerate(plans) for name, values in own.items()}
    changes = [values for name, values in plan.items() if name.endswith(f"/{CHANGES}")]
    return plan | ({CHANGES: np.logical_or.reduce(changes)} if changes else {})
