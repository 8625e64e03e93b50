"""The plan of a training's memory: arithmetic, search, advice, measurement."""

import dataclasses

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
    largest_batch,
    min_slices,
    predicted_bytes,
    predicted_parts,
)

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


def test_what_does_not_depend_on_the_batch_is_exact() -> None:
    parts = predicted_parts(BASE, on_cpu=False)
    assert parts["weights"] == 4 * 110_106_428
    assert parts["optimizer slots"] == 8 * 110_106_428
    on_cpu = predicted_bytes(BASE, on_cpu=True)
    assert on_cpu - predicted_bytes(BASE, on_cpu=False) > 5e8


def test_the_program_is_larger_where_more_is_traced() -> None:
    def program(**changes) -> float:
        return predicted_parts(changed(**changes), True)["process and program"]

    pretraining = program(batch_size=16)
    assert pretraining == program(batch_size=4)
    classifier = {"max_predictions_per_seq": 0}
    few, more, many, most = (
        program(batch_size=rows, **classifier) for rows in (4, 8, 16, 64)
    )
    assert pretraining < few < more < many == most
    again = program(batch_size=16, rematerialize=True)
    assert pretraining < again
    # A third pass of attention is one more for each group.
    assert program(batch_size=64, rematerialize=True, **classifier) - most > (
        again - pretraining
    )
    assert program(gradient_accumulation_steps=2) > pretraining


def test_what_a_block_keeps() -> None:
    """The count of Korthikanti et al. 2022, section 4.1, plus what differs.

    They count 34 S B H + 5 N S^2 B bytes in half precision. Here normalised
    sums are float32, for which what is normalised is not kept, and what the
    second sum becomes is the next block's input; probabilities before and after
    dropout are computed again.
    """
    half = changed(precision="mixed_bfloat16")
    kept = [
        predicted_parts(changed(precision="mixed_bfloat16", config=c), False)
        for c in (
            half.config,
            dataclasses.replace(half.config, num_hidden_layers=13),
        )
    ]
    block = kept[1]["kept of the blocks"] - kept[0]["kept of the blocks"]
    rows, length, hidden, heads = 8, 512, 768, 12
    expected = 38 * length * rows * hidden + heads * length**2 * rows
    assert block == expected


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ({"rematerialize": True}, 0.3, 0.6),
        ({"precision": "mixed_bfloat16"}, 0.6, 0.9),
        ({"gradient_accumulation_steps": 2}, 0.5, 0.8),
        ({"max_seq_length": 256, "batch_size": 16}, 0.8, 0.999),
        ({"batch_size": 16}, 1.6, 2.0),
        ({"max_predictions_per_seq": 0}, 0.8, 0.999),
    ],
)
def test_direction(changes, low, high) -> None:
    ratio = predicted_bytes(changed(**changes), False) / predicted_bytes(
        BASE, False
    )
    assert low < ratio < high


@pytest.mark.parametrize("rematerialize", [False, True])
def test_the_largest_batch_is_the_largest(rematerialize) -> None:
    work = changed(rematerialize=rematerialize)
    rows = largest_batch(work, 16e9, on_cpu=False)
    assert predicted_bytes(work.with_batch(rows), False) <= 16e9
    assert predicted_bytes(work.with_batch(rows + 1), False) > 16e9
    assert largest_batch(work, 1e9, on_cpu=False) == 0


def test_the_min_slices() -> None:
    work = changed(batch_size=48)
    assert min_slices(work, 100e9, False) == 1
    slices = min_slices(work, 12e9, False)
    assert 48 % slices == 0
    cut = dataclasses.replace(work, gradient_accumulation_steps=slices)
    assert predicted_bytes(cut, False) <= 12e9
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
    assert "for train_batch_size=256, the same training fits with" in text
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
        bytes_more = predicted_bytes(work, on_cpu) - predicted_bytes(
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
    parts, before = (predicted_parts(w, False) for w in (work, plain))
    # The pooler, and two labels.
    head = 768 * 768 + 768 + 2 * 769
    assert parts["optimizer slots"] == 8 * (more + head)
    assert parts["weights"] == before["weights"] + 4 * more
    assert sum(parts.values()) < sum(before.values()) - 8 * 85e6
    text = plan(**settings, lora_rank=8, lora_on="all_dense", memory="9GB")
    assert "LoRA of rank 8 on all_dense" in text


def test_several_devices_share_a_batch() -> None:
    settings = {"size": "base", "memory": "12GB", "max_seq_length": 512}
    alone = plan(**settings, train_batch_size=4)
    shared = plan(**settings, train_batch_size=32, devices=8)
    (peak,) = (x for x in alone.splitlines() if x.startswith("  peak"))
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
        ({"size": "base", "max_seq_length": 513}, "takes 1 to 512, the max_p"),
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "length", "rows", "predictions", "layers", "share"),
    # The process alone has a gigabyte; where less is kept, less can be saved.
    [
        ("float32", 128, 48, 20, 12, 0.75),
        ("mixed_bfloat16", 512, 8, 0, 4, 1.0),
        ("mixed_bfloat16", 512, 24, 0, 12, 0.75),
    ],
    ids=["pretraining", "classifier", "long rows"],
)
def test_prediction_and_saving(
    precision, length, rows, predictions, layers, share
) -> None:
    """Real steps take what is predicted, and less if blocks are recomputed."""
    peaks = []
    config = dataclasses.replace(MEDIUM, num_hidden_layers=layers)
    for again in (False, True):
        work = Workload(
            config, length, rows, predictions, precision, rematerialize=again
        )
        found = measure(work, 8e9)
        assert found is not None
        predicted = predicted_bytes(work, on_cpu=True)
        assert predicted == pytest.approx(found.peak_bytes, rel=0.25)
        peaks.append(found.peak_bytes)
    assert peaks[1] < share * peaks[0]


@pytest.mark.slow
def test_a_trial_ends_at_its_limit() -> None:
    work = Workload(MEDIUM, 128, 4, 20)
    assert measure(work, 3e8) is None
