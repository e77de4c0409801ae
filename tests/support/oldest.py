"""The oldest version of each package that setup.cfg allows, as constraints for pip: `make test-oldest` installs them.

A lower bound has to be a release that exists, and to stand first: pip refuses what does not.
"""

from __future__ import annotations

import configparser
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# what users run; of what tests alone need, such as pytest and ruff, the newest will do
EXTRAS = ("learn", "onnxruntime", "ray")


def lower_bounds() -> dict[str, str]:
    """The version of each requirement after its `>=`."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lists = [settings["options"]["install_requires"], *(settings["options.extras_require"][name] for name in EXTRAS)]
    return dict(re.findall(r"^([\w.-]+)>=([\w.]+)", "\n".join(lists), re.MULTILINE))


def installed_versions() -> Iterator[str]:
    """What of that is installed here, with Python: one word or two each."""
    yield f"python {platform.python_version()}"
    for name in lower_bounds():
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in lower_bounds().items()), sep="\n")
