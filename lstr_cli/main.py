"""The `lstr` command: finds the sub-command, and turns every failure into one sentence, a hint and an exit code."""

import errno
import importlib
import io
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, TextIO

import click

from lstr import __version__
from lstr.errors import LstrError, install_hint
from lstr.files.names import displayed
from lstr_cli.interruption import Interruptions
from lstr_cli.options import Group

# What `lstr --help` lists, in the order in which a new user meets it: by name, the module and a sentence
GROUPS = {
    "Start": {
        "demo": ("learn", "Draw a small set of labelled videos, learn from it, and detect."),
        "label": ("label", "Label videos in the browser."),
        "learn": ("learn", "Learn from labelled videos; write one model file."),
        "detect": ("detect", "Detect actions in videos and camera streams, without looking ahead."),
        "watch": ("watch", "Watch cameras for weeks, and send notifications."),
        "events": ("watch", "List the events that `lstr watch` recorded."),
        "labels": ("labels", "Check, convert, count and compare label files."),
        "info": ("info", "Show the content of a video, feature folder, model file, checkpoint or timeline."),
        "doctor": ("info", "Show what this machine has, and what is missing."),
    },
    "Step by step": {
        "finetune": ("train", "Train the feature networks on labelled videos."),
        "extract": ("extract", "Extract two-stream features from videos."),
        "train": ("train", "Train a model on features and labels."),
        "evaluate": ("evaluate", "Measure a model: per-frame mAP next to two baselines."),
        "pack": ("model_files", "Pack a run and its networks into one model file."),
        "unpack": ("model_files", "Unpack a model file into its checkpoint and networks."),
        "export": ("model_files", "Write a model file that runs without torch."),
    },
    "Research": {
        "models": ("info", "List every kind of model: paper, cost and published numbers."),
        "weights": ("weights", "List, fetch and check published network weights."),
        "bench": ("bench", "Measure how fast this machine detects."),
    },
}
COMMANDS = {name: module for group in GROUPS.values() for name, (module, _) in group.items()}
UNPRINTED = "redirect it to a disk with free space; other files that the command wrote are complete."
MORE_MEMORY = "close other programs, or raise the memory limit (`ulimit -v`, or that of the container)."
# In errors of the loader when there is no memory for a library.
UNMAPPED = ("failed to map segment", "Cannot allocate memory")
WIDEST_HELP = 120  # columns; longer lines are hard to read


class LazyGroup(Group):
    """Imports a command's module only when that command is used, so that --help answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a new user needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return getattr(importlib.import_module(f"lstr_cli.{COMMANDS[name]}"), name) if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


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
            code = _fail("The working folder has been deleted.", "change to another folder with `cd`.", 2)
        except KeyboardInterrupt:
            code = _fail(*interruptions.describe())
        interruptions.leave_soon(code)
    sys.exit(code)


def _run(interruptions: Interruptions) -> int:
    why = ""  # standard output cannot be written
    try:
        code = cli.main(prog_name="lstr", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)  # of a UsageError
        command = context.command_path if context else "lstr"
        code = _fail(error.format_message(), f"see `{command} --help`.", error.exit_code)
    except click.Abort:  # Click turns Ctrl-C, and an input that ends at a question, into this
        code = _fail(*interruptions.describe())
    except BrokenPipeError:
        refusal(sys.stdout)
        # one signal may end the reader of a pipe and its writer
        code = interruptions.describe()[-1] if interruptions.heard else 0
    except Exception as error:  # the last net: a user sees a traceback only with LSTR_DEBUG
        if os.environ.get("LSTR_DEBUG"):
            click.echo(displayed(traceback.format_exc()), err=True)
        # if standard output cannot be written, for example on a full disk, that is the cause of the other error
        why, detail, code = refusal(sys.stdout), str(error).strip().splitlines(), 1
        if why:
            pass
        elif isinstance(error, LstrError):
            code = _fail(str(error), error.hint, error.exit_code)
        elif interruptions.heard:  # a library turned it into an error: torch.save, within a file
            code = _fail(*interruptions.describe())
        # memory that runs out within a job has its own message; this is before one started
        elif isinstance(error, MemoryError) or any(words in str(error) for words in UNMAPPED):
            code = _fail("Memory ran out.", MORE_MEMORY, 1)
        elif isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("lstr"):
            package = error.name.partition(".")[0]
            learn = f"{install_hint('learn')} (the small installation runs only files of `lstr export`)."
            hint = "pip install matplotlib, which draws figures." if package == "matplotlib" else learn
            code = _fail(f"This command needs the package {package}, which is not installed.", hint, 2)
        elif isinstance(error, OSError) and error.filename and error.errno in (errno.EACCES, errno.ENAMETOOLONG):
            code = _fail(f"{error.filename} cannot be used ({error.strerror}).", "check the path, or name another.", 2)
        else:
            sentence = f"{type(error).__name__}: {detail[0] if detail else 'no message'}"
            code = _fail(sentence, "run it again with LSTR_DEBUG=1 and report its output.", 1)
    if why := why or refusal(sys.stdout):
        return _fail(f"Standard output cannot be written ({why}).", UNPRINTED, 1)
    return code or 0


def _fail(sentence: str, hint: str, code: int) -> int:
    with suppress(OSError):  # standard error may be closed; the code says it too
        click.echo(displayed(f"error: {sentence}\nhint: {hint}"), err=True)
    return code


class StandardStream(io.FileIO):
    """Standard output or error that drops everything after an error; `raises` is true for output."""

    refused: OSError | None = None  # the first error
    was_closed = raises = False

    def write(self, data: Any) -> int:
        """See FileIO. Raises BrokenPipeError if its reader has gone; for output, other errors the first time."""
        try:
            if not self.refused and self.was_closed:
                raise OSError(errno.EBADF, "it is closed")
            if not self.refused:
                return super().write(data)
        except BrokenPipeError as error:
            raise BrokenPipeError("its reader has ended") from error  # by its number Click would exit with 1
        except OSError as error:
            self.refused = error
            if self.raises:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for child processes too
        return memoryview(data).nbytes


def occupy() -> None:
    """Open the null device for closed standard streams, so that no file opened later takes their number.

    Standard output and error become `StandardStream`.
    """
    closed = []
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            closed.append(name)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
            setattr(sys, f"__{name}__", getattr(sys, name))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):
            raw = StandardStream(stream.fileno(), "w", closefd=False)
            raw.was_closed, raw.raises = name in closed, name == "stdout"
            buffer = raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw)
            how = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
            setattr(sys, name, io.TextIOWrapper(buffer, stream.encoding, stream.errors, **how))


def refusal(stream: TextIO) -> str:
    """Return why what was written to a stream cannot leave it, or ""; it is then dropped, also at the very end.

    A reader that has gone, such as `head`, is not a reason.
    """
    raw = getattr(stream.buffer, "raw", stream.buffer) if hasattr(stream, "buffer") else None
    try:
        stream.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            stream.flush()
        if isinstance(error, BrokenPipeError):
            return ""
        return getattr(error, "strerror", None) or str(error)
    refused = raw.refused if isinstance(raw, StandardStream) else None
    return (refused.strerror or str(refused)) if refused else ""


if __name__ == "__main__":
    main()
