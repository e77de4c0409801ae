"""`lstr info`: what a video, feature folder, checkpoint or timeline holds."""

import click

from lstr_cli.options import model_settings, set_option


@click.command("info")
@click.argument("path", metavar="PATH")
@set_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(path, settings, as_json):
    """Describe a video, a feature folder, a checkpoint or a timeline.

    \b
    Examples:
      lstr info game.mp4
      lstr info features
      lstr info run/checkpoint.pt --json
    """
    from lstr_cli import console
    from pipelines.info import describe

    described = describe(path, model_settings(settings))
    if as_json:
        console.show_json(described)
    else:
        rows = [(key, _cell(value)) for key, value in described.items()]
        console.show_table(f"{path}: {described['kind']}", ("entry", "value"), rows)


def _cell(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value[:12])) + (f" … ({len(value)})" if len(value) > 12 else "")
    return f"{value:.4g}" if isinstance(value, float) else str(value)
