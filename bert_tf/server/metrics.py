"""Counts and times under TF Serving's names, as Prometheus reads them."""

import bisect
import threading
from collections import defaultdict

# TF Serving's util.cc: from 10 microseconds on, each 1.8 times the last.
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
_SIZES = [2.0**power for power in range(15)]
_Labels = tuple[tuple[str, str], ...]


class _Counter:
    """A number that rises, for each set of labels."""

    kind = "counter"

    def __init__(self) -> None:
        self.values: dict[_Labels, int] = defaultdict(int)

    def lines(self, name: str) -> list[str]:
        return [
            f"{name}{_braces(labels)} {value}"
            for labels, value in sorted(self.values.items())
        ]


class _Histogram:
    """How many values fell into each bucket, for each set of labels."""

    kind = "histogram"

    def __init__(self, limits: list[float]) -> None:
        self._limits = limits
        self._counts: dict[_Labels, list[int]] = defaultdict(
            lambda: [0] * (len(limits) + 1)
        )
        self._sums: dict[_Labels, float] = defaultdict(float)

    def add(self, labels: _Labels, value: float) -> None:
        self._counts[labels][bisect.bisect_left(self._limits, value)] += 1
        self._sums[labels] += value

    def lines(self, name: str) -> list[str]:
        lines = []
        names = [f"{limit:g}" for limit in self._limits] + ["+Inf"]
        for labels, counts in sorted(self._counts.items()):
            total = 0
            for limit, count in zip(names, counts, strict=True):
                total += count
                braces = _braces((*labels, ("le", limit)))
                lines.append(f"{name}_bucket{braces} {total}")
            lines.append(f"{name}_sum{_braces(labels)} {self._sums[labels]}")
            lines.append(f"{name}_count{_braces(labels)} {total}")
        return lines


def _braces(labels: _Labels) -> str:
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\""))
        for name, value in labels
    )
    inside = ",".join(
        f'{name}="{value}"'.replace("\n", r"\n") for name, value in escaped
    )
    return f"{{{inside}}}"


class Metrics:
    """The metrics of one server; any thread may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = _Counter()
        self._request_latency = _Histogram(_MICROSECONDS)
        self._runtime_latency = _Histogram(_MICROSECONDS)
        self._examples = _Histogram(_SIZES)
        self._example_total = _Counter()
        self._queuing_latency = _Histogram(_MICROSECONDS)
        self._batch_size = _Histogram(_SIZES)
        self._padding_size = _Histogram(_SIZES)
        self._runs = _Counter()
        self._warm_up_latency = _Histogram(_MICROSECONDS)
        self._warm_up_records = _Counter()
        session = "batching_session:"
        self._named: dict[str, _Counter | _Histogram] = {
            "request_count": self._requests,
            "request_latency": self._request_latency,
            "runtime_latency": self._runtime_latency,
            "request_example_counts": self._examples,
            "request_example_count_total": self._example_total,
            f"{session}queuing_latency": self._queuing_latency,
            f"{session}processed_batch_size": self._batch_size,
            f"{session}padding_size": self._padding_size,
            f"{session}wrapped_run_count": self._runs,
            "model_warmup_latency": self._warm_up_latency,
            "model_warmup_records_read": self._warm_up_records,
        }

    def request(
        self, model: str, api: str, entry: str, status: str, seconds: float
    ) -> None:
        """Adds a request: `api` such as predict, `entry` REST or GRPC."""
        with self._lock:
            counted = (("model_name", model), ("status", status))
            self._requests.values[counted] += 1
            if status == "OK" and api:
                labels = _labels(model_name=model, API=api, entrypoint=entry)
                self._request_latency.add(labels, seconds * 1e6)

    def run(self, model: str, api: str, seconds: float) -> None:
        """Adds what the graph took for a request, waiting included."""
        with self._lock:
            labels = _labels(model_name=model, API=api, runtime="TF1")
            self._runtime_latency.add(labels, seconds * 1e6)

    def examples(self, model: str, count: int) -> None:
        """Adds the tf.Examples of a request."""
        with self._lock:
            self._examples.add(_labels(model=model), count)
            self._example_total.values[_labels(model=model)] += count

    def queued(self, model: str, seconds: float) -> None:
        """Adds how long a request waited for its batch."""
        with self._lock:
            labels = _labels(model_name=model)
            self._queuing_latency.add(labels, seconds * 1e6)

    def batch(self, model: str, rows: int, padding: int) -> None:
        """Adds a batch."""
        with self._lock:
            labels = _labels(model_name=model)
            self._batch_size.add(labels, rows + padding)
            self._padding_size.add(labels, padding)
            self._runs.values[labels] += 1

    def warm_up(
        self, path: str, status: str, records: int, seconds: float
    ) -> None:
        """Adds the warming up of a version."""
        with self._lock:
            labels = _labels(model_path=path, status=status)
            self._warm_up_latency.add(labels, seconds * 1e6)
            self._warm_up_records.values[labels] += records

    def page(self) -> str:
        """All of them in Prometheus' text format."""
        with self._lock:
            lines = []
            for short, metric in self._named.items():
                name = f":tensorflow:serving:{short}"
                lines.append(f"# TYPE {name} {metric.kind}")
                lines += metric.lines(name)
        return "\n".join(lines) + "\n"


def _labels(**values: str) -> _Labels:
    return tuple(values.items())
