"""What model.json states of a model and of its training."""

import collections
import os
import pathlib
import unicodedata
from collections.abc import Sequence
from typing import Any

from bert_tf.families.model_folder import RESULTS_FILE, task_of
from bert_tf.families.text_model import TextModel
from bert_tf.recipe import read_json_object
from bert_tf.text.vocabulary import CONTINUATION

# Least shares of the tokens by which a script is named: of the English
# vocabularies 0.03 % begin in Cyrillic and 2 % are Chinese characters; of the
# multilingual one 0.1 % are Burmese, which it was trained on, and 13 % Chinese.
_SHARE, _CHINESE_SHARE = 0.0005, 0.05


def describe_model(served: TextModel) -> dict[str, Any]:
    """What is known of a model, for model.json: values, None left out."""
    vocabulary = served.tokenizer.vocabulary
    config = served.config
    values = {
        "task": served.task,
        "labels": list(served.labels) or None,
        "threshold": served.threshold,
        "activation": None
        if served.activation == "linear"
        else served.activation,
        "prompts": dict(served.prompts) or None,
        "default_prompt_name": served.default_prompt_name,
        "max_seq_length": served.max_seq_length,
        "num_hidden_layers": config.num_hidden_layers if config else None,
        "hidden_size": config.hidden_size if config else None,
        "num_parameters": sum(
            int(w.shape.num_elements()) for w in served.weights
        ),
        "vocab_size": len(vocabulary),
        "mask_token": vocabulary.special.mask,
        "lower_case": served.tokenizer.lower_case,
        "scripts": scripts_of(vocabulary.tokens),
        "beside": {
            name: describe_model(other) for name, other in served.beside.items()
        }
        or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def scripts_of(tokens: Sequence[str]) -> list[str]:
    """The scripts of a vocabulary, the commonest first.

    The script of a token is that of its first letter, by its Unicode name,
    such as Latin or Cyrillic. Every vocabulary has single letters of many
    scripts: what counts is tokens of two or more, and Chinese characters only
    where there are many.
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
