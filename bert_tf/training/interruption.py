"""Being asked to stop, as clusters ask: SIGTERM."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from bert_tf.progress import notice


class StopRequest:
    """Notes a SIGTERM while a training runs, instead of dying of it.

    Outside the main thread, where Python takes no signals, it notes nothing.
    """

    def __init__(self) -> None:
        self.made = False
        self._before: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self.made:
            notice("asked to stop (SIGTERM): ending after this step")
        self.made = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
