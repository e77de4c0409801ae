"""Long Short-Term Transformer for online action detection, from video to a causal timeline of actions.

    import lstr
    for decision in lstr.detect("game.mp4", "fall.lstr"):
        print(decision.time, decision.label, decision.score)

This is the public face. A name is imported when it is first used, so that `import lstr` loads nothing.
"""

from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from extractors.errors import ExtractorError as ExtractorError
    from extractors.video.live_reader import LiveOptions as LiveOptions
    from lstr.checkpoints.checkpoint import Checkpoint as Checkpoint
    from lstr.errors import LstrError as LstrError
    from lstr.labels.segment import Segment as Segment
    from lstr.streaming import create as create
    from lstr.streaming import step as step
    from lstr.timeline import Thresholds as Thresholds
    from lstr.timeline import Timeline as Timeline
    from pipelines.annotations.label_file import read_label_file as read_labels  # noqa: F401
    from pipelines.calls import convert as convert
    from pipelines.calls import evaluate as evaluate
    from pipelines.calls import extract as extract
    from pipelines.calls import finetune as finetune
    from pipelines.calls import learn as learn
    from pipelines.calls import train as train
    from pipelines.detection.decision import Decision as Decision
    from pipelines.detection.detect import detect as detect
    from pipelines.detection.sources import Limits as Limits
    from pipelines.detection.sources import NetworkOptions as NetworkOptions
    from pipelines.model_files.opening import load as load

_NAMES = {
    "Checkpoint": ("lstr.checkpoints.checkpoint", "Checkpoint"),
    "Decision": ("pipelines.detection.decision", "Decision"),
    "ExtractorError": ("extractors.errors", "ExtractorError"),
    "Limits": ("pipelines.detection.sources", "Limits"),
    "LiveOptions": ("extractors.video.live_reader", "LiveOptions"),
    "LstrError": ("lstr.errors", "LstrError"),
    "NetworkOptions": ("pipelines.detection.sources", "NetworkOptions"),
    "Segment": ("lstr.labels.segment", "Segment"),
    "Thresholds": ("lstr.timeline", "Thresholds"),
    "Timeline": ("lstr.timeline", "Timeline"),
    "convert": ("pipelines.calls", "convert"),
    "create": ("lstr.streaming", "create"),
    "detect": ("pipelines.detection.detect", "detect"),
    "evaluate": ("pipelines.calls", "evaluate"),
    "extract": ("pipelines.calls", "extract"),
    "finetune": ("pipelines.calls", "finetune"),
    "learn": ("pipelines.calls", "learn"),
    "load": ("pipelines.model_files.opening", "load"),
    "read_labels": ("pipelines.annotations.label_file", "read_label_file"),
    "step": ("lstr.streaming", "step"),
    "train": ("pipelines.calls", "train"),
}
"""Where each name is from: module, and attribute."""

__all__ = ["__version__", *_NAMES]

if not TYPE_CHECKING:  # where they are imported above, so that a wrong name is an error there

    def __getattr__(name: str) -> Any:
        if name not in _NAMES:
            raise AttributeError(f"module 'lstr' has no attribute {name!r}")
        from lstr.hints import for_python

        module, attribute = _NAMES[name]
        value = getattr(import_module(module), attribute)
        if isinstance(value, FunctionType):
            value = for_python(value, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
