"""Reads and checks the data and weights of a training before it begins."""

import dataclasses
import hashlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from bert_tf.checkpoints import (
    LABELLED_HEADS,
    LORA,
    POOLER,
    Checkpoint,
    load_checkpoint,
    place_labels,
)
from bert_tf.config import BertConfig
from bert_tf.encoders import BertEncoder
from bert_tf.errors import UserError, whole_number
from bert_tf.families.config import check_segments
from bert_tf.families.data.examples import ExampleStream
from bert_tf.families.model_folder import load_model, task_of
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import RunSplit, Split, Task
from bert_tf.families.task_model import TaskModel
from bert_tf.progress import log
from bert_tf.sources import local_folder
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.training.run_folder import digest

_PADDED_ROWS = 128


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The data and initial weights that all seeds of a task share.

    Attributes:
      task: the resolved task.
      recipe: the settings, completed by the task.
      initial: the initial weights.
      tokenizer: the tokenizer of `initial`.
      config: task configuration of the trained model.
      train: training rows with their targets.
      dev: dev rows by split; the first split selects the best model.
      objective: the training objective.
      fresh: heads that are initialised instead of read from `initial`.
      doctor: statistics of the data check.
    """

    task: Task
    recipe: Any
    initial: Checkpoint
    tokenizer: Tokenizer
    config: Any
    train: Split
    dev: Mapping[str, Split]
    objective: Any
    fresh: tuple[str, ...]
    doctor: Mapping[str, Any]

    @property
    def main_split(self) -> str:
        """The dev split that selects the best model."""
        return next(iter(self.dev))


class ExaminedData(NamedTuple):
    """Checked data of a task.

    Attributes:
      examples: examples by split, the training split first.
      config: task configuration of a model trained on them.
      numbers: statistics of the data check.
    """

    examples: Mapping[str, Any]
    config: Any
    numbers: Mapping[str, Any]


def open_initial(recipe: FinetuningRecipe) -> tuple[Checkpoint, Tokenizer]:
    """Loads the initial model, and checks that it fits the recipe."""
    if not recipe.init_from:
        raise UserError(
            "`init_from`: name the model to fine-tune, a folder, "
            "hf://organisation/name or keras_hub://preset."
        )
    initial = load_checkpoint(recipe.init_from)
    source, config = f"`init_from`={recipe.init_from}", initial.config
    vocabulary = initial.require_tokenizer(source).vocabulary
    # Some models pad the table to a multiple of 128 for speed.
    vocabulary.require_rows(config.vocab_size, source, _PADDED_ROWS)
    for name, least, size in (
        ("max_seq_length", 1, "longest_input"),
        ("freeze_layers", -1, "num_hidden_layers"),
    ):
        most, why = getattr(config, size), f"{size} of {source}"
        whole_number(name, getattr(recipe, name), least, most, why)
    if config.shares_blocks and (
        recipe.freeze_layers > 0 or recipe.layer_decay != 1
    ):
        name = "layer_decay" if recipe.layer_decay != 1 else "freeze_layers"
        raise UserError(
            f"`{name}`={getattr(recipe, name)}: {source} is of {config.title}, "
            "whose layers share their weights, so they are trained alike; "
            "leave it out."
        )
    added: dict[str, Any] = {"bilstm": True} if recipe.bilstm else {}
    if recipe.lora_rank:
        for name in ("lora_rank", "lora_alpha", "lora_on"):
            added[name] = getattr(recipe, name)
    config = BertConfig.from_dict(config.to_dict() | added, source)
    initial = dataclasses.replace(initial, config=config)
    return initial, initial.make_tokenizer()


def load_and_check(
    task: Task,
    recipe: FinetuningRecipe,
    tokenizer: Tokenizer,
    load: Callable[[str, Any], Any],
) -> ExaminedData:
    """Reads the training and dev examples, and prints the data check.

    Args:
      task: the task.
      recipe: the settings.
      tokenizer: the tokenizer of the initial model.
      load: `task.load`, or `task.load_once` for the check alone.

    Raises:
      UserError: faults of one split or several.
    """
    dev = task.splits(task.dev_splits, recipe)
    examples = {}
    faults: dict[str, UserError] = {}
    for name in (task.train_split, *dev):
        if faults and not getattr(recipe, "dev_file", ""):
            # It may be split off the training file.
            break
        try:
            examples[name] = load(name, recipe)
        except UserError as error:
            faults[str(error)] = error
    if faults:
        raise _joined(faults)
    try:
        found = task.examine(recipe, tokenizer, examples)
    except UserError as error:
        # Streams are read while they are examined, one after the other.
        faults[str(error)] = error
        streams = [x for x in examples.values() if isinstance(x, ExampleStream)]
        for stream in [x for x in streams if not x.is_read][1:]:
            try:
                for _ in stream:
                    pass
            except UserError as other:
                faults[str(other)] = other
        raise _joined(faults) from None
    print(*found.lines, sep="\n", flush=True)
    config = task.configure(recipe, examples[task.train_split])
    for rows in examples.values():
        task.check(rows, config)
    # Too few rows to tune on are refused before the training.
    task.tuner(recipe, examples[dev[0]])
    numbers = found.numbers | {"lines": found.lines}
    return ExaminedData(examples, config, numbers)


def _joined(faults: Mapping[str, UserError]) -> UserError:
    """Returns the errors of several splits as one, or the only one."""
    first, *others = faults.values()
    return UserError(" ".join(faults)) if others else first


def prepare_training(
    task: Task,
    recipe: FinetuningRecipe,
    initial: Checkpoint,
    tokenizer: Tokenizer,
    output_dir: pathlib.Path,
) -> TrainingData:
    """Reads and encodes the training and dev rows."""
    by_split, config, numbers = load_and_check(
        task, recipe, tokenizer, task.load
    )
    source = f"`init_from`={recipe.init_from}"
    packing = tokenizer.packing
    check_segments(source, initial.config, packing, config.texts_per_row)
    train = by_split[task.train_split]
    objective = task.loss(recipe, train, config)
    initial, fresh = _place_head(task, recipe, initial, config)
    new_head = config.head in fresh or config.head not in initial.heads
    recipe = task.complete(recipe, train, initial, new_head)
    encoder = task.encoder_config(recipe, initial.config)
    initial = dataclasses.replace(initial, config=encoder)
    splits = {}
    for name, examples in by_split.items():
        labelled = name == task.train_split
        run = RunSplit(name, initial, recipe, output_dir)
        rows = task.encode(examples, tokenizer, config, labelled, run)
        splits[name] = Split(examples, rows)
    return TrainingData(
        task,
        recipe,
        initial,
        tokenizer,
        config,
        splits.pop(task.train_split),
        splits,
        objective,
        fresh,
        numbers,
    )


def _place_head(
    task: Task, recipe: FinetuningRecipe, initial: Checkpoint, config: Any
) -> tuple[Checkpoint, tuple[str, ...]]:
    """Reorders the initial head to the task's labels.

    Returns:
      The initial model, and the parts that are initialised instead of read
      from it. A log line explains why a head is not reused.
    """
    # A pooler that the task does not read is reinitialised without a message.
    is_needed = POOLER in initial.heads or config.reads_pooler
    unread = () if is_needed else (POOLER,)
    if initial.config.lora_rank:
        unread = (*unread, LORA)
    if config.head not in initial.heads:
        return initial, unread
    if recipe.reset_head:
        return initial, (*unread, config.head)
    if config.head not in LABELLED_HEADS:
        return initial, unread
    placed = place_labels(
        initial, config.head, config.labels, config.problem_type
    )
    if placed is None:
        return initial, (*unread, config.head)
    trained_for = task_of(local_folder(recipe.init_from))
    if trained_for not in (None, task.name):
        log(
            f"{recipe.init_from}: its {config.head} was fine-tuned for "
            f"{trained_for} and is reused, since the labels have the same "
            "names; pass `reset_head`=true to start a new one."
        )
    return placed, unread


def open_teacher(
    data: TrainingData, recipe: FinetuningRecipe, unpadded: bool
) -> TaskModel:
    """Loads the teacher that the recipe names.

    Args:
      data: the student's training data.
      recipe: the settings.
      unpadded: see `Task.build`.

    Raises:
      UserError: the teacher was not fine-tuned for the task, or has another
        vocabulary or other labels than the student.
    """
    model, tokenizer, config = load_model(
        recipe.teacher,
        data.task,
        recipe.precision,
        unpadded,
        data.config.labels,
    )
    fault = ""
    if tokenizer.data != data.tokenizer.data:
        fault = "another vocabulary than the student's"
    elif config.labels != data.config.labels:
        fault = "other labels than the training rows"
    if fault:
        raise UserError(
            f"`teacher`={recipe.teacher}: has {fault}, so their outputs cannot "
            "be compared; give a model that was fine-tuned with the same."
        )
    return model


def freeze(encoder: BertEncoder, layers: int, reads_pooler: bool) -> None:
    """Freezes the embeddings and the first layers.

    Args:
      encoder: the encoder.
      layers: number of layers besides the embeddings; -1 freezes nothing.
      reads_pooler: False freezes the pooler too.
    """
    frozen = [] if reads_pooler else [encoder.pooler]
    if layers >= 0:
        frozen += [encoder.embeddings, *encoder.blocks[:layers]]
    for layer in frozen:
        layer.trainable = False


def lr_multipliers(
    encoder: BertEncoder, variables: Sequence[keras.Variable], decay: float
) -> list[float]:
    """Returns the layer-wise learning rate multiplier of each variable.

    The multiplier is decay ** depth. The depth is 0 for the head, the pooler
    and a BiLSTM, 1 for the last layer, and L + 1 for the embeddings; for an
    ELECTRA 2 to L + 2 (google-research/electra, model/optimization.py,
    _get_layer_lrs).
    """
    depths: dict[int, int] = {}
    stack = [encoder.embeddings, *encoder.blocks]
    last = encoder.config.decay_above_blocks
    for depth, layer in enumerate(reversed(stack), start=last):
        depths |= {id(v): depth for v in layer.variables}
    return [decay ** depths.get(id(v), 0) for v in variables]


def fingerprint(
    data: TrainingData, frozen: Sequence[keras.Variable]
) -> dict[str, str]:
    """Returns digests of everything that must be unchanged to resume a run."""
    dev = data.dev[data.main_split]
    return {
        "architecture": digest(data.initial.config.to_dict()),
        "vocabulary": data.tokenizer.vocabulary.digest(),
        "list of labels": digest(list(data.config.labels)),
        "set of training rows": _digest_of(*data.train.rows.arrays),
        # The best score so far is compared with later scores.
        "set of dev rows": digest(
            [_digest_of(*dev.rows.arrays), data.task.references(dev.examples)]
        ),
        "set of frozen weights": _digest_of(*(v.numpy() for v in frozen)),
    }


def _digest_of(*arrays: np.ndarray) -> str:
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).view(np.uint8).data)
    return sha.hexdigest()
