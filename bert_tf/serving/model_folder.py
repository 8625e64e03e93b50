"""What a model folder becomes when it is served."""

import os
import pathlib
from typing import Any

import keras

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    SPAN,
    TASK_HEADS,
    TOKEN_CLASSIFIER,
    Checkpoint,
    load_checkpoint,
)
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.finetuning.model_folder import (
    TASK_FILE,
    read_config_as,
    task_of,
)
from bert_tf.finetuning.multiple_choice.task import MultipleChoiceConfig
from bert_tf.finetuning.question_answering.task import QuestionAnsweringConfig
from bert_tf.finetuning.results import RESULTS_FILE
from bert_tf.finetuning.text_classification.task import TextClassificationConfig
from bert_tf.finetuning.token_classification.task import (
    TokenClassificationConfig,
)
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    restore,
)
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.recipe import read_json_object
from bert_tf.serving.choice import ChoiceModel
from bert_tf.serving.pretrained import PretrainedModel
from bert_tf.serving.sentences import SentenceModel
from bert_tf.serving.span import SpanModel
from bert_tf.serving.tags import TagModel
from bert_tf.serving.text_model import TextModel
from bert_tf.text.packing import Tokenizer
from bert_tf.text.tokenizer import BertTokenizer


def served_model(
    folder: str | os.PathLike, precision: str = "float32", merge: bool = True
) -> TextModel:
    """Opens a model folder as a model that takes text.

    Args:
      folder: what tools.run_finetuning left, or a pre-trained model of any
        family.
      precision: a Keras dtype policy. The encoder's weights are held in the
        dtype that it computes in.
      merge: see `load_checkpoint`.

    Raises:
      UserError: the folder is no model, has no vocabulary, asks for
        rules that `BertTokenizer` does not follow, or has a head without the
        task.json that says how to use it.
    """
    checkpoint = load_checkpoint(folder, merge)
    if checkpoint.vocabulary is None:
        raise UserError(
            f"`folder`={folder}: holds no vocabulary; put the vocab.txt that "
            "it was trained with into the folder."
        )
    tokenizer = BertTokenizer.from_checkpoint(folder)
    heads = [head for head in checkpoint.heads if head in TASK_HEADS]
    if len(heads) > 1:
        raise UserError(
            f"`folder`={folder}: has the heads {', '.join(heads)}; it takes a "
            "model of one task."
        )
    if not heads and task_of(folder) is not None:
        raise UserError(
            f"`folder`={folder}: was fine-tuned for {task_of(folder)}, whose "
            "model has no head on the encoder (a tagger on its features, for "
            "example) and cannot be served; fine-tune the encoder itself."
        )
    dtype = keras.dtype_policies.get(precision).compute_dtype
    if not heads:
        fills_masks = (
            MASKED_LM in checkpoint.heads and not checkpoint.config.causal
        )
        kind = encoder_class(checkpoint.config)
        model = (BertPretrainer if fills_masks else kind)(
            checkpoint.config, dtype=dtype
        )
        restore(model, checkpoint)
        return PretrainedModel(model, tokenizer)
    if not pathlib.Path(folder, TASK_FILE).is_file():
        raise UserError(
            f"`folder`={folder}: its {heads[0]} has no {TASK_FILE}, which says "
            "how it is used; fine-tune with tools.run_finetuning "
            f"--init_from={folder} and num_train_epochs as small as you "
            "like, or export from Python with bert_tf.serving."
        )
    return _fine_tuned(heads[0], folder, checkpoint, tokenizer, dtype)


def _fine_tuned(
    head: str,
    folder: str | os.PathLike,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    dtype: str,
) -> TextModel:
    """A model with a head, used as its task.json says."""
    encoder = encoder_class(checkpoint.config)(checkpoint.config, dtype=dtype)
    if head == CLASSIFIER:
        config = read_config_as(folder, TextClassificationConfig)
        model = bert_classifier(encoder, config.num_outputs, unpadded=True)
        restore(model, checkpoint)
        multi_label = config.label_kind == "multi_label"
        return SentenceModel(
            model,
            tokenizer,
            config.max_seq_length,
            config.labels,
            pairs=config.num_texts == 2,
            long_inputs=config.long_inputs,
            doc_stride=config.doc_stride,
            threshold=config.threshold if multi_label else None,
            separator=config.label_separator,
        )
    if head == SPAN:
        config = read_config_as(folder, QuestionAnsweringConfig)
        model = bert_span_labeler(encoder, unpadded=True)
        restore(model, checkpoint)
        return SpanModel(
            model,
            tokenizer,
            config.max_seq_length,
            config.doc_stride,
            config.max_query_length,
            config.max_answer_length,
            config.n_best_size,
            config.null_threshold if config.with_null else None,
        )
    if head == TOKEN_CLASSIFIER:
        config = read_config_as(folder, TokenClassificationConfig)
        model = bert_token_classifier(
            encoder, len(config.labels), unpadded=True
        )
        restore(model, checkpoint)
        # A stride of 0 is half a window, in both.
        stride = config.doc_stride or None
        return TagModel(
            model, tokenizer, config.labels, config.max_seq_length, stride
        )
    assert head == MULTIPLE_CHOICE
    config = read_config_as(folder, MultipleChoiceConfig)
    model = bert_multiple_choice(encoder, unpadded=True)
    restore(model, checkpoint)
    return ChoiceModel(
        model, tokenizer, config.max_seq_length, config.has_start
    )


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
