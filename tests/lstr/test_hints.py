"""What Python callers and the command line read where an error, a hint or a notice names an argument."""

import ast
import re
import traceback
from pathlib import Path

import pytest

from lstr.errors import ConfigError
from lstr.extractors.errors import WeightsError
from lstr.hints import for_python, in_file, in_python
from lstr_cli.command import in_options
from lstr_cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
SAID = [
    ("as [[weights.rgb=FILE]].", 'as weights={"rgb": FILE}.', "as --weights rgb=FILE."),
    ("use [[algorithm=tvl1]].", 'use algorithm="tvl1".', "use --flow tvl1."),
    ("[[root=DIR]], a folder", "root=DIR, a folder", "--set root=DIR, a folder"),
    ("alone, with [[workers=1]].", "alone, with workers=1.", "alone, with --workers 1."),
    ("give [[settings.lr=0.01]].", 'give settings={"lr": 0.01}.', "give --set lr=0.01."),
    ("[[flow_backend=native]] is", 'flow_backend="native" is', "--set flow_backend=native is"),
    ("another [[output]].", "another output=.", "another -o."),
    ("with [[allow_damaged=true]], or", "with allow_damaged=True, or", "with --allow-damaged, or"),
    ("with [[allow_seen=true]], or", "with allow_seen=True, or", "with --allow-seen, or"),
    ("`[[recipe='/a b/x']]`, or", "`recipe='/a b/x'`, or", "`--recipe '/a b/x'`, or"),
    ("[[config=run/config.json]]", 'config="run/config.json"', "--config run/config.json"),
    ("[[train.accumulate=2]] is", 'settings={"train.accumulate": 2} is', "--set train.accumulate=2 is"),
    ("write [[model.NAME=VALUE]].", 'write settings={"model.NAME": VALUE}.', "write --set model.NAME=VALUE."),
    ("[[recipe.rgb.network=CONFIG]]", "rgb_network=CONFIG", "--set recipe.rgb.network=CONFIG"),
    ("[[init.flow=random]]", 'inits={"flow": "random"}', "--init flow=random"),
    ("give [[calibrate]] a list.", "give calibrate= a list.", "give --calibrate a list."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "python", "command_line"), SAID)
def test_each_face_says_an_argument_in_its_words(text, python, command_line):
    assert in_python(text) == python == in_python(python), "and again changes nothing"
    extract = cli.get_command(None, "extract")
    assert in_options(text, extract) == command_line == in_options(command_line, extract)


@pytest.mark.parametrize(
    "text",
    [
        "`lstr extract --allow-damaged` keeps what precedes it; `ffmpeg -i FILE -c:v libx264 repaired.mp4` repairs it.",
        "torchrun --nproc-per-node 4 …",
        "copy /data/a--b/x-c to another folder.",
        "[[1, 2], [3, 4]] is no list of names, nor is [[this]",
    ],
)
def test_commands_paths_and_what_is_no_mark_stay(text):
    assert in_python(text) == text == in_python(text, "detect") == in_options(text)


def test_a_file_has_no_marks():
    assert (
        in_file("give [[weights.rgb=FILE]], or leave out [[output]].") == "give weights.rgb=FILE, or leave out output."
    )


def test_some_arguments_are_within_another():
    assert in_python("add `[[weights.rgb=PATH]]`.", "detect") == 'add `networks={"rgb": PATH}`.'
    assert in_python("or add [[allow_mismatch=true]].", "detect") == 'or add networks={"allow_mismatch": True}.'
    assert in_python("x ends before [[start=60]].", "detect") == "x ends before limits=Limits(start=60)."
    assert in_python("Add for example [[model.n_heads=8]]", "load") == (
        'Add for example overrides={"n_heads": 8} of lstr.load'
    )


def test_the_command_that_runs_says_its_own_option():
    """The same argument is an option of one command, and a setting or nothing of another."""
    detect, doctor, watch = (cli.get_command(None, name) for name in ("detect", "doctor", "watch"))
    assert in_options("[[algorithm=dis]]", detect) == "--set recipe.flow_algorithm=dis"
    assert in_options("[[checkpoint=FILE]]", detect) == "-m FILE"
    assert in_options("[[checkpoint=FILE]], [[port]], [[flow_backend=native]]", watch) == (
        "`model = FILE`, `[page] port`, flow_backend=native"
    ), "it has a file in place of options"
    assert in_options("[[flow_backend=native]]", doctor) == "--set flow_backend=native"


def test_no_module_below_the_command_line_names_an_option():
    """In what it raises or tells; commands to type into a shell stand in backquotes, or begin with the program."""
    option = re.compile(r"(?<![\w/.`-])--[a-z]|(?<=[ `])-[cfmo](?=[ .,;)`])")
    command = re.compile(r"`(?!-)[^`]*`|\b(?:pip|torchrun|ray|lstr [a-z]+) .*", re.DOTALL)
    found = []
    for path in (path for room in ("lstr", "extractors", "pipelines") for path in (ROOT / room).rglob("*.py")):
        for error in ast.walk(ast.parse(path.read_text())):
            if isinstance(error, ast.Call) and ast.unparse(error.func).endswith(("Error", "Notice", "Failure")):
                for text in ast.walk(error):
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        if option.search(command.sub("", text.value)):
                            found.append(f"{path.relative_to(ROOT)}:{text.lineno}: {text.value}")
    assert found == []


def raised(call) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: B017 - which it is, the callers assert
        call()
    return caught.value


def test_a_typed_error_leaves_with_its_hint_once():
    def open_it(path):
        raise WeightsError(f"{path} needs [[weights]].", "add `[[weights=FILE]]`.")

    def twice():
        for_python(open_it, "open_it")("x")

    error = raised(for_python(twice, "twice"))
    assert type(error) is WeightsError and error.exit_code == 4
    assert str(error) == "x needs weights=." and error.hint == "add `weights=FILE`."
    text = "".join(traceback.format_exception(error))
    assert text.count("hint: ") == 1 and text.endswith("x needs weights=.\nhint: add `weights=FILE`.\n")


def test_an_iterator_speaks_python_too():
    closed = []

    def count():
        try:
            yield 1
            yield (yield 2)
            raise ConfigError("no.", "use [[workers=1]].")
        finally:
            closed.append(True)

    counting = for_python(count, "count")
    numbers = counting()
    assert [next(numbers), next(numbers), numbers.send(7)] == [1, 2, 7]
    assert raised(lambda: next(numbers)).__notes__ == ["hint: use workers=1."]
    half = counting()
    next(half)
    half.close()
    assert closed == [True, True]


def test_what_has_no_hint_stays_as_it_is():
    def fail():
        raise ValueError("[[workers=1]]")

    error = raised(for_python(fail, "fail"))
    assert error.args == ("[[workers=1]]",) and not hasattr(error, "__notes__")
