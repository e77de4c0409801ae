"""What learning reports while it runs, beside the events of every job in `lstr.pipelines.progress`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lstr.metrics.actions import sentence
from lstr.pipelines.learning.plan import LearnPlan, PlannedStep
from lstr.pipelines.progress import Failed


@dataclass(frozen=True)
class Planned:
    """What will be done; `begun` where a learning that was stopped goes on."""

    plan: LearnPlan
    model: Path
    workspace: Path
    begun: bool = False


@dataclass(frozen=True)
class Doing:
    """So much of one step is done, and how long all that is left takes, in seconds."""

    step: PlannedStep
    number: int
    steps: int
    done: int
    total: int
    left: float


@dataclass(frozen=True)
class Learnt:
    """What came of it."""

    model: Path
    about: Mapping[str, Any]
    """What the model file states about itself: `metrics` and `split` among it"""
    report: Path
    failed: Sequence[Failed] = field(default_factory=tuple)
    """Videos that were left out because they cannot be read"""

    def lines(self) -> list[str]:
        """What a person wants to know of the result, in two sentences."""
        metrics, split = self.about["metrics"], self.about["split"]
        prior = f"; a guess by time alone has {metrics['time_prior']['mAP']:.2f}" if "time_prior" in metrics else ""
        return [
            sentence(metrics["events"]),
            f"{split[0].upper()}{split[1:]}; per-frame mAP {metrics['lstr']['mAP']:.2f}{prior}",
        ]
