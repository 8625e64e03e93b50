"""Which batch a device's memory holds, and what to do where it does not."""

import dataclasses
from collections.abc import Callable

from bert_tf.errors import UserError
from bert_tf.training.memory import (
    Workload,
    fewest_slices,
    largest_batch,
    predicted_bytes,
    predicted_parts,
)
from bert_tf.training.memory_measure import (
    MakeTrial,
    device_name,
    free_memory,
    has_gpu,
    largest_measured,
    measure,
)
from bert_tf.training.memory_settings import PlanSettings, parse_memory

# Those of the table of google-research/bert's README.
_SIZES, _LENGTHS = ("base", "large"), (64, 128, 256, 320, 384, 512)
# What other programs may come to take meanwhile.
_SHARE_OF_FREE = 0.9


def plan_memory(
    settings: PlanSettings,
    make: MakeTrial | None,
    say: Callable[[str], None] = print,
) -> None:
    """Says what a training takes, which batches fit, and how others can.

    Args:
      settings: what is to be trained.
      make: measures too, with training steps of the model and the batch that
        it makes; None predicts alone.
      say: takes the lines.

    Raises:
      UserError: settings that cannot be, or not a single row fits.
    """
    work = settings.workload()
    on_cpu = not has_gpu()
    if settings.memory:
        limit = parse_memory(settings.memory)
    else:
        limit = free_memory() * (_SHARE_OF_FREE if on_cpu else 1)
    say(_headline(settings, work, limit))
    fitting = largest_batch(work, limit, on_cpu)
    wanted = settings.train_batch_size // settings.devices
    shown = work.with_batch(wanted or fitting or 1)
    for line in _parts_lines(shown, on_cpu):
        say(line)
    say(f"predicted to fit: {fitting} rows" + _of_a_step(settings, fitting))
    if make is not None:
        _measure(work, wanted, fitting, limit, on_cpu, make, say)
    elif not fitting and not wanted:
        raise _nothing_fits(work, limit, on_cpu)
    if wanted > fitting:
        for line in _advice(settings, shown, limit, on_cpu):
            say(line)
    for line in _table(settings, limit, on_cpu):
        say(line)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.2f} GB"


def _headline(settings: PlanSettings, work: Workload, limit: float) -> str:
    name = settings.size or settings.config_file or settings.init_from
    what = "classifier"
    if work.max_predictions_per_seq:
        what = f"pre-training, {work.max_predictions_per_seq} predictions a row"
    again = ", rematerialize" if work.rematerialize else ""
    whose = "given" if settings.memory else device_name()
    return (
        f"{name}, {work.num_parameters / 1e6:.1f} M parameters, "
        f"{work.max_seq_length} tokens, {what}, {work.precision}, "
        f"{work.optimizer}{again}; memory {_gigabytes(limit)} ({whose})"
    )


def _of_a_step(settings: PlanSettings, rows: int) -> str:
    if settings.devices == 1:
        return ""
    return f" a device, {rows * settings.devices} in a step"


def _parts_lines(work: Workload, on_cpu: bool) -> list[str]:
    parts = predicted_parts(work, on_cpu)
    lines = [f"predicted for {work.batch_size} rows:"]
    lines += [f"  {k:<38}{_gigabytes(v):>10}" for k, v in parts.items() if v]
    return [*lines, f"  {'peak':<38}{_gigabytes(sum(parts.values())):>10}"]


def _measure(
    work: Workload,
    wanted: int,
    fitting: int,
    limit: float,
    on_cpu: bool,
    make: MakeTrial,
    say: Callable[[str], None],
) -> None:
    """Measures the wanted batch, or finds the largest."""
    if wanted:
        rows, found = wanted, measure(work.with_batch(wanted), make, limit)
        if found is None:
            say(f"measured: {wanted} rows do not fit")
            return
    else:
        rows, found = largest_measured(work, make, limit, fitting, say)
        if found is None:
            raise UserError(
                f"nothing fits: a step of one row of {work.max_seq_length} "
                f"tokens took more than {_gigabytes(limit)}."
            )
    predicted = predicted_bytes(work.with_batch(rows), on_cpu)
    say(
        f"measured: {rows} rows take {_gigabytes(found.peak_bytes)} "
        f"(predicted {_gigabytes(predicted)}, "
        f"{predicted / found.peak_bytes - 1:+.0%}), "
        f"{found.step_seconds:.2f} s a step"
    )


def _nothing_fits(work: Workload, limit: float, on_cpu: bool) -> UserError:
    row = dataclasses.replace(work, batch_size=1, gradient_accumulation_steps=1)
    again = dataclasses.replace(row, rematerialize=True)
    return UserError(
        f"nothing fits: one row of {work.max_seq_length} tokens takes "
        f"{_gigabytes(predicted_bytes(row, on_cpu))}, "
        f"{_gigabytes(predicted_bytes(again, on_cpu))} with rematerialization, "
        f"and there are {_gigabytes(limit)}; take a smaller size, shorter "
        "rows or another device."
    )


def _advice(
    settings: PlanSettings, work: Workload, limit: float, on_cpu: bool
) -> list[str]:
    """How a batch can be trained that does not fit as it is."""
    lines = []
    for again in sorted({work.rematerialize, True}):
        changed = dataclasses.replace(work, rematerialize=again)
        slices = fewest_slices(changed, limit, on_cpu)
        if not slices:
            continue
        taken = ["`rematerialize`=true"] if again else []
        if slices > 1:
            taken.append(f"`gradient_accumulation_steps`={slices}")
        rows = work.batch_size // slices
        lines.append(f"  {' '.join(taken)}  ({rows} rows at a time)")
    if not lines:
        raise _nothing_fits(work, limit, on_cpu)
    batch = settings.train_batch_size
    return [
        f"for train_batch_size={batch}, the same training fits with",
        *lines,
    ]


def _table(settings: PlanSettings, limit: float, on_cpu: bool) -> list[str]:
    """The largest batches, as in the README of google-research/bert."""
    kinds = [(s, again) for again in (False, True) for s in _SIZES]
    names = [f"{s}, rematerialize" if again else s for s, again in kinds]
    lines = [
        f"largest batch of a device with {_gigabytes(limit)}, predicted:",
        f"| max_seq_length | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for length in _LENGTHS:
        cells = [str(length)]
        for size, again in kinds:
            work = settings.of_size(size, length)
            work = dataclasses.replace(
                work, rematerialize=again, gradient_accumulation_steps=1
            )
            cells.append(str(largest_batch(work, limit, on_cpu)))
        lines.append(f"| {' | '.join(cells)} |")
    return lines
