"""Commands in processes of their own, and what tests change of a process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager

LSTR = (sys.executable, "-m", "lstr_cli")


def run_process(*command, env: Mapping[str, str] | None = None, **options) -> tuple[int, str, str]:
    """Run a command with changes to the environment; return its exit code, standard output and standard error."""
    environment = {**os.environ, **(env or {})}
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environment, check=False, **options)
    return ran.returncode, ran.stdout, ran.stderr


def check_process(*command, **options) -> str:
    """Run a command that succeeds; return its standard output."""
    code, out, err = run_process(*command, **options)
    assert code == 0, err
    return out


def run_command(words: list[str], log: str, environment: Mapping[str, str]) -> None:
    """Run a command in this new process, in a new session, by which its children are found later."""
    import torch

    from lstr_cli.main import main

    os.setsid()
    restore_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment, OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.argv = ["lstr", *words]
    main()


def restore_signals() -> None:
    """For preexec_fn: react to SIGINT and SIGHUP, which background jobs of a shell and `nohup make test` ignore."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def limit_file_size(size: int):
    """Limit the files of this process to `size` bytes; beyond them, writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
