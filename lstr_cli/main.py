"""The `lstr` command: finds the sub-command, and turns every failure into one sentence, a hint and an exit code."""

import importlib
import os
import sys
import traceback
from contextlib import suppress

import click

from lstr import __version__
from lstr.files.names import displayed
from lstr_cli.interruption import HINT, Interruptions
from lstr_cli.options import Group
from lstr_cli.standard_streams import occupy, refusal

# What `lstr --help` lists, in the order in which a new user meets it
GROUPS = {
    "Start": {
        "demo": "Draw a small set of labelled videos, learn from it, and detect.",
        "label": "Label videos in the browser.",
        "learn": "Learn from labelled videos; write one model file.",
        "detect": "Detect actions in videos and camera streams, without looking ahead.",
        "watch": "Watch cameras for weeks, and send notifications.",
        "events": "List the events that `lstr watch` recorded.",
        "labels": "Check, convert, count and compare label files.",
        "info": "Show the content of a video, feature folder, model file, checkpoint or timeline.",
        "doctor": "Show what this machine has, and what is missing.",
    },
    "Step by step": {
        "finetune": "Train the feature networks on labelled videos.",
        "extract": "Extract two-stream features from videos.",
        "train": "Train a model on features and labels.",
        "evaluate": "Measure a model: per-frame mAP next to two baselines.",
        "pack": "Pack a run and its networks into one model file.",
        "unpack": "Unpack a model file into its checkpoint and networks.",
        "quantise": "Write a faster model file whose networks compute in int8.",
        "export": "Write a model file that runs without torch.",
    },
    "Research": {
        "models": "List every kind of model: paper, cost and published numbers.",
        "weights": "List, fetch and check published network weights.",
        "bench": "Measure how fast this machine detects.",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
UNPRINTED = "send it to a file or a terminal that has room; what the command wrote elsewhere is whole."
MORE_MEMORY = "close other programs, or raise what this command may have (`ulimit -v`, the limit of the container)."
# In what is raised where a library finds no room to be loaded in.
UNMAPPED = ("failed to map segment", "Cannot allocate memory")
NOT_SMALL = "pip install 'lstr-video[learn]' has all of it; a small install runs what `lstr export` wrote."
DRAWN = "pip install matplotlib: pictures are drawn with it; pages and videos do without it."
# What a small install leaves out, by what is imported of it.
PARTS = {
    "torch": "PyTorch",
    "torchvision": "torchvision",
    "cv2": "OpenCV",
    "scipy": "SciPy",
    "sklearn": "scikit-learn",
    "matplotlib": "Matplotlib",
    "mmengine": "MMEngine",
    "mmaction": "MMAction2",
    "mmcv": "MMCV",
    "tensorboardX": "tensorboardX",
}
WIDEST_HELP = 120  # columns; longer lines are hard to read


class LazyGroup(Group):
    """Imports a command's module only when that command is used, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order a new user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command called `name`, or None."""
        return importlib.import_module(f"lstr_cli.{name}").command if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.group(
    cls=LazyGroup,
    commands=dict.fromkeys(COMMANDS),  # Click suggests their names; get_command imports them
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST_HELP},
)
@click.version_option(__version__, prog_name="lstr")
def cli() -> None:
    """Watch a video and decide, each quarter second and without looking ahead, which action is happening.

    \b
    Examples:
      lstr demo
      lstr learn videos/ labels.csv -o fall.lstr
      lstr detect new.mp4 -m fall.lstr -o timeline
    """


def main() -> None:
    """Run the command and leave with its documented exit code."""
    occupy()
    with Interruptions() as interruptions:
        try:
            os.getcwd()
            code = _run(interruptions)
        except FileNotFoundError:  # what is imported ends in messages of its own there
            code = _fail("The folder that this command was called in has been deleted.", "go to another with `cd`.", 2)
        except KeyboardInterrupt:
            code = _fail(interruptions.sentence, HINT, interruptions.code)
        interruptions.leave_soon(code)
    sys.exit(code)


def _run(interruptions: Interruptions) -> int:
    try:
        code = cli.main(prog_name="lstr", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "lstr"
        code = _fail(error.format_message(), f"`{command} --help` shows how it is used.", error.exit_code)
    except click.ClickException as error:
        code = _fail(error.format_message(), "", error.exit_code)
    except click.Abort:  # what Click makes of Ctrl-C, and of an input that ends at a question
        code = _fail(interruptions.sentence, HINT, interruptions.code)
    except BrokenPipeError:
        refusal(sys.stdout)
        # one signal may end the reader of a pipe and its writer
        code = interruptions.code if interruptions.heard else 0
    except Exception as error:  # the last net: a user sees a traceback only with LSTR_DEBUG
        if os.environ.get("LSTR_DEBUG"):
            click.echo(displayed(traceback.format_exc()), err=True)
        if why := refusal(sys.stdout):
            return _unprinted(why)
        if hasattr(error, "hint") and hasattr(error, "exit_code"):  # the typed errors of lstr and extractors
            code = _fail(str(error), error.hint, error.exit_code)
        else:
            if _lacks_memory(error):
                return _fail("Memory ran out.", MORE_MEMORY, 1)
            if isinstance(error, ModuleNotFoundError) and error.name and (lacked := _lacked(error.name)):
                return _fail(lacked, DRAWN if error.name.startswith("matplotlib") else NOT_SMALL, 2)
            detail = str(error).strip().splitlines()
            sentence = f"{type(error).__name__}: {detail[0] if detail else 'no message'}"
            code = _fail(sentence, "run it again with LSTR_DEBUG=1 and report what it prints.", 1)
    if why := refusal(sys.stdout):
        return _unprinted(why)
    return code or 0


def _unprinted(why: str) -> int:
    return _fail(f"Standard output cannot be written ({why}).", UNPRINTED, 1)


def _lacks_memory(error: Exception) -> bool:
    """Whether memory ran out before a job began, which has words of its own."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in UNMAPPED)


def _lacked(module: str) -> str:
    """A sentence on what is not installed, where a small install leaves it out."""
    part = PARTS.get(module.partition(".")[0])
    return f"This needs {part}, which is not installed." if part else ""


def _fail(sentence: str, hint: str, code: int) -> int:
    with suppress(OSError):  # nobody may be there to read it; the code says it too
        click.echo(displayed(f"error: {sentence}"), err=True)
        if hint:
            click.echo(displayed(f"hint: {hint}"), err=True)
    return code


if __name__ == "__main__":
    main()
