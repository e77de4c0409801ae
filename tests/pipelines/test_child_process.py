"""Child processes end when their parent is killed."""

import signal
import subprocess
import sys

from tests.support.processes import run_process

PARENT = """
import os, subprocess, sys, threading

def start():
    subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])

thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
CHILD = """
import signal, sys, time
from lstr.pipelines import child_process

child_process.TICK = 0.02
child_process.GRACE = 0.2
signal.signal(signal.SIGTERM, signal.default_int_handler)
child_process.end_with_parent({parent})
print("started", flush=True)
try:
    time.sleep(0.2)
    print("working", flush=True)
    time.sleep(60)
finally:
    print("cleaning up", flush=True)
    time.sleep(60)
"""


def test_a_child_cleans_up_and_ends_with_its_parent_but_not_with_the_thread_that_started_it():
    command = [sys.executable, "-c", PARENT, CHILD.format(parent="int(sys.argv[1])")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        lines = [parent.stdout.readline(), parent.stdout.readline()]
        parent.stdin.write("\n")
        parent.stdin.close()
        lines += parent.stdout.readlines()  # until both processes have closed the output
    assert parent.returncode == -signal.SIGKILL and lines == ["started\n", "working\n", "cleaning up\n"]


def test_a_child_ends_if_its_parent_ended_before():
    code = CHILD.format(parent=1)
    assert run_process(sys.executable, "-c", code)[0] in (-signal.SIGKILL, -signal.SIGINT)
