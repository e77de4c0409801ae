"""Processes that end with their parent, which is killed."""

import signal
import subprocess
import sys

PARENT = """
import os, subprocess, sys, threading

def start():
    subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])

if sys.argv[2] == "in a thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
CHILD = """
import signal, sys, time
from lstr.extractors import lifeline

lifeline.TICK = 0.02
lifeline.GRACE = 0.2
signal.signal(signal.SIGTERM, signal.default_int_handler)
lifeline.{ends}
print("begun", flush=True)
try:
    time.sleep(0.2)
    print("working", flush=True)
    time.sleep(60)
finally:
    print("tidied", flush=True)
    time.sleep(60)
"""


def told(ends: str, where: str = "") -> str:
    """What a child printed, once nobody holds its output any more: it and its parent are gone."""
    command = [sys.executable, "-c", PARENT, CHILD.format(ends=ends), where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        lines = [parent.stdout.readline(), parent.stdout.readline()]
        parent.stdin.write("\n")
        parent.stdin.close()
        lines += parent.stdout.readlines()
    assert parent.returncode == -signal.SIGKILL
    return "".join(lines)


def test_it_ends_with_its_parent_and_not_with_a_thread_of_it():
    """decord's process is started by a thread that reads one video ahead, and serves the next video too."""
    assert told("end_with_parent(int(sys.argv[1]))", "in a thread") == "begun\nworking\n"


def test_it_may_tidy_up_first_but_not_for_ever():
    assert told("end_with_parent(int(sys.argv[1]), gently=True)") == "begun\nworking\ntidied\n"


def test_one_whose_parent_was_gone_before_it_looked_ends_too():
    code = CHILD.format(ends="end_with_parent(1)")
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == -signal.SIGKILL
