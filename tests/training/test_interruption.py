"""SIGTERM is noted while a training runs, and kills as before afterwards."""

import os
import signal
import threading

from bert_tf.training.interruption import StopRequest


def test_noted_once_and_put_back(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as request:
        assert not request.made
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        assert request.made
    assert signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err.count("asked to stop") == 1


def test_outside_the_main_thread():
    found = []

    def run():
        with StopRequest() as request:
            found.append(request.made)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False]
