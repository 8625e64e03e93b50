"""The plan of a training's memory: arithmetic, search, advice, measurement."""

import dataclasses
from concurrent.futures import Future

import pytest
from model_helpers import small_config

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.memory import measurement
from bert_tf.memory.measurement import (
    Measured,
    free_memory,
    largest_measured,
    make_trial,
    measure,
)
from bert_tf.memory.plan import PlanSettings, parse_memory, plan_memory
from bert_tf.memory.prediction import (
    Workload,
    estimated_bytes,
    largest_batch,
    min_slices,
)
from bert_tf.processes import WorkerExit
from bert_tf.system_memory import available_memory

BASE = Workload(BertConfig.from_size("base", 30_522), 512, 8, 77)


def changed(**changes) -> Workload:
    return dataclasses.replace(BASE, **changes)


@pytest.mark.parametrize(
    ("predictions", "changes"),
    [
        (0, {}),
        (4, {}),
        (0, {"bilstm": True}),
        (0, {"lora_rank": 3}),
        (0, {"lora_rank": 3, "lora_on": "all_dense"}),
    ],
)
def test_parameters_are_those_of_the_model(predictions, changes) -> None:
    work = Workload(small_config(**changes), 10, 3, predictions)
    model, objective, batch = make_trial(work)
    trained = sum(w.shape.num_elements() for w in model.trainable_variables)
    assert work.num_trained == trained
    assert work.num_parameters == model.count_params()
    # The batch is one that the objective can take.
    losses, _ = objective(model(batch), batch)
    assert all(value > 0 for value in losses.values())


def test_weights_and_what_the_optimizer_holds_are_in_the_estimate() -> None:
    few = changed(max_seq_length=1, batch_size=1, max_predictions_per_seq=1)
    # Weights, two moments, and all gradients at the end.
    least = 16 * 110_106_428
    assert least < estimated_bytes(few, on_cpu=False) < 1.1 * least
    on_cpu = estimated_bytes(BASE, on_cpu=True)
    assert on_cpu - estimated_bytes(BASE, on_cpu=False) > 5e8


def test_the_program_is_larger_where_more_is_traced() -> None:
    def program(**changes) -> float:
        work = changed(**changes)
        return estimated_bytes(work, True) - estimated_bytes(work, False)

    pretraining = program()
    assert pretraining < program(max_predictions_per_seq=0)
    assert pretraining < program(rematerialize=True)
    assert pretraining < program(gradient_accumulation_steps=2)


# GB of whole processes on a CPU that docs/memory.md reports as measured: layers
# and width, tokens, rows, predictions; all kept and with rematerialize.
@pytest.mark.parametrize(
    ("sizes", "precision", "measured"),
    [
        ((12, 768, 128, 16, 19), "float32", (4.43, 3.47)),
        ((12, 768, 128, 16, 19), "mixed_bfloat16", (4.09, 3.60)),
        ((12, 768, 512, 4, 77), "float32", (4.56, 3.47)),
        ((12, 768, 512, 4, 77), "mixed_bfloat16", (4.20, 3.60)),
        ((12, 256, 512, 24, 0), "float32", (4.94, 2.82)),
        ((12, 256, 512, 24, 0), "mixed_bfloat16", (4.06, 2.76)),
    ],
)
def test_estimates_are_near_what_was_measured(
    sizes, precision, measured
) -> None:
    layers, width, length, rows, predictions = sizes
    config = BertConfig(
        vocab_size=30_522 if predictions else 1000,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    for again, peak in zip((False, True), measured, strict=True):
        work = Workload(
            config, length, rows, predictions, precision, rematerialize=again
        )
        estimate = estimated_bytes(work, on_cpu=True) / 1e9
        assert estimate == pytest.approx(peak, rel=0.12)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_the_largest_batch_is_the_largest(rematerialize) -> None:
    work = changed(rematerialize=rematerialize)
    rows = largest_batch(work, 16e9, on_cpu=False)
    assert estimated_bytes(work.with_batch(rows), False) <= 16e9
    assert estimated_bytes(work.with_batch(rows + 1), False) > 16e9
    assert largest_batch(work, 1e9, on_cpu=False) == 0


def test_the_min_slices() -> None:
    work = changed(batch_size=48)
    assert min_slices(work, 100e9, False) == 1
    slices = min_slices(work, 12e9, False)
    assert 48 % slices == 0
    cut = dataclasses.replace(work, gradient_accumulation_steps=slices)
    assert estimated_bytes(cut, False) <= 12e9
    assert min_slices(work, 1e9, False) == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("16GB", 16e9), (" 1.5 gib ", 1.5 * 2**30), ("800MB", 8e8)],
)
def test_sizes(text, size) -> None:
    assert parse_memory(text) == size


def plan(**settings) -> str:
    lines: list[str] = []
    plan_memory(PlanSettings(**settings), False, lines.append)
    return "\n".join(lines)


def test_a_batch_that_does_not_fit_gets_advice() -> None:
    text = plan(
        size="base", max_seq_length=512, memory="12GB", train_batch_size=256
    )
    assert "pre-training, 77 predictions a row" in text
    assert "for train_batch_size=256" in text
    first, second = (x for x in text.splitlines() if "`" in x)
    assert "rematerialize" not in first
    assert "`rematerialize`=true" in second
    rows = [int(x.split("(")[1].split()[0]) for x in (first, second)]
    assert rows[0] < rows[1] < 256
    steps = first.split("gradient_accumulation_steps`=")[1].split()[0]
    assert int(steps) * rows[0] == 256


def test_a_batch_that_fits_gets_none() -> None:
    text = plan(size="tiny", memory="12GB", train_batch_size=2)
    assert "`" not in text


def test_the_table() -> None:
    text = plan(size="tiny", memory="12GB", precision="mixed_bfloat16")
    rows = [
        [int(cell) for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    assert [row[0] for row in rows] == [64, 128, 256, 320, 384, 512]
    for column in range(1, 5):
        values = [row[column] for row in rows]
        assert values == sorted(values, reverse=True)
    assert all(b > a and d > c for _, a, c, b, d in rows)


def test_a_bilstm_takes_more() -> None:
    settings = {"size": "base", "objective": "classifier"}
    work = PlanSettings(**settings, bilstm=True).workload()
    assert work.config.bilstm
    plain = PlanSettings(**settings).workload()
    # Both directions, each with four gates of 384.
    more = work.num_parameters - plain.num_parameters
    assert more == 2 * 4 * 384 * (768 + 384 + 1)
    for on_cpu in (True, False):
        bytes_more = estimated_bytes(work, on_cpu) - estimated_bytes(
            plain, on_cpu
        )
        assert bytes_more > 3 * 4 * more


def test_lora_takes_less() -> None:
    settings = {"size": "base", "objective": "classifier"}
    work = PlanSettings(**settings, lora_rank=8).workload()
    plain = PlanSettings(**settings).workload()
    # Two matrices of two kernels of twelve layers.
    more = work.num_parameters - plain.num_parameters
    assert more == 12 * 2 * 2 * 768 * 8
    # The pooler, and two labels.
    head = 768 * 768 + 768 + 2 * 769
    assert work.num_trained == more + head
    peak, before = (estimated_bytes(w, False) for w in (work, plain))
    assert peak < before - 8 * 85e6
    text = plan(**settings, lora_rank=8, lora_on="all_dense", memory="9GB")
    assert "LoRA of rank 8 on all_dense" in text


def test_several_devices_share_a_batch() -> None:
    settings = {"size": "base", "memory": "12GB", "max_seq_length": 512}
    alone = plan(**settings, train_batch_size=4)
    shared = plan(**settings, train_batch_size=32, devices=8)
    (peak,) = (x for x in alone.splitlines() if x.startswith("estimated for"))
    assert peak in shared


def test_this_machine_is_asked() -> None:
    assert 1e8 < free_memory() < 1e14
    assert "GB (" in plan(size="tiny")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give one of `size`, `config_file` and `init_from`."),
        ({"size": "base", "init_from": "x"}, "give one of `size`"),
        ({"size": "huge"}, "`size`=huge: unknown size"),
        ({"size": "base", "max_seq_length": 513}, "takes 1 to 512, the long"),
        ({"size": "base", "memory": "much"}, "`memory`=much: give a number"),
        ({"size": "base", "memory": "0GB"}, "`memory`=0GB: give a number"),
        ({"size": "base", "memory": "16"}, "`memory`=16: give a number"),
        ({"size": "base", "memory": "1GB"}, "nothing fits: one row of 128"),
        (
            {"size": "base", "memory": "1GB", "train_batch_size": 8},
            "nothing fits: one row of 128",
        ),
        ({"size": "base", "precision": "float8"}, "precision is 'float8'"),
        ({"size": "base", "objective": "tags"}, "objective is 'tags'"),
        (
            {"size": "base", "train_batch_size": 9, "devices": 2},
            "train_batch_size is 9; it takes a multiple of 2",
        ),
        ({"size": "base", "bilstm": True}, "choose `objective`=classifier"),
        ({"size": "base", "lora_rank": 8}, "choose `objective`=classifier"),
        ({"size": "base", "lora_on": "all_dense"}, "requires lora_rank"),
        ({"init_from": "nowhere"}, "nowhere"),
        ({"config_file": "nowhere.json"}, "nowhere.json: no such file"),
    ],
)
def test_bad_settings(settings, message) -> None:
    with pytest.raises(UserError) as raised:
        plan(**settings)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("guess", [1, 37, 100, 400])
@pytest.mark.parametrize("capacity", [0, 1, 2, 100])
def test_the_search(capacity, guess, monkeypatch) -> None:
    tried = []

    def stand_in(work: Workload, limit: float) -> Measured | None:
        tried.append(work.batch_size)
        fits = work.batch_size <= capacity
        return Measured(work.batch_size, 0.1) if fits else None

    monkeypatch.setattr("bert_tf.memory.measurement.measure", stand_in)
    lines: list[str] = []
    rows, found = largest_measured(BASE, 1e9, guess, lines.append)
    assert capacity - capacity // 16 <= rows <= capacity
    assert (found and found.peak_bytes) == (rows or None)
    assert len(tried) == len(lines) == len(set(tried)) < 45


def test_nothing_fits_when_measured(monkeypatch) -> None:
    monkeypatch.setattr(measurement, "largest_measured", lambda *_: (0, None))
    with pytest.raises(UserError, match="nothing fits: a step of one row"):
        plan_memory(PlanSettings(size="tiny", memory="8GB"), True, print)


MEDIUM = BertConfig(
    vocab_size=1000,
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=1024,
)


@pytest.mark.parametrize(
    ("precision", "length", "rows", "predictions", "forms"),
    [
        ("float32", 128, 48, 20, [False, True]),
        ("mixed_bfloat16", 512, 24, 0, [False]),
    ],
    ids=["pretraining", "classifier"],
)
def test_estimate_and_saving(
    precision, length, rows, predictions, forms
) -> None:
    """Real steps take what is estimated, and less if blocks are recomputed."""
    peaks = []
    for again in forms:
        work = Workload(
            MEDIUM, length, rows, predictions, precision, rematerialize=again
        )
        found = measure(work, 8e9)
        assert found is not None
        estimate = estimated_bytes(work, on_cpu=True)
        assert estimate == pytest.approx(found.peak_bytes, rel=0.25)
        peaks.append(found.peak_bytes)
    # The process alone has a gigabyte.
    assert len(peaks) == 1 or peaks[1] < 0.85 * peaks[0]


class EndedPool:
    """A pool whose process ends with an error."""

    def __init__(self, error: Exception):
        self.error = error

    def __call__(self, *_) -> "EndedPool":
        return self

    def __enter__(self) -> "EndedPool":
        return self

    def __exit__(self, *_) -> None:
        pass

    def submit(self, work: Workload) -> Future:
        future: Future = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize(
    ("error", "kills", "reason"),
    [
        (WorkerExit(1), (0, 0), "ended with exit code 1, after its messages"),
        (WorkerExit(-11), (0, 0), "was ended by SIGSEGV (exit code -11)"),
        (WorkerExit(-9), (3, 3), "was ended by SIGKILL (exit code -9)"),
        (RuntimeError("Traceback\n  x\nValueError: bad\n"), (0, 0), "bad"),
        (WorkerExit(-9), (3, 4), None),
        (WorkerExit(77), (0, 0), None),
    ],
)
def test_only_a_limit_is_taken_for_one(
    error, kills, reason, monkeypatch
) -> None:
    counts = iter(kills)
    monkeypatch.setattr(measurement, "WorkerPool", EndedPool(error))
    monkeypatch.setattr(measurement, "kills_for_memory", lambda: next(counts))
    if reason is None:
        assert measure(BASE, 1e9) is None
        return
    with pytest.raises(UserError) as raised:
        measure(BASE, 1e9)
    assert reason in str(raised.value)
    assert "8 rows" in str(raised.value)


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 8 << 30),
        ("0::/\n", {"memory.max": "900", "memory.current": "300"}, 600),
        (
            "0::/a/b\n",
            {
                "memory.max": "max",
                "a/memory.max": "1000",
                "a/memory.current": "700",
                "a/memory.stat": "file 5\ninactive_file 200\n",
                "a/b/memory.max": "max",
                "a/b/memory.current": "700",
            },
            500,
        ),
        # The path of a container's group is that of the host.
        (
            "9:name=systemd:/\n4:memory:/docker/0a1b\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "400",
                "memory/memory.stat": "inactive_file 9\ntotal_inactive_file 50",
            },
            650,
        ),
        (
            "4:cpu,memory:/\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": "400",
            },
            8 << 30,
        ),
        ("0::/\n", {"memory.max": "300", "memory.current": "900"}, 0),
    ],
)
def test_available_memory_is_that_of_the_container(
    groups, files, expected, tmp_path
) -> None:
    contents = {
        "proc/meminfo": "MemFree: 1 kB\nMemAvailable:    8388608 kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in contents.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert available_memory(tmp_path) == expected


def test_a_system_that_does_not_report_its_memory(tmp_path) -> None:
    with pytest.raises(UserError, match="give `memory`"):
        available_memory(tmp_path)


def test_a_trial_ends_at_its_limit() -> None:
    work = Workload(MEDIUM, 128, 4, 20)
    assert measure(work, 3e8) is None
