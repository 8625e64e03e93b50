"""What a training needs, read and checked before it begins."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints import CLASSIFIER, Checkpoint, load_checkpoint
from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.finetuning.batches import LabelledRows
from bert_tf.finetuning.data.examples import Example
from bert_tf.finetuning.doctor import data_doctor
from bert_tf.finetuning.encoding import EncodedRows, encode
from bert_tf.finetuning.kinds.own_file import OwnFileRecipe
from bert_tf.finetuning.kinds.sentence_recipe import SentenceRecipe
from bert_tf.finetuning.kinds.sentence_task import SentenceTask
from bert_tf.finetuning.model_folder import TaskFacts, read_task_facts
from bert_tf.progress import notice
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.training.run_folder import digest

_PADDED_ROWS = 128


@dataclasses.dataclass(frozen=True)
class Split:
    """The rows of a split, in both forms.

    Attributes:
      examples: N examples.
      rows: their token ids.
    """

    examples: Sequence[Example]
    rows: EncodedRows


@dataclasses.dataclass(frozen=True)
class Material:
    """All that the trainings of a task share, whatever their seed.

    Attributes:
      task: the task, prepared.
      initial: the weights to start from.
      tokenizer: that of `initial`.
      facts: how to use the model that is trained.
      train: the rows to train on.
      dev: split to its rows, the one to choose the best model by first.
      data: `train` with its targets.
      objective: what to train for.
      fresh: heads of `initial` that are of no use.
      doctor: the data doctor's numbers.
    """

    task: SentenceTask
    initial: Checkpoint
    tokenizer: BertTokenizer
    facts: TaskFacts
    train: Split
    dev: Mapping[str, Split]
    data: LabelledRows
    objective: Any
    fresh: tuple[str, ...]
    doctor: Mapping[str, Any]

    @property
    def main_split(self) -> str:
        """The dev split by which the best model is chosen."""
        return next(iter(self.dev))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of the outputs."""
        return self.facts.labels


@dataclasses.dataclass(frozen=True)
class Looked:
    """The rows of a task, read and looked over.

    Attributes:
      examples: split to its examples; the first one is the one to train on.
      labels: in the order of the outputs.
      targets: split to what the model is to learn.
      numbers: the data doctor's.
    """

    examples: Mapping[str, Sequence[Example]]
    labels: tuple[str, ...]
    targets: Mapping[str, np.ndarray]
    numbers: Mapping[str, Any]


def open_initial(recipe: SentenceRecipe) -> tuple[Checkpoint, BertTokenizer]:
    """Opens the model to start from.

    Raises:
      UserError: none is given, it holds no vocabulary, or it does not fit
        the recipe.
    """
    if not recipe.init_from:
        raise UserError(
            "--init_from: name the model to fine-tune, a folder, "
            "hf://organisation/name or keras_hub://preset."
        )
    initial = load_checkpoint(recipe.init_from)
    source, config = f"--init_from={recipe.init_from}", initial.config
    if initial.vocabulary is None:
        raise UserError(
            f"{source}: holds no vocabulary; put the vocab.txt that it was "
            "trained with into the folder."
        )
    tokens = len(initial.vocabulary)
    # Some pad the table to a multiple of 128 for speed.
    if config.vocab_size - tokens >= _PADDED_ROWS:
        raise UserError(
            f"{source}: its vocabulary has {tokens} tokens, but the model has "
            f"vocab_size {config.vocab_size}, so it is another model's or cut "
            "off; put the vocab.txt that it was trained with into the folder, "
            "or fit the model to this one with tools.convert_checkpoint "
            "--vocab_file."
        )
    if recipe.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"max_seq_length={recipe.max_seq_length}: is above "
            f"max_position_embeddings {config.max_position_embeddings} of "
            f"{source}; choose at most that, with --set long_inputs=windows "
            "to read all of a longer text."
        )
    if recipe.freeze_layers > config.num_hidden_layers:
        raise UserError(
            f"freeze_layers={recipe.freeze_layers}: {source} has "
            f"{config.num_hidden_layers} layers; choose at most that."
        )
    return initial, BertTokenizer.from_checkpoint(recipe.init_from)


def encode_examples(
    examples: Sequence[Example],
    tokenizer: BertTokenizer,
    facts: TaskFacts,
) -> EncodedRows:
    """`encode`, as the facts of a model say."""
    return encode(
        examples,
        tokenizer,
        facts.max_seq_length,
        facts.long_inputs,
        facts.doc_stride,
    )


def look_over(
    task: SentenceTask, recipe: SentenceRecipe, tokenizer: BertTokenizer
) -> Looked:
    """Reads the training and dev rows and prints the data doctor's lines.

    Args:
      task: the task, prepared.
      recipe: says where the data are and how to read them.
      tokenizer: of the model that will be trained.

    Raises:
      UserError: the data are missing or broken, or no model can learn them.
    """
    dev = task.present_splits(task.dev_splits, recipe)
    examples = {k: task.read(k, recipe) for k in (task.train_split, *dev)}
    numbers = data_doctor.examine(task, recipe, tokenizer, examples)
    print(data_doctor.lines(numbers), flush=True)
    labels = task.labels_of(examples[task.train_split])
    # Raises where a dev label is not one of the training rows'.
    targets = {k: task.targets(rows, labels) for k, rows in examples.items()}
    return Looked(examples, labels, targets, numbers)


def gather(
    task: SentenceTask,
    recipe: SentenceRecipe,
    initial: Checkpoint,
    tokenizer: BertTokenizer,
) -> Material:
    """Reads and encodes the training and dev rows.

    Args:
      task: the task, prepared.
      recipe: what to do.
      initial: the model to start from.
      tokenizer: its tokenizer.

    Raises:
      UserError: the data are missing or broken, or do not fit the model.
    """
    looked = look_over(task, recipe, tokenizer)
    labels, targets = looked.labels, looked.targets[task.train_split]
    pairs = looked.examples[task.train_split][0].text_b is not None
    facts = facts_of(task, recipe, labels, 2 if pairs else 1)
    _check_segments(facts, initial, recipe)
    dev = {
        name: Split(rows, encode_examples(rows, tokenizer, facts))
        for name, rows in looked.examples.items()
    }
    train = dev.pop(task.train_split)
    objective = task.make_objective(
        class_weights_of(recipe.class_weights, targets, labels)
    )
    return Material(
        task,
        initial,
        tokenizer,
        facts,
        train,
        dev,
        LabelledRows(train.rows, objective.label_name, targets),
        objective,
        _fresh_heads(task, recipe, initial, labels),
        looked.numbers,
    )


def _check_segments(
    facts: TaskFacts, initial: Checkpoint, recipe: SentenceRecipe
) -> None:
    if facts.num_texts == 2 and initial.config.type_vocab_size < 2:
        raise UserError(
            f"--init_from={recipe.init_from}: type_vocab_size is "
            f"{initial.config.type_vocab_size}, so it cannot tell the two "
            "texts of a pair apart; choose another model."
        )


def class_weights_of(
    setting: str, targets: np.ndarray, labels: Sequence[str]
) -> list[float] | None:
    """The weights of the classes that the recipe asks for.

    Args:
      setting: `class_weights` of the recipe.
      targets: int32 [N], the classes of the training examples.
      labels: the C classes.

    Returns:
      C weights; None for no weights. "balanced" gives each class the same
      sum of weights over the training examples, and 1 on average.

    Raises:
      UserError: the setting is no list of one number for each class.
    """
    if not setting:
        return None
    # For tasks without classes, `make_objective` says it better.
    if targets.ndim > 1 or targets.dtype != np.int32:
        return []
    if setting == "balanced":
        counts = np.bincount(targets, minlength=len(labels))
        present = np.maximum(counts, 1)
        return list(len(targets) / (np.sum(counts > 0) * present))
    try:
        weights = [float(part) for part in setting.split(",")]
    except ValueError:
        weights = []
    # With a weight of 0, a batch of that class alone would have no mean.
    good = all(0 < weight < math.inf for weight in weights)
    if not good or len(weights) != len(labels):
        raise UserError(
            f"class_weights={setting}: give balanced, or {len(labels)} numbers "
            f"above 0 for the labels {', '.join(labels)}."
        )
    return weights


def _fresh_heads(
    task: SentenceTask,
    recipe: SentenceRecipe,
    initial: Checkpoint,
    labels: tuple[str, ...],
) -> tuple[str, ...]:
    """Heads of the initial model that do not serve this task; tells so."""
    if CLASSIFIER not in initial.heads:
        return ()
    facts = read_task_facts(recipe.init_from)
    if facts is not None:
        same = (facts.task, facts.labels) == (task.name, labels)
        theirs = facts.task
    else:
        # Without labels, a head may be of any task.
        same = bool(labels) and initial.labels == labels
        theirs = ", ".join(initial.labels or ("unknown labels",))
    if same:
        return ()
    notice(
        f"{recipe.init_from}: its classifier is of another task ({theirs}); "
        "starts fresh."
    )
    return (CLASSIFIER,)


def facts_of(
    task: SentenceTask,
    recipe: SentenceRecipe,
    labels: tuple[str, ...],
    num_texts: int,
) -> TaskFacts:
    """What task.json holds of a model that this recipe trains."""
    # Of a setting that this task does not have, what own files begin with.
    values = OwnFileRecipe().to_dict() | recipe.to_dict()
    return TaskFacts(
        task=task.name,
        label_kind=task.label_kind,
        labels=labels,
        num_outputs=task.num_outputs(labels),
        num_texts=num_texts,
        text_columns=values["text_columns"],
        label_separator=values["label_separator"],
        max_seq_length=recipe.max_seq_length,
        long_inputs=recipe.long_inputs,
        doc_stride=recipe.doc_stride,
        threshold=values["threshold"],
    )


def freeze(encoder: BertEncoder, layers: int) -> list[keras.Variable]:
    """Stops training of the embeddings and the first layers.

    Args:
      encoder: the encoder.
      layers: how many layers besides the embeddings; -1 for nothing at all.

    Returns:
      The weights that are not trained any more.
    """
    if layers < 0:
        return []
    frozen = [encoder.embeddings, *encoder.blocks[:layers]]
    for layer in frozen:
        layer.trainable = False
    # Seeds of dropout are variables too, and not among the weights.
    seeds = "seed_generator_state"
    return [v for x in frozen for v in x.variables if v.name != seeds]


def rate_factors(
    encoder: BertEncoder, variables: Sequence[keras.Variable], decay: float
) -> list[float]:
    """What the learning rate of each variable is multiplied by.

    Args:
      encoder: an encoder of L layers.
      variables: weights of the encoder and of what stands on it.
      decay: factor from a layer to the one below it.

    Returns:
      decay ** depth: 0 for the head and the pooler, 1 for the last layer, and
      so on to L + 1 for the embeddings.
    """
    depths = {}
    stack = [encoder.embeddings, *encoder.blocks]
    for depth, layer in enumerate(reversed(stack), start=1):
        depths |= {id(v): depth for v in layer.variables}
    return [decay ** depths.get(id(v), 0) for v in variables]


def identity(
    material: Material, frozen: Sequence[keras.Variable]
) -> dict[str, str]:
    """Digests of what a run must find again when it is resumed."""
    train, dev = material.data.rows, material.dev[material.main_split]
    answers = [example.label for example in dev.examples]
    return {
        "architecture": digest(material.initial.config.to_dict()),
        "vocabulary": material.tokenizer.vocabulary.digest(),
        "list of labels": digest(list(material.labels)),
        "set of training rows": _digest_of(
            train.ids, train.starts, material.data.labels
        ),
        # The best score so far is compared with the scores to come.
        "set of dev rows": digest(
            [_digest_of(dev.rows.ids, dev.rows.starts), answers]
        ),
        "set of frozen weights": _digest_of(*(v.numpy() for v in frozen)),
    }


def _digest_of(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
