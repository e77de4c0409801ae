"""Processes that end with their parent, which is killed."""

import signal
import subprocess
import sys

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
print("begun", flush=True)
try:
    time.sleep(0.2)
    print("working", flush=True)
    time.sleep(60)
finally:
    print("tidied", flush=True)
    time.sleep(60)
"""


def test_it_ends_with_its_parent_and_not_with_the_thread_that_started_it():
    """It may tidy up first, but not for ever."""
    command = [sys.executable, "-c", PARENT, CHILD.format(parent="int(sys.argv[1])")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        lines = [parent.stdout.readline(), parent.stdout.readline()]
        parent.stdin.write("\n")
        parent.stdin.close()
        lines += parent.stdout.readlines()  # until nobody holds its output any more: both are gone
    assert parent.returncode == -signal.SIGKILL and lines == ["begun\n", "working\n", "tidied\n"]


def test_one_whose_parent_was_gone_before_it_looked_ends_too():
    code = CHILD.format(parent=1)
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert ended.returncode in (-signal.SIGKILL, -signal.SIGINT)
