"""What tvl1.c offers to Python."""

import numpy as np
from numpy.typing import NDArray

def variants() -> tuple[str, ...]: ...
def workspace_size(w: int, h: int) -> int: ...
def solve_scale(
    i0: NDArray[np.float32],
    i1: NDArray[np.float32],
    u1: NDArray[np.float32],
    u2: NDArray[np.float32],
    workspace: NDArray[np.uint8],
    w: int,
    h: int,
    variant: int,
) -> None: ...
