"""Long Short-Term Transformer for online action detection, from video to a causal timeline of actions.

    import lstr
    for decision in lstr.detect("game.mp4", "fall.lstr"):
        print(decision.time, decision.label, decision.score)

This is the public face. A name is imported when it is first used, so that `import lstr` loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from lstr.errors import ExtractorError as ExtractorError
    from lstr.errors import LstrError as LstrError
    from lstr.extractors.video.inputs import LiveOptions as LiveOptions
    from lstr.labels.segment import Segment as Segment
    from lstr.loaded_checkpoint import Checkpoint as Checkpoint
    from lstr.pipelines.annotations.label_files import read_label_file as read_labels  # noqa: F401
    from lstr.pipelines.calls import convert as convert
    from lstr.pipelines.calls import evaluate as evaluate
    from lstr.pipelines.calls import extract as extract
    from lstr.pipelines.calls import finetune as finetune
    from lstr.pipelines.calls import learn as learn
    from lstr.pipelines.calls import train as train
    from lstr.pipelines.detection.decision import Decision as Decision
    from lstr.pipelines.detection.detector import Decisions as Decisions
    from lstr.pipelines.detection.detector import Detector as Detector
    from lstr.pipelines.detection.detector import detect as detect
    from lstr.pipelines.detection.detector import load as load
    from lstr.pipelines.detection.options import Limits as Limits
    from lstr.pipelines.detection.options import NetworkOptions as NetworkOptions
    from lstr.streaming import create as create
    from lstr.streaming import step as step
    from lstr.timeline import Thresholds as Thresholds
    from lstr.timeline import Timeline as Timeline

_MODULES = {
    "lstr.errors": ("ExtractorError", "LstrError"),
    "lstr.extractors.video.inputs": ("LiveOptions",),
    "lstr.labels.segment": ("Segment",),
    "lstr.loaded_checkpoint": ("Checkpoint",),
    "lstr.pipelines.calls": ("convert", "evaluate", "extract", "finetune", "learn", "train"),
    "lstr.pipelines.detection.decision": ("Decision",),
    "lstr.pipelines.detection.detector": ("Decisions", "Detector", "detect", "load"),
    "lstr.pipelines.detection.options": ("Limits", "NetworkOptions"),
    "lstr.streaming": ("create", "step"),
    "lstr.timeline": ("Thresholds", "Timeline"),
}
# Module and attribute of each name.
_NAMES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_NAMES["read_labels"] = ("lstr.pipelines.annotations.label_files", "read_label_file")

__all__ = ["__version__", *_NAMES]

if not TYPE_CHECKING:  # where they are imported above, so that a wrong name is an error there

    def __getattr__(name: str) -> Any:
        if name not in _NAMES:
            raise AttributeError(f"module 'lstr' has no attribute {name!r}")
        module, attribute = _NAMES[name]
        value = globals()[name] = getattr(import_module(module), attribute)
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
