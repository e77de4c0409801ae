"""What every mistake of a user must look like."""


def assert_error(result, code: int, *words: str) -> None:
    """One sentence, one hint, the right code, no traceback, nothing on standard output."""
    got, out, err = result
    assert got == code, err
    assert err.count("error: ") + err.count("failed: ") == 1 and err.count("hint: ") == 1, err
    assert "Traceback" not in err and out == ""
    for word in words:
        assert word in err, err
