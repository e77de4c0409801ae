"""The form of every error message for users."""


def assert_error(result, code: int, *words: str) -> None:
    """Check the exit code, one error with one hint and these words, no traceback, and no standard output."""
    exit_code, out, err = result
    assert exit_code == code, err
    assert err.count("error: ") + err.count("failed: ") == 1 and err.count("hint: ") == 1, err
    assert "Traceback" not in err and out == ""
    assert not [word for word in words if word not in err], err
