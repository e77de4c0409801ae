"""Processes that read ahead, and the end of the program that started them."""

import subprocess
import sys

PROGRAM = """
import sys
from lstr.pipelines.finetuning.loader import make_loader
import torch
batches = iter(make_loader([(torch.zeros(1), 0)] * 99, [[i] for i in range(99)], loaders=1))
next(batches)
sys.exit(143)
"""


def test_a_program_ends_whatever_still_holds_its_readers():
    done = subprocess.run([sys.executable, "-c", PROGRAM], timeout=60, check=False)
    assert done.returncode == 143
