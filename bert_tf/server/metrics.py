"""Counters and histograms with TF Serving's names, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram

# TF Serving's util.cc: from 10 microseconds, growing by a factor of 1.8.
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
_SIZES = [2.0**power for power in range(15)]


class Metrics:
    """The metrics of a server, thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("request_count", "model_name", "status")
        self._request_latency = self._histogram(
            "request_latency", _MICROSECONDS, "model_name", "API", "entrypoint"
        )
        self._runtime_latency = self._histogram(
            "runtime_latency", _MICROSECONDS, "model_name", "API", "runtime"
        )
        self._examples = self._histogram(
            "request_example_counts", _SIZES, "model"
        )
        self._example_total = self._counter(
            "request_example_count_total", "model"
        )
        session = "batching_session:"
        self._queuing_latency = self._histogram(
            f"{session}queuing_latency", _MICROSECONDS, "model_name"
        )
        self._batch_size = self._histogram(
            f"{session}processed_batch_size", _SIZES, "model_name"
        )
        self._padding_size = self._histogram(
            f"{session}padding_size", _SIZES, "model_name"
        )
        self._runs = self._counter(f"{session}wrapped_run_count", "model_name")
        self._warm_up_latency = self._histogram(
            "model_warmup_latency", _MICROSECONDS, "model_path", "status"
        )
        self._warm_up_records = self._counter(
            "model_warmup_records_read", "model_path", "status"
        )

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(_full(name), "", labels, registry=self._registry)

    def _histogram(
        self, name: str, buckets: list[float], *labels: str
    ) -> Histogram:
        return Histogram(
            _full(name), "", labels, registry=self._registry, buckets=buckets
        )

    def request(
        self, model: str, api: str, entry: str, status: str, seconds: float
    ) -> None:
        """Counts a request of an API, e.g. predict, by REST or GRPC."""
        self._requests.labels(model, status).inc()
        if status == "OK" and api:
            self._request_latency.labels(model, api, entry).observe(
                seconds * 1e6
            )

    def run(self, model: str, api: str, seconds: float) -> None:
        """Adds the time of a run, including that in the queue."""
        self._runtime_latency.labels(model, api, "TF1").observe(seconds * 1e6)

    def examples(self, model: str, count: int) -> None:
        """Adds the tf.Examples of a request."""
        self._examples.labels(model).observe(count)
        self._example_total.labels(model).inc(count)

    def queued(self, model: str, seconds: float) -> None:
        """Adds the time of a request in the queue."""
        self._queuing_latency.labels(model).observe(seconds * 1e6)

    def batch(self, model: str, rows: int, padding: int) -> None:
        """Adds a batch."""
        self._batch_size.labels(model).observe(rows + padding)
        self._padding_size.labels(model).observe(padding)
        self._runs.labels(model).inc()

    def warm_up(
        self, path: str, status: str, records: int, seconds: float
    ) -> None:
        """Adds the warm-up of a version."""
        self._warm_up_latency.labels(path, status).observe(seconds * 1e6)
        self._warm_up_records.labels(path, status).inc(records)

    def page(self) -> str:
        """Returns all metrics in Prometheus' text format, as TF Serving.

        prometheus_client's text appends `_total` to counters and sorts labels.
        """
        lines = []
        for metric in self._registry.collect():
            counter = metric.type == "counter"
            name = metric.name
            # The client removes `_total`, which is part of this name.
            if counter and name == _full("request_example_count"):
                name += "_total"
            lines.append(f"# TYPE {name} {metric.type}")
            for sample in metric.samples:
                if sample.name.endswith("_created"):
                    continue
                labels = ",".join(
                    f'{key}="{_value(key, text)}"'
                    for key, text in sample.labels.items()
                )
                key = name if counter else sample.name
                number = sample.value
                value = int(number) if number.is_integer() else number
                lines.append(f"{key}{{{labels}}} {value}")
        return "\n".join(lines) + "\n"


def _full(name: str) -> str:
    return f":tensorflow:serving:{name}"


def _value(label: str, text: str) -> str:
    """Returns an escaped label; bucket bounds in TF Serving's format."""
    if label == "le" and text != "+Inf":
        return f"{float(text):g}"
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
