"""Sequences and tokens a second, of training alone."""

import time


class Speed:
    """Counts what is done in training time.

    The first step, and the first after `expect_tracing`, traces the graph and
    takes many times its share; the clock starts after it.
    """

    def __init__(self):
        self.expect_tracing()

    def expect_tracing(self) -> None:
        """Starts the clock anew after the next step."""
        self._tracing = True
        self._sequences = self._tokens = self._paused = 0.0

    def advance(self, sequences: float, tokens: float) -> None:
        """Counts one step."""
        if self._tracing:
            self._tracing = False
            self._started = time.monotonic()
        else:
            self._sequences += sequences
            self._tokens += tokens

    def pause(self, seconds: float) -> None:
        """Takes time out, such as that of an evaluation."""
        self._paused += seconds

    def rates(self) -> dict[str, float]:
        """Sequences and tokens (padding left out) a second."""
        if not self._sequences:
            return {"sequences_per_second": 0.0, "tokens_per_second": 0.0}
        seconds = time.monotonic() - self._started - self._paused
        return {
            "sequences_per_second": self._sequences / seconds,
            "tokens_per_second": self._tokens / seconds,
        }

    def __str__(self) -> str:
        rates = self.rates()
        return (
            f"{rates['sequences_per_second']:,.1f} sequences/s, "
            f"{rates['tokens_per_second']:,.0f} tokens/s"
        )
