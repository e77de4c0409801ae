"""How the documentation is built: `make docs`. Nothing is fetched from the network."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import click
import docstrings
import generated

import lstr
from lstr_cli.main import cli

project = "lstr"
author = "the lstr authors"
version = release = lstr.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_generated/presets.md", "_generated/models.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"lstr {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
smartquotes = False  # two hyphens are an option of a command
html_theme_options = {"sidebar_hide_name": False}

default_role = "code"
# every module is imported, and these two need what not every installation has: an extra, and a torch for GPUs
autodoc_mock_imports = [name for name in ("triton",) if not find_spec(name)]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": True}
# every name in a page must exist; a type in a signature (Tensor, NDArray …) is not a link here
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
# sphinx-click takes the commands from here; the program itself imports each when it is called
cli.commands = {name: cli.get_command(click.Context(cli), name) for name in cli.commands}
suppress_warnings = ["ref.python"]  # two classes may share a name in different modules


def setup(app) -> None:
    """Write the generated pages before the sources are read, and clean docstrings and help as they come."""
    app.connect("builder-inited", lambda app: generated.write(Path(app.srcdir) / "_generated"))
    app.connect("autodoc-process-docstring", docstrings.clean_docstring)
    app.connect("autodoc-process-signature", docstrings.clean_signature)
    for part in ("description", "options", "arguments", "epilog"):
        app.connect(f"sphinx-click-process-{part}", docstrings.clean_help)
