"""A lock on a file that the system frees with the process that has it, even after a kill."""

import fcntl
from typing import IO, Any


def lock(file: IO[Any]) -> bool:
    """Lock an open file until it is closed; whether no other process has it.

    On a file system without locks nobody is kept out.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
