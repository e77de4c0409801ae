"""An exported model file: the step of its model and its networks as graphs, which run without torch."""

from typing import Any, cast

from lstr.exported_description import ExportedConfig, StepDescription
from lstr.exported_streaming import open_step
from lstr.loaded_checkpoint import FORMAT, Checkpoint
from lstr.pipelines.model_files.model_file import ModelFile, refusals

# What the graph of the step is called; those of networks are called as their streams.
STEP = "lstr"


def load_exported(model: ModelFile) -> Checkpoint:
    """An exported model ready to run, as a checkpoint that has no model of torch.

    Raises CheckpointError where it is damaged or unsafe, LstrError where ONNX Runtime is not installed.
    """
    about = model.about["checkpoint"]
    with refusals(model.path):
        step = StepDescription.from_dict((model.exported or {})["step"])
        config = ExportedConfig.of(step, str(model.about["config"].get("kind", "lstr")))
        return Checkpoint(
            model=cast(Any, None),
            config=config,
            classes=model.classes,
            recipe=model.about["recipe"],
            metrics=about["metrics"],
            extra=model.extra,
            calibration={},
            versions=about["versions"],
            format=FORMAT,
            path=model.path,
            assumed={},
            exported=open_step(step, model.graph(STEP)),
            about=model.about,
        )
