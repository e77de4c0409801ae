"""A teacher: a model of the same kind that sees some of the future, and whose scores another learns from.

After Zhao et al., Privileged Knowledge Distillation for Online Action Detection (arXiv 2011.09158), of which no code
was found: the details are ours. A teacher is the same network, read late: its window is some chunks longer, and what it
says at its newest chunk is about the chunk so many before, which it has seen with what came after. Trained first, it
scores the training videos once; the model then learns from these scores beside the labels. Nothing of the teacher is
left in the checkpoint: the model takes what its kind takes, and costs what its kind costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lstr.batch import predict_ahead, shared_constants
from lstr.checkpoints import checkpoint
from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.kinds import usable
from lstr.pipelines.features.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import Ranks


@dataclass(frozen=True)
class Teacher:
    """The teacher of a run: what it is, how it is trained, and where it is kept."""

    delay: int
    """Chunks of the future that it sees"""
    model: WindowConfig
    config: TrainConfig
    folder: Path
    """The folder of its run, inside that of the model"""

    def scores(self, videos: Sequence[LabelledVideo], device: str, ranks: Ranks) -> list[Tensor]:
        """What it says of each chunk of videos, probabilities (L, C), zeros where the video ends too soon for it.

        Computed by the first process once it is trained, and kept in its folder. Its checkpoint is then removed: taken
        for a model of its kind, it would be late.
        """
        path, trained = self.folder / "scores.pt", self.folder / "checkpoint.pt"
        if ranks.first and not path.exists():
            model = checkpoint.load(trained).model.to(device)
            constants = shared_constants(model)
            late = [predict_ahead(model, video.features[:], constants=constants)[:, 0] for video in videos]
            checkpoint.write_atomically(path, {"scores": [in_time(scores, self.delay) for scores in late]})
        if ranks.first:
            trained.unlink(missing_ok=True)
        ranks.wait()
        return checkpoint.read(path)["scores"]


def teacher_of(model: WindowConfig, config: TrainConfig, folder: Path) -> Teacher | None:
    """The teacher of a run in a folder; None where it has none."""
    if not config.teacher:
        return None
    plain = TrainConfig()
    own = {name: getattr(plain, name) for name in ("teacher", "teacher_weight", "temperature")}
    longer = model.replace(work_length=model.work_length + config.teacher, anticipation=0)
    alone = config.replace(**own, eval_every=0, patience=0)
    return Teacher(config.teacher, longer, alone, folder / f"teacher-{config.teacher}")


def begun(folder: Path) -> bool:
    """Whether a run in a folder was stopped while a teacher was trained."""
    return not (folder / "resume.pt").exists() and any(folder.glob("teacher-*/resume.pt"))


def in_time(late: Tensor, delay: int) -> Tensor:
    """Scores (L, C) of each chunk itself, of those (L, C) that come `delay` chunks later; zeros at the end."""
    scores = late.new_zeros(late.shape)
    known = max(0, len(late) - delay)
    scores[:known] = late[len(late) - known :]
    return scores


def check_teacher(model: WindowConfig, config: TrainConfig, longest: int) -> None:
    """Raise ConfigError for a kind that can have no teacher, and for one that sees more than the longest video has.

    longest: chunks.
    """
    if not config.teacher:
        return
    if not model.uses.teacher:
        able = ", ".join(name for name, kind in usable().items() if kind.uses.teacher)
        raise ConfigError(
            f"train.teacher is {config.teacher}, and kind {model.kind} has no scores of each chunk in training.",
            f"Leave train.teacher 0, or use one of the kinds {able}.",
        )
    if config.teacher >= longest:
        raise ConfigError(
            f"train.teacher is {config.teacher}, and the longest training video has {longest} chunks.",
            "Give fewer chunks, such as --set train.teacher=8.",
        )
