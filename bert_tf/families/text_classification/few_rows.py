"""Settings by the number of rows: what a user leaves to the run.

The paper's settings take a few steps on a few rows, from a random head on a
token that was never trained to summarise. With few rows the head reads the mean
of the tokens, begins as a linear model of the frozen encoder's outputs, and all
weights are trained for more epochs of smaller batches.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints import Checkpoint
from bert_tf.config import CLS, MEAN
from bert_tf.families.data.examples import Example
from bert_tf.families.text_classification.recipe import (
    FITTED,
    GIVEN,
    SentenceRecipe,
)
from bert_tf.progress import log

# Devlin et al. 2019, appendix A.3.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 3.0, 32, 5e-5
# With few rows: as many passes as this many rows need, at most so many epochs.
_ROWS_SEEN, _MOST_EPOCHS, _FEW_BATCH_SIZE = 4000, 20.0, 16
# A narrower encoder takes a higher learning rate, in proportion.
_WIDTH = 768


def complete(
    recipe: SentenceRecipe,
    examples: Sequence[Example],
    initial: Checkpoint,
    new_head: bool,
) -> SentenceRecipe:
    """Returns the recipe with the settings that it leaves to the run.

    Prints a line if the rows are few, less than 1,334.

    Args:
      recipe: the recipe of the run.
      examples: the examples to train on.
      initial: the model to start from.
      new_head: whether the head is not read from `initial`.
    """
    rows, own = len(examples), initial.config
    epochs = min(_ROWS_SEEN / rows, _MOST_EPOCHS)
    few = epochs > _EPOCHS
    # The outputs of a BiLSTM mean nothing before it is trained, and an adapter
    # does not say what the head reads.
    given = own.bilstm or recipe.teacher or recipe.lora_rank
    fits = few and new_head and not given
    values = {
        "num_train_epochs": max(round(epochs, 1), _EPOCHS),
        "train_batch_size": _FEW_BATCH_SIZE if few else _BATCH_SIZE,
        "learning_rate": _LEARNING_RATE,
        "classifier_pooling": MEAN if fits else own.classifier_pooling,
        "head_start": FITTED if fits else GIVEN,
    }
    if few:
        wider = max(_WIDTH / own.hidden_size, 1.0)
        values["learning_rate"] = float(f"{_LEARNING_RATE * wider:.1g}")
    fields = {field.name: field for field in dataclasses.fields(recipe)}
    chosen: dict[str, Any] = {
        name: value
        for name, value in values.items()
        if fields[name].metadata["chosen_by_run"]
        and getattr(recipe, name) == fields[name].default
    }
    if few and chosen:
        shown = ", ".join(f"{name}={value}" for name, value in chosen.items())
        print(f"few rows ({rows:,}), so {shown}", flush=True)
        pooling = chosen.get("classifier_pooling")
        if pooling == MEAN and not own.states_pooling:
            log(
                f"classifier_pooling={pooling}: transformers has no such head "
                "and will not read the model; if it is to be converted, pass "
                f"`classifier_pooling`={CLS}."
            )
    return dataclasses.replace(recipe, **chosen)
