"""`lstr doctor`: what this machine has, and what is missing."""

import sys

import click

from lstr_cli import console
from lstr_cli.options import Command, Report, options

MARKS = {True: "ok", False: "MISSING", None: "–"}


@click.command("doctor", cls=Command)
@options(Report)
def command(as_json):
    """Check versions, decoders, optical flow, networks, GPU and weights; leaves with 1 when something is missing.

    A dash marks what is not there and need not be, such as a GPU.

    \b
    Examples:
      lstr doctor
      lstr doctor --json
    """
    from lstr.pipelines.doctor import examine

    findings = examine()
    if as_json:
        console.show_json([vars(finding) for finding in findings])
    else:
        rows = [(MARKS[f.ok], f.what, f.found) for f in findings]
        console.show_table("lstr doctor", ("", "what", "found"), rows)
        for finding in findings:
            if finding.hint:
                console.say(f"hint: {finding.what}: {finding.hint}")
    if any(finding.ok is False for finding in findings):
        sys.exit(1)
