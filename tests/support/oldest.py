"""The oldest version of each package that setup.cfg allows, as constraints for pip: `make test-oldest` installs them.

A lower bound has to be a release that exists, and to stand first: pip refuses what does not.
"""

from __future__ import annotations

import configparser
import re
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


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in lower_bounds().items()), sep="\n")
