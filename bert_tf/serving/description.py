"""What a served model says of itself: model.json in assets.extra."""

import collections
import os
import pathlib
import unicodedata
from collections.abc import Sequence
from typing import Any

from bert_tf.finetuning.model_folder import task_of
from bert_tf.finetuning.results import RESULTS_FILE
from bert_tf.recipe import read_json_object
from bert_tf.serving.text_model import TextModel
from bert_tf.text.vocabulary import CONTINUATION

# Least shares of the tokens by which a script is named: of the English
# vocabularies 0.03 % begin in Cyrillic and 2 % are Chinese characters; of the
# multilingual one 0.1 % are Burmese, which it was trained on, and 13 % Chinese.
_SHARE, _CHINESE_SHARE = 0.0005, 0.05


def describe_model(served: TextModel) -> dict[str, Any]:
    """What is known of the model itself.

    Args:
      served: the model.

    Returns:
      Values for JSON: task, in words; labels and threshold, where there are
      such; max_seq_length, num_hidden_layers, hidden_size, num_parameters,
      vocab_size, lower_case; scripts, of the vocabulary, the commonest first.
    """
    vocabulary = served.tokenizer.vocabulary
    found = {
        "task": served.task,
        "labels": list(served.labels) or None,
        "threshold": served.threshold,
        "max_seq_length": served.max_seq_length,
        "num_hidden_layers": served.config.num_hidden_layers,
        "hidden_size": served.config.hidden_size,
        "num_parameters": sum(
            int(w.shape.num_elements()) for w in served.weights
        ),
        "vocab_size": len(vocabulary),
        "lower_case": served.tokenizer.lower_case,
        "scripts": scripts_of(vocabulary.tokens),
    }
    return {name: value for name, value in found.items() if value is not None}


def scripts_of(tokens: Sequence[str]) -> list[str]:
    """The scripts of a vocabulary, the commonest first.

    The script of a token is that of its first letter, by its Unicode name,
    such as Latin or Cyrillic. Every vocabulary has single letters of many
    scripts: what counts is tokens of two or more, and Chinese characters only
    where there are many.

    Args:
      tokens: the tokens of a vocabulary.
    """
    counts: collections.Counter[str] = collections.Counter()
    for token in tokens:
        letters = token.removeprefix(CONTINUATION)
        if not letters[:1].isalpha():
            continue
        script = unicodedata.name(letters[0], "UNKNOWN").split()[0]
        if script == "CJK" or len(letters) > 1:
            counts[script] += 1
    total = counts.total()
    return [
        "Chinese" if script == "CJK" else script.capitalize()
        for script, count in counts.most_common()
        if count >= total * (_CHINESE_SHARE if script == "CJK" else _SHARE)
    ]


def describe_training(folder: str | os.PathLike) -> dict[str, Any]:
    """What tools.run_finetuning left of a model's training in its folder.

    Args:
      folder: a model folder.

    Returns:
      Values for JSON: fine_tuned_for, the task's name; and, of a finished
      training, init_from, the name of the folder that it started from;
      main_metric; scores, by dev split; num_examples, by split. Nothing where
      the folder was not fine-tuned.

    Raises:
      UserError: its task.json or results.json is broken.
    """
    task = task_of(folder)
    if task is None:
        return {}
    path = pathlib.Path(folder) / RESULTS_FILE
    if not path.is_file():
        return {"fine_tuned_for": task}
    results = read_json_object(path)
    return {
        "fine_tuned_for": task,
        # Not where it lies on the machine of the training.
        "init_from": pathlib.Path(results.get("model", "")).name,
        "main_metric": results.get("main_metric"),
        "scores": results.get("dev"),
        "num_examples": results.get("examples"),
    }
