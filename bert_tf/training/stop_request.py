"""SIGTERM and Ctrl-C while a training runs."""

import contextlib
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from bert_tf.progress import log


class StopRequest:
    """Notes SIGTERM and the first Ctrl-C while a training runs.

    After the first Ctrl-C the handler from before is back, so that the second
    one ends the training at once, by a KeyboardInterrupt. Who has set a handler
    for it, or has it ignored, as a shell does for jobs in the background, keeps
    that. Outside the main thread, where Python takes no signals, nothing is
    noted.

    Attributes:
      made: whether the training is to end.
      interrupted: whether Ctrl-C asked for it first.
    """

    def __init__(self) -> None:
        self.made = False
        self.interrupted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before[signal.SIGTERM] = signal.signal(
                signal.SIGTERM, self._note
            )
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before[signal.SIGINT] = signal.signal(
                    signal.SIGINT, self._note
                )
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT:
            self._put_back(number)
        if self.made:
            return
        self.made = True
        if number == signal.SIGINT:
            self.interrupted = True
            line = "interrupted: saving after this step; again stops at once"
        else:
            line = "asked to stop (SIGTERM): ending after this step"
        # A handler may come in the middle of another write.
        with contextlib.suppress(RuntimeError):
            log(line)

    def _put_back(self, number: int) -> None:
        signal.signal(number, self._before.pop(number) or signal.SIG_DFL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number in list(self._before):
            self._put_back(number)
