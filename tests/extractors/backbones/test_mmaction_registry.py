"""What mmaction2 prints is lost, and what anybody else prints meanwhile is not."""

import sys
import threading

from lstr.extractors.backbones.mmaction_registry import quiet


def test_only_the_thread_that_is_quiet_is(capsys):
    begun, printed = threading.Event(), threading.Event()
    before = sys.stdout

    def make():
        with quiet():
            print("of a library")
            begun.set()
            printed.wait()

    maker = threading.Thread(target=make)
    maker.start()
    begun.wait()
    print("a result")
    with quiet():
        printed.set()
        maker.join()
        print("of another")
    print("the next")
    assert capsys.readouterr().out == "a result\nthe next\n"
    assert sys.stdout is before


def test_a_stream_that_was_put_there_meanwhile_stays(capsys, monkeypatch):
    with quiet():
        monkeypatch.setattr("sys.stdout", sys.stderr)
    assert sys.stdout is sys.stderr
    monkeypatch.undo()
    print("through what was left over")
    assert capsys.readouterr().out == "through what was left over\n"
