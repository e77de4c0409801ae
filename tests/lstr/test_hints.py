"""What Python callers read where a job's hint names options of the command line."""

import traceback

import pytest

from lstr.errors import ConfigError
from lstr.extractors.errors import WeightsError
from lstr.hints import for_python, in_python


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("give the file they were made with as --rgb-weights.", "give the file they were made with as rgb_weights=."),
        ("add `--flow-weights PATH`.", "add `flow_weights=PATH`."),
        ("use --flow tvl1.", 'use algorithm="tvl1".'),
        ("leave out --rgb-features and --flow-features.", "leave out rgb= and flow=."),
        ("try it alone, with --workers 1.", "try it alone, with workers=1."),
        ("add --fps, such as --fps 25.", "add fps=, such as fps=25."),
        ("give --cache-size 12GB, or fewer videos.", 'give cache_size="12GB", or fewer videos.'),
        ("go on with --resume, or another -o.", "go on with resume=True, or another output=."),
        ("name one with -c PATH, or run `lstr demo`.", "name one with checkpoint=PATH, or run `lstr demo`."),
        ("again with `--recipe '/a b/x'`, or --allow-seen.", "again with `recipe='/a b/x'`, or allow_seen=True."),
        ("give --config run/config.json and the same.", 'give config="run/config.json" and the same.'),
        ("--set train.accumulate=2 is slower.", 'settings={"train.accumulate": 2} is slower.'),
        ("write --set model.NAME=VALUE.", 'write settings={"model.NAME": VALUE}.'),
        ("give --calibrate a list of videos.", "give calibrate= a list of videos."),
    ],
)  # fmt: skip
def test_options_become_arguments(text, expected):
    assert in_python(text) == expected == in_python(expected), "and again changes nothing"


@pytest.mark.parametrize(
    "text",
    [
        "`lstr extract --allow-damaged` keeps what precedes it; `ffmpeg -i FILE -c:v libx264 repaired.mp4` repairs it.",
        "pip install --force-reinstall --no-deps opencv-contrib-python",
        "torchrun --nproc-per-node 4 …",
        "copy /data/a--b/x-c to another folder.",
    ],
)
def test_commands_and_paths_stay(text):
    assert in_python(text) == text == in_python(text, "detect")


def test_some_options_are_within_an_argument():
    assert in_python("add `--rgb-weights PATH`.", "detect") == 'add `networks={"rgb": PATH}`.'
    assert in_python("or add --allow-recipe-mismatch.", "detect") == 'or add networks={"allow_mismatch": True}.'
    assert in_python("x ends before --start 60.", "detect") == "x ends before limits=Limits(start=60)."
    assert in_python("Add for example --set model.n_heads=8", "load") == (
        'Add for example overrides={"n_heads": 8} of lstr.load'
    )


def raised(call) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: B017 - which it is, the callers assert
        call()
    return caught.value


def test_a_typed_error_leaves_with_its_hint_once():
    def open_it(path):
        raise WeightsError(f"{path} needs --rgb-weights.", "add `--rgb-weights FILE`.")

    def twice():
        for_python(open_it, "open_it")("x")

    error = raised(for_python(twice, "twice"))
    assert type(error) is WeightsError and error.exit_code == 4
    assert str(error) == "x needs rgb_weights=." and error.hint == "add `rgb_weights=FILE`."
    text = "".join(traceback.format_exception(error))
    assert text.count("hint: ") == 1 and text.endswith("x needs rgb_weights=.\nhint: add `rgb_weights=FILE`.\n")


def test_an_iterator_speaks_python_too():
    closed = []

    def count():
        try:
            yield 1
            yield (yield 2)
            raise ConfigError("no.", "use --workers 1.")
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
        raise ValueError("--workers 1")

    error = raised(for_python(fail, "fail"))
    assert error.args == ("--workers 1",) and not hasattr(error, "__notes__")
