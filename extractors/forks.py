"""What a fork of a process cannot do: threads of libraries do not come along, and what waits for them waits forever."""

import os

from lstr.extractors.errors import ExtractorError

_computing: set[int] = set()  # the process that has run networks, also as its forks inherit it


def check_not_forked() -> None:
    """Remember that this process runs networks. Raises ExtractorError where the process that it was forked from did."""
    if not _computing:
        _computing.add(os.getpid())
    elif os.getpid() not in _computing:
        raise ExtractorError(
            "This process was forked from one that has run feature networks, whose threads did not come along.",
            'start processes with `multiprocessing.get_context("spawn")`, or fork before the first detection.',
        )
