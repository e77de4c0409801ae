"""How a job says how far it is."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called as (video id, chunks done, chunks in all)."""
