"""The page that Prometheus reads, as TF Serving writes it."""

from prometheus_client.parser import text_string_to_metric_families

from bert_tf.server.metrics import Metrics

NAME = ":tensorflow:serving:"


def test_names_labels_and_numbers():
    metrics = Metrics()
    metrics.request("m", "predict", "REST", "OK", 0.0015)
    metrics.request("m", "predict", "REST", "NOT_FOUND", 1.0)
    metrics.examples("m", 3)
    metrics.batch('a"\n\\', 3, 1)
    lines = metrics.page().splitlines()
    labels = 'model_name="m",API="predict",entrypoint="REST"'
    latency = f"{NAME}request_latency"
    session = f"{NAME}batching_session:"
    assert {
        f"# TYPE {NAME}request_count counter",
        f'{NAME}request_count{{model_name="m",status="OK"}} 1',
        f"# TYPE {NAME}request_example_count_total counter",
        f'{NAME}request_example_count_total{{model="m"}} 3',
        f"# TYPE {latency} histogram",
        f'{latency}_bucket{{{labels},le="1102"}} 0',
        f'{latency}_bucket{{{labels},le="1983.59"}} 1',
        f'{latency}_bucket{{{labels},le="+Inf"}} 1',
        f"{latency}_sum{{{labels}}} 1500",
        f"{latency}_count{{{labels}}} 1",
        rf'{session}processed_batch_size_sum{{model_name="a\"\n\\"}} 4',
    } <= set(lines)
    assert not [line for line in lines if "_created" in line]
    families = text_string_to_metric_families(metrics.page())
    read = {family.name: family for family in families}
    assert len(read) == 11
    batches = read[f"{session}padding_size"].samples
    assert batches[0].labels["model_name"] == 'a"\n\\'
