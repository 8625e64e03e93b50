"""What a model folder becomes when it is served."""

import dataclasses
import os
import pathlib
from typing import Any

import keras

from bert_tf.checkpoints import (
    CLASSIFIER,
    MASKED_LM,
    NEXT_SENTENCE,
    POOLER,
    Checkpoint,
    head_shapes,
    load_checkpoint,
)
from bert_tf.checkpoints.checkpoint import num_labels
from bert_tf.checkpoints.sentence_files import (
    read_cross_encoder,
    read_sentence_modules,
)
from bert_tf.encoders import encoder_class
from bert_tf.errors import UserError
from bert_tf.families.model_folder import task_of
from bert_tf.families.multiple_choice.answers import ChoiceModel
from bert_tf.families.multiple_choice.task import MultipleChoiceConfig
from bert_tf.families.pretrained.answers import PretrainedModel
from bert_tf.families.pretrained.extractor import folder_tokenizer
from bert_tf.families.question_answering.answers import SpanModel
from bert_tf.families.question_answering.task import QuestionAnsweringConfig
from bert_tf.families.task import TaskConfig
from bert_tf.families.text_classification.answers import SentenceModel
from bert_tf.families.text_classification.task import TextClassificationConfig
from bert_tf.families.text_model import TextModel
from bert_tf.families.token_classification.answers import TagModel
from bert_tf.families.token_classification.task import (
    TokenClassificationConfig,
)
from bert_tf.families.usage import check_pretrained, usage_of
from bert_tf.families.usage_options import (
    EMBEDDINGS,
    NO_OPTIONS,
    UsageOptions,
)
from bert_tf.finetuning.results import RESULTS_FILE
from bert_tf.models import (
    bert_classifier,
    bert_multiple_choice,
    bert_span_labeler,
    bert_token_classifier,
    restore,
)
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.recipe import read_json_object
from bert_tf.text.packing import Tokenizer


def served_model(
    folder: str | os.PathLike,
    precision: str = "float32",
    merge: bool = True,
    options: UsageOptions = NO_OPTIONS,
) -> TextModel:
    """Opens a model folder as a model that takes text.

    Args:
      folder: what tools.run_finetuning left, a fine-tuned model of another
        program, or a pre-trained model of any family.
      precision: a Keras dtype policy. The encoder's weights are held in the
        dtype that it computes in.
      merge: see `load_checkpoint`.
      options: how the model is used, where its folder does not state it.

    Raises:
      UserError: the folder is no model, has no vocabulary, or asks for rules
        that `BertTokenizer` does not follow; or see `usage_of`.
    """
    checkpoint = load_checkpoint(folder, merge)
    if checkpoint.vocabulary is None:
        raise UserError(
            f"`folder`={folder}: holds no vocabulary; put the vocab.txt that "
            "it was trained with into the folder."
        )
    tokenizer = folder_tokenizer(folder)
    modules = config = None
    if options.task in (None, EMBEDDINGS) and task_of(folder) is None:
        modules = read_sentence_modules(checkpoint)
    activation = None
    if modules is None:
        if task_of(folder) is None:
            activation = read_cross_encoder(checkpoint)
        if activation is not None and options.task is None:
            task = _scored_pairs(folder, checkpoint, activation)
            options = dataclasses.replace(options, task=task)
        config = usage_of(folder, checkpoint, options, tokenizer)
    else:
        # Such a model gives vectors, whatever else its file holds.
        check_pretrained(f"`folder`={folder}", checkpoint, options)
    dtype = keras.dtype_policies.get(precision).compute_dtype
    if config is None:
        fills_masks = (
            MASKED_LM in checkpoint.heads
            and not checkpoint.config.causal
            and options.task != EMBEDDINGS
        )
        kind = encoder_class(checkpoint.config)
        model = (BertPretrainer if fills_masks else kind)(
            checkpoint.config, dtype=dtype
        )
        _restore(model, checkpoint, NEXT_SENTENCE, POOLER)
        length = options.max_seq_length
        if modules is None:
            length = length or checkpoint.max_seq_length
        return PretrainedModel(
            model,
            tokenizer,
            length,
            modules=modules,
            has_pooler=POOLER in checkpoint.heads,
        )
    return _fine_tuned(
        config, checkpoint, tokenizer, dtype, activation or "linear"
    )


def _scored_pairs(
    folder: str | os.PathLike, checkpoint: Checkpoint, activation: str
) -> str:
    """The task of a CrossEncoder, which scores pairs of texts."""
    if num_labels(checkpoint, CLASSIFIER) == 1:
        return "text_pair_regression"
    if activation == "sigmoid":
        return "text_pair_multi_label_classification"
    if activation != "linear":
        raise UserError(
            f"`folder`={folder}: is a CrossEncoder of several labels with the "
            f"activation {activation}; it takes Identity or Sigmoid."
        )
    return "text_pair_classification"


def _fine_tuned(
    config: TaskConfig,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    dtype: str,
    activation: str,
) -> TextModel:
    """A model with a head, used as its config states."""
    encoder = encoder_class(checkpoint.config)(checkpoint.config, dtype=dtype)
    if isinstance(config, TextClassificationConfig):
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
            activation=activation
            if config.label_kind == "regression"
            else "linear",
        )
    if isinstance(config, QuestionAnsweringConfig):
        model = bert_span_labeler(encoder, unpadded=True)
        _restore(model, checkpoint, POOLER)
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
    if isinstance(config, TokenClassificationConfig):
        model = bert_token_classifier(
            encoder, len(config.labels), unpadded=True
        )
        _restore(model, checkpoint, POOLER)
        # A stride of 0 is half a window, in both.
        stride = config.doc_stride or None
        return TagModel(
            model, tokenizer, config.labels, config.max_seq_length, stride
        )
    assert isinstance(config, MultipleChoiceConfig)
    model = bert_multiple_choice(encoder, unpadded=True)
    restore(model, checkpoint)
    return ChoiceModel(
        model, tokenizer, config.max_seq_length, config.has_start
    )


def _restore(model: keras.Model, checkpoint: Checkpoint, *unread: str) -> None:
    """Assigns the weights, without a line on heads that nothing reads."""
    absent = set(unread) - set(checkpoint.heads)
    # Not every architecture has a next_sentence.
    absent &= set(head_shapes(checkpoint.config))
    restore(model, checkpoint, fresh=sorted(absent))


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
