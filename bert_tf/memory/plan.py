"""The plan of a training's memory: which batch fits, and how to fit more."""

import dataclasses
import re
from collections.abc import Callable

from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import SIZE_HELP, BertConfig
from bert_tf.errors import UserError
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.memory.prediction import (
    Workload,
    estimated_bytes,
    largest_batch,
    min_slices,
)
from bert_tf.recipe import Settings, like, setting
from bert_tf.training.recipe import TrainingRecipe

OBJECTIVES = ("pretraining", "classifier")
_UNITS = {"GB": 1e9, "GIB": 2.0**30, "MB": 1e6, "MIB": 2.0**20}


@dataclasses.dataclass(frozen=True)
class PlanSettings(Settings):
    """The training and the device whose memory is planned."""

    size: str = setting("", SIZE_HELP)
    config_file: str = setting("", "bert_config.json, instead of a size")
    init_from: str = setting("", "a model folder, instead of a size")
    vocab_size: int = setting(30_522, "tokens of the vocabulary, with a size")
    objective: str = setting(
        "pretraining",
        f"one of {', '.join(OBJECTIVES)} (of sentences)",
        choices=OBJECTIVES,
    )
    max_seq_length: int = setting(128, "tokens in a row")
    max_predictions_per_seq: int = setting(
        0,
        "masked tokens in a row; 0 = 15 % of the row",
        at_least=0,
        at_most=lambda plan: plan.max_seq_length,
        why="`max_seq_length`",
    )
    precision: str = like(TrainingRecipe, "precision")
    optimizer: str = like(TrainingRecipe, "optimizer")
    rematerialize: bool = setting(
        False, "recompute each block in the backward pass"
    )
    bilstm: bool = setting(
        False, "add a BiLSTM on top of the encoder of a classifier"
    )
    lora_rank: int = setting(
        0, "rank of a classifier's LoRA updates; 0 = no LoRA", at_least=0
    )
    lora_on: str = like(FinetuningRecipe, "lora_on")
    gradient_accumulation_steps: int = setting(
        1, "slices of a device's batch", at_least=1
    )
    train_batch_size: int = setting(
        0,
        "sequences in a step, over all devices; 0 = the most that fit",
        at_least=0,
    )
    devices: int = setting(1, "devices that share the batch", at_least=1)
    memory: str = setting(
        "", "memory of a device, such as 16GB; empty = that of this machine"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.devices * self.gradient_accumulation_steps
        good = self.train_batch_size % parts == 0
        self._check("train_batch_size", good, f"a multiple of {parts}")
        if self.memory:
            parse_memory(self.memory)

    def workload(self) -> Workload:
        """Returns the workload of a device.

        Raises:
          UserError: no architecture or several, or settings that do not fit it.
        """
        sources = (self.size, self.config_file, self.init_from)
        if sum(map(bool, sources)) != 1:
            raise UserError(
                "give one of `size`, `config_file` and `init_from`."
            )
        if self.size:
            config = BertConfig.from_size(self.size, self.vocab_size)
        elif self.config_file:
            config = BertConfig.from_json(self.config_file)
        else:
            config = load_checkpoint(self.init_from).config
        longest = config.longest_input
        good = 1 <= self.max_seq_length <= longest
        self._check(
            "max_seq_length", good, f"1 to {longest}, the longest input"
        )
        return self.with_config(config, self.max_seq_length)

    def with_config(self, config: BertConfig, length: int) -> Workload:
        """Returns the workload of another architecture and sequence length."""
        if self.bilstm:
            config = dataclasses.replace(config, bilstm=True)
        if self.lora_rank:
            config = dataclasses.replace(
                config, lora_rank=self.lora_rank, lora_on=self.lora_on
            )
        predictions = 0
        if self.objective == "pretraining":
            if config.bilstm:
                raise UserError(
                    "`objective`=pretraining: a BiLSTM (bilstm is true) is for "
                    "fine-tuning only; choose `objective`=classifier."
                )
            if config.lora_rank:
                raise UserError(
                    f"lora_rank={config.lora_rank}: LoRA is for fine-tuning "
                    "only; choose `objective`=classifier."
                )
            # google-research/bert's README: max_seq_length * masked_lm_prob.
            predictions = max(round(0.15 * length), 1)
            if length == self.max_seq_length:
                predictions = self.max_predictions_per_seq or predictions
        return Workload(
            config,
            length,
            max(self.train_batch_size // self.devices, 1),
            predictions,
            self.precision,
            self.optimizer,
            self.rematerialize,
            self.gradient_accumulation_steps,
        )


def parse_memory(text: str) -> float:
    """Parses a size such as 16GB, 11.5 GiB or 800MB to bytes."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([GM]i?B)\s*", text, re.I)
    if not match or not float(match[1]):
        raise UserError(
            f"`memory`={text}: give a number and GB, GiB, MB or MiB, such as "
            "16GB."
        )
    return float(match[1]) * _UNITS[match[2].upper()]


# The sizes and lengths of the table in google-research/bert's README.
_SIZES, _LENGTHS = ("base", "large"), (64, 128, 256, 320, 384, 512)
# The rest is for other programs.
_SHARE_OF_FREE = 0.9


def plan_memory(
    settings: PlanSettings,
    measured: bool,
    log: Callable[[str], None] = print,
) -> None:
    """Logs the memory of a training, the batches that fit, and how to fit more.

    Args:
      settings: the training and the device.
      measured: whether to run training steps too, in separate processes.
      log: prints a line.
    """
    # Imports TensorFlow, which takes seconds, after the settings are checked.
    from bert_tf.memory.measurement import device_name, free_memory, has_gpu

    work = settings.workload()
    on_cpu = not has_gpu()
    if settings.memory:
        limit = parse_memory(settings.memory)
    else:
        limit = free_memory() * (_SHARE_OF_FREE if on_cpu else 1)
    device = "given" if settings.memory else device_name()
    headline = [
        settings.size or settings.config_file or settings.init_from,
        f"{work.num_parameters / 1e6:.1f} M parameters",
        f"{work.max_seq_length} tokens",
        "classifier"
        if not work.max_predictions_per_seq
        else f"pre-training, {work.max_predictions_per_seq} predictions a row",
    ]
    if rank := work.config.lora_rank:
        headline.append(f"LoRA of rank {rank} on {work.config.lora_on}")
    headline += [work.precision, work.optimizer]
    headline += ["rematerialize"] * work.rematerialize
    log(f"{', '.join(headline)}; memory {_gigabytes(limit)} ({device})")
    fitting = largest_batch(work, limit, on_cpu)
    requested = settings.train_batch_size // settings.devices
    example = work.with_batch(requested or fitting or 1)
    peak = _gigabytes(estimated_bytes(example, on_cpu))
    log(f"estimated for {example.batch_size} rows: {peak}")
    in_a_step = ""
    if settings.devices > 1:
        in_a_step = f" a device, {fitting * settings.devices} in a step"
    log(f"estimated to fit: {fitting} rows{in_a_step}")
    if measured:
        _measure(work, requested, fitting, limit, on_cpu, log)
    elif not fitting and not requested:
        raise _nothing_fits(work, limit, on_cpu)
    if requested > fitting:
        log(
            f"for train_batch_size={settings.train_batch_size}, the same "
            "training fits with"
        )
        for line in _alternatives(example, limit, on_cpu):
            log(line)
    _log_table(settings, limit, on_cpu, log)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.2f} GB"


def _measure(
    work: Workload,
    requested: int,
    fitting: int,
    limit: float,
    on_cpu: bool,
    log: Callable[[str], None],
) -> None:
    """Measures the requested batch, or searches for the largest."""
    from bert_tf.memory.measurement import largest_measured, measure

    if requested:
        rows, result = requested, measure(work.with_batch(requested), limit)
        if result is None:
            log(f"measured: {requested} rows do not fit")
            return
    else:
        rows, result = largest_measured(work, limit, fitting, log)
        if result is None:
            raise UserError(
                f"nothing fits: a step of one row of {work.max_seq_length} "
                f"tokens took more than {_gigabytes(limit)}."
            )
    estimated = estimated_bytes(work.with_batch(rows), on_cpu)
    log(
        f"measured: {rows} rows take {_gigabytes(result.peak_bytes)} "
        f"(estimated {_gigabytes(estimated)}, "
        f"{estimated / result.peak_bytes - 1:+.0%}), "
        f"{result.step_seconds:.2f} s a step"
    )


def _nothing_fits(work: Workload, limit: float, on_cpu: bool) -> UserError:
    row = dataclasses.replace(work, batch_size=1, gradient_accumulation_steps=1)
    again = dataclasses.replace(row, rematerialize=True)
    return UserError(
        f"nothing fits: one row of {work.max_seq_length} tokens takes "
        f"about {_gigabytes(estimated_bytes(row, on_cpu))}, "
        f"{_gigabytes(estimated_bytes(again, on_cpu))} with rematerialization, "
        f"and there are {_gigabytes(limit)}; take a smaller size, shorter "
        "rows or another device."
    )


def _alternatives(work: Workload, limit: float, on_cpu: bool) -> list[str]:
    """Returns settings with which a batch fits that otherwise does not."""
    lines = []
    for again in sorted({work.rematerialize, True}):
        changed = dataclasses.replace(work, rematerialize=again)
        if slices := min_slices(changed, limit, on_cpu):
            assignments = ["`rematerialize`=true"] * again
            if slices > 1:
                assignments.append(f"`gradient_accumulation_steps`={slices}")
            rows = work.batch_size // slices
            lines.append(f"  {' '.join(assignments)}  ({rows} rows at a time)")
    if not lines:
        raise _nothing_fits(work, limit, on_cpu)
    return lines


def _log_table(
    settings: PlanSettings,
    limit: float,
    on_cpu: bool,
    log: Callable[[str], None],
) -> None:
    """Logs the largest batches, as in google-research/bert's README."""
    kinds = [(s, again) for again in (False, True) for s in _SIZES]
    names = [f"{s}, rematerialize" if again else s for s, again in kinds]
    log(f"largest batch of a device with {_gigabytes(limit)}, estimated:")
    log(f"| max_seq_length | {' | '.join(names)} |")
    log("|---" * (len(names) + 1) + "|")
    for length in _LENGTHS:
        cells = [str(length)]
        for size, again in kinds:
            config = BertConfig.from_size(size, settings.vocab_size)
            work = dataclasses.replace(
                settings.with_config(config, length),
                rematerialize=again,
                gradient_accumulation_steps=1,
            )
            cells.append(str(largest_batch(work, limit, on_cpu)))
        log(f"| {' | '.join(cells)} |")
