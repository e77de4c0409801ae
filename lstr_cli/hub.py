"""Model files that a command line names on the Hugging Face Hub: fetched before the command begins."""

import sys
from pathlib import Path
from typing import Any

import click

from lstr.extractors.addresses import displayed


def fetched(value: Any) -> Any:
    """A value of a command line, or several, in which each address on the Hub is the path of what it names.

    An address may stand alone or behind a stream, as in rgb=hf://OWNER/REPOSITORY/FILE.lstr; all else is as it was.
    Raises CheckpointError.
    """
    if isinstance(value, dict):
        return {name: fetched(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return tuple(map(fetched, value))
    if not isinstance(value, str | Path) or "hf:/" not in str(value):
        return value
    from lstr.pipelines.model_files.hub import local_model
    from lstr.pipelines.model_files.hub_address import hub_file, is_hub_address

    stream, equals, address = "", "", str(value)
    if not is_hub_address(address):
        stream, equals, address = address.partition("=")
    if not is_hub_address(address):
        return value
    if sys.stderr.isatty():  # without a network the Hub is tried for a while
        click.echo(displayed(f"looking for {address} on the Hub …"), err=True)
    path = local_model(address)
    if origin := hub_file(path):
        click.echo(f"model: {origin.address} (SHA-256 {origin.sha256})", err=True)
    return type(value)(f"{stream}{equals}{path}")
