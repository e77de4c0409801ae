"""The lowest version of each package that setup.cfg allows, as constraints for pip: `make test-oldest`."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# packages of users; tests run with the latest pytest and ruff
EXTRAS = ("learn", "onnxruntime", "ray")


def lower_bounds() -> dict[str, str]:
    """Return the version after `>=`, which must come first, of each requirement."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lists = [settings["options"]["install_requires"], *(settings["options.extras_require"][name] for name in EXTRAS)]
    return dict(re.findall(r"^([\w.-]+)>=([\w.]+)", "\n".join(lists), re.MULTILINE))


if __name__ == "__main__":
    print(*(f"{name}=={version}" for name, version in lower_bounds().items()), sep="\n")
