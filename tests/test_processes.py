import errno
import os
import subprocess
import sys

import pytest

from bert_tf.errors import UserError
from bert_tf.processes import WorkerPool

WORKER = """
import os
from bert_tf.errors import UserError
from bert_tf.processes import serve

def prepare(factor):
    def answer(question):
        print("what a library says")
        if question == "mistake":
            raise UserError("a mistake")
        if question == "full":
            raise OSError(28, "No space", "file.txt")
        if question == "fault":
            raise ValueError("a fault")
        if question == "end":
            os._exit(3)
        return question * factor
    return answer

if __name__ == "__main__":
    serve(prepare)
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    (tmp_path / "a_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "a_worker"


def test_answers_and_errors_come_back_as_themselves(module) -> None:
    with WorkerPool(module, 3, 2) as pool:
        futures = [pool.submit(number) for number in range(20)]
        assert [f.result() for f in futures] == [3 * n for n in range(20)]
        with pytest.raises(UserError, match="a mistake"):
            pool.submit("mistake").result()
        with pytest.raises(OSError, match="No space") as caught:
            pool.submit("full").result()
        assert (caught.value.errno, caught.value.filename) == (28, "file.txt")
        with pytest.raises(RuntimeError, match="(?s)Traceback.*a fault"):
            pool.submit("fault").result()
        assert pool.submit("x").result() == "xxx"


def test_a_worker_that_ends_is_an_error(module) -> None:
    with WorkerPool(module, 1, 1) as pool:
        with pytest.raises(OSError, match="exit code 3; -9") as caught:
            pool.submit("end").result()
        assert caught.value.errno == errno.ECHILD


def test_workers_end_with_the_program_that_started_them(module) -> None:
    script = (
        "import os, sys\n"
        "from bert_tf.processes import WorkerPool\n"
        f"pool = WorkerPool('{module}', 1, 1)\n"
        "pool.submit(1).result()\n"
        "print(pool._workers[0].process.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # Its standard error is closed, so it ended: run waits for that.
    assert int(done.stdout) != os.getpid()
