"""Learning curves of a run as a picture."""

from pathlib import Path

from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.reports.palette import colour_of
from lstr.pipelines.training.log import read_log


def draw_curves(run: Path) -> Path:
    """Write RUN/curves.png from RUN/metrics.jsonl: loss, learning rate, gradient norm, and mAP if it was measured."""
    from matplotlib.figure import Figure  # half a second to import, and only needed at the end

    log = read_log(run / "metrics.jsonl")
    steps = [line["step"] for line in log]
    evaluated = [(line["step"], line["evaluation"]) for line in log if "evaluation" in line]
    panels = [("loss", "training loss"), ("lr", "learning rate"), ("grad_norm", "gradient norm")]
    figure = Figure(figsize=(4 * (len(panels) + bool(evaluated)), 3), layout="constrained")
    axes = figure.subplots(1, len(panels) + bool(evaluated))
    marker = "." if len(log) < 30 else ""
    for axis, (name, title) in zip(axes, panels, strict=False):
        axis.plot(steps, [line[name] for line in log], marker=marker, color=colour_of(0))
        axis.set(title=title, xlabel="step")
    if evaluated:
        for place, name in enumerate(("mAP", "mcAP")):
            values = [evaluation[name] for _, evaluation in evaluated]
            axes[-1].plot([step for step, _ in evaluated], values, marker=".", label=name, color=colour_of(place))
        axes[-1].set(title="validation", xlabel="step", ylim=(0, 1.02))
        axes[-1].legend()
    path = run / "curves.png"
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    return path
