"""Every declared limit of every recipe, and the line that names it."""

import dataclasses
import math

import pytest

from bert_tf.architecture_list import ARCHITECTURES
from bert_tf.errors import UserError
from bert_tf.families.recipe import PruningSettings
from bert_tf.families.sentence_embedding.recipe import LOSSES
from bert_tf.families.text_classification.kinds import MultiLabelTask
from bert_tf.inference.rows import PredictSettings
from bert_tf.inference.text_rows import EmbedSettings
from bert_tf.memory.plan import PlanSettings
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.recipe import Limits
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.teacher_settings import StudentSettings
from tools.shared_flags import load_task, task_names

# Each once and in the same order in every process.
RECIPES = list(
    dict.fromkeys(
        [
            *(load_task(name).recipe_type for name in task_names()),
            MultiLabelTask.recipe_type,
            PretrainingRecipe,
            RecordsRecipe,
            StudentSettings,
            PruningSettings,
            PredictSettings,
            EmbedSettings,
            PlanSettings,
        ]
    )
)
# What fields take, and each a value outside; a field that differs between
# recipes has several.
LIMITS = {
    "0 or more": {
        **dict.fromkeys(("truncate_dim", "max_seq_length"), -1),
        **dict.fromkeys(("weight_decay_rate", "max_grad_norm"), -0.1),
        **dict.fromkeys(("label_weight", "soft_target_weight"), -0.1),
        **dict.fromkeys(("cosine_weight", "hidden_state_weight"), -0.1),
        **dict.fromkeys(("attention_score_weight", "lora_rank"), -1),
        **dict.fromkeys(("early_stopping", "eval_steps", "doc_stride"), -1),
        **dict.fromkeys(("max_predictions_per_seq", "data_streams"), -1),
        **dict.fromkeys(("final_phase_batch_size", "keep_model_steps"), -1),
        **dict.fromkeys(("train_batch_size", "mask_token_rate"), -1),
        **dict.fromkeys(("learning_rate", "num_train_epochs"), -0.1),
        **dict.fromkeys(("mini_batch_size", "dense_size"), -1),
        **dict.fromkeys(("num_hard_negatives", "margin"), -1),
        "hard_negatives_range_min": -1,
    },
    "1 or more": dict.fromkeys(
        (
            *("train_batch_size", "gradient_accumulation_steps", "log_steps"),
            *("eval_batch_size", "save_checkpoints_steps", "num_train_steps"),
            *("keep_checkpoint_max", "seeds", "doc_stride", "lstm_units"),
            *("max_query_length", "max_answer_length", "n_best_size"),
            *("eval_steps", "max_predictions_per_seq", "num_rows", "devices"),
            *("batch_size", "rows_per_file"),
        ),
        0,
    ),
    "-1 or more": {"freeze_layers": -2},
    "4 or more": {"max_seq_length": 3},
    "5 or more": {"max_seq_length": 4},
    "5 to 1048576": {"max_seq_length": 4},
    "more than 0": dict.fromkeys(
        (
            *("learning_rate", "adam_epsilon", "num_train_epochs"),
            *("temperature", "lora_alpha", "similarity_scale"),
        ),
        0.0,
    ),
    "0 or more, below 1": {
        **dict.fromkeys(("warmup_proportion", "adam_beta_2"), 1.0),
        **dict.fromkeys(("adam_beta_1", "masked_lm_prob"), -0.1),
        **dict.fromkeys(
            ("tagger_dropout", "hard_negatives_relative_margin"), 1.0
        ),
    },
    "more than 0, below 1": {
        "dev_share": 1.0,
        "threshold": 0.0,
        "final_phase_proportion": 1.0,
        "masked_lm_prob": 0.0,
    },
    "more than 0, at most 1": {
        "layer_decay": 1.1,
        "generator_size": 2.0,
        "keep_heads": 0.0,
        "keep_columns": 1.5,
    },
    "0 to 1": {
        "smoothing": 1.1,
        "random_token_rate": 1.1,
        "short_seq_prob": 1.5,
        **dict.fromkeys(("random_next_prob", "decay_proportion"), -0.1),
    },
    "0 to 1, or -1": {"mask_token_rate": -0.5, "random_token_rate": 1.1},
    "0.3 to 1, or 0": {"near_duplicates": 0.1},
    "0 to 0.5": {"held_out": 0.6},
    "0 to 99999": {"num_shards": -1},
    "0 to 4294967295": {"seed": 2**32, "dev_seed": -1},
    "0 to 2147483647": {"seed": -1},
    "1 to 10000": {"dupe_factor": 0},
    "1 to 10": {"masked_ngram_length": 11},
    "at least one character": {
        **{"label_separator": "", "text_field": "", "text_column": ""},
    },
    "one of float32, int8, uint8, binary, ubinary": {
        "vector_precision": "int4"
    },
    "one of npy, parquet": {"file_format": "csv"},
    "one of float32, mixed_bfloat16, mixed_float16": {"precision": "int8"},
    "one of auto, float32, mixed_bfloat16, mixed_float16": {
        "precision": "int8",
    },
    "one of adamw, adamw_no_bias_correction, lamb, stable_adamw": {
        "optimizer": "sgd"
    },
    "one of linear, one_minus_sqrt": {"decay_shape": "cosine"},
    "one of global, per_replica": {"loss_normalisation": "mean"},
    "one of stop, skip": {"on_non_finite": "ignore"},
    "one of strict, replace": {"encoding_errors": "ignore"},
    "one of keras, auto, openvino, onnx, litert": {"runtime": "tvm"},
    "one of query_value, all_dense": {"lora_on": "key"},
    "one of cls, mean": {"classifier_pooling": "max"},
    "one of given, fitted": {"head_start": "zeros"},
    "one of error, skip": {"bad_rows": "drop"},
    "one of error, keep, drop": {"empty_text": "skip"},
    "one of tsv, csv, jsonl, parquet, feather, arrow": {"format": "xlsx"},
    "one of tsv, csv, jsonl, parquet, feather, arrow, txt": {"format": "xlsx"},
    "one of number, number_from_1, letter, text": {"label_form": "word"},
    "one of bce, listnet, margin_mse": {"loss": "mse"},
    "one of sigmoid, linear": {"score_activation": "tanh"},
    f"one of {', '.join(LOSSES)}": {"loss": "cross_entropy"},
    "one of tanh, linear, relu, gelu_erf": {"dense_activation": "step"},
    "more than -1, at most 1": {"hard_negatives_max_score": 1.5},
    "one of cut, windows": {"long_inputs": "fold"},
    "one of document, sentence": {"context": "paragraph"},
    "one of sentences, file": {"unmarked": "pages"},
    "one of classes, regression, multi_label": {"label_kind": "class"},
    "one of embeddings, second_to_last, last, weighted_sum_last_four, "
    "concat_last_four, weighted_sum_all": {"features": "first"},
    "one of auto, sentences, text, wikipedia, jsonl, table": {
        "input_format": "pdf"
    },
    "one of blank_line, file, line": {"document_end": "page"},
    "one of refuse, cut": {"long_lines": "split"},
    "one of sentence_pairs, sentence_order, full_sentences, "
    "document_sentences": {"sequences": "lines"},
    f"one of {', '.join(ARCHITECTURES)}": {"architecture": "rnn"},
    "one of pretraining, classifier": {"objective": "tags"},
}
_NEEDS_TEACHER = {
    **dict.fromkeys(("temperature", "label_weight", "cosine_weight"), 3.0),
    **dict.fromkeys(("soft_target_weight", "hidden_state_weight"), 3.0),
    "attention_score_weight": 3.0,
    "teacher_layers": "0,1",
}
# The value of a field that needs another, that field, and what it must be.
REQUIRES = {
    **{n: (value, "teacher", "T") for n, value in _NEEDS_TEACHER.items()},
    "architecture": ("roberta", "size", "base"),
    "lora_alpha": (8.0, "lora_rank", 2),
    "lora_on": ("all_dense", "lora_rank", 2),
    "score_test": (True, "test_file", "t.txt"),
    "threshold": (0.3, "label_kind", "multi_label"),
    "label_separator": (";", "label_kind", "multi_label"),
    "label_names": ("a,b", "label_kind", "multi_label"),
    "template": ("{} it is", "candidate_labels", "a,b"),
    "multi_label": (True, "candidate_labels", "a,b"),
    "dense_activation": ("relu", "dense_size", 8),
    "hard_negatives_range_min": (3, "num_hard_negatives", 2),
    "hard_negatives_relative_margin": (0.05, "num_hard_negatives", 2),
    "hard_negatives_max_score": (0.9, "num_hard_negatives", 2),
}
EXCLUDES = {
    "lora_rank": (2, "freeze_layers", 0),
    "config_file": ("c.json", "size", "tiny"),
    "layers": ("0", "size", "tiny"),
    "packing": (True, "static_masking", True),
    "mini_batch_size": (32, "gradient_accumulation_steps", 2),
}
# Of taggers on features, and of sentence embeddings.
UNUSED = {
    **{"freeze_layers": 1, "layer_decay": 0.9, "ensemble": "o", "bilstm": True},
    **{"rematerialize": True, "teacher": "T", "lora_rank": 2},
    "calibrate": True,
    "reset_head": True,
}
# Settings of which the first is limited by the second, and the line.
DEPENDENT = [
    (
        {"seeds": 3, "seed": 2**32 - 2},
        "seeds is 3; it takes 1 to 2 (",
    ),
    (
        {"max_query_length": 5, "max_seq_length": 8},
        "max_query_length is 5; it takes 1 to 4 (",
    ),
    (
        {"max_predictions_per_seq": 129, "max_seq_length": 128},
        "max_predictions_per_seq is 129; it takes {} to 128 (",
    ),
    (
        {"mask_token_rate": 0.2, "random_token_rate": 0.9},
        "mask_token_rate is 0.2; it takes 0 to 0.1 (",
    ),
]


def line_of(recipe, **values):
    with pytest.raises(UserError) as caught:
        recipe(**values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def limits_of(recipe):
    return {f.name: f.metadata["limits"] for f in dataclasses.fields(recipe)}


def recipes_where(name, rule):
    found = [r for r in RECIPES if rule(limits_of(r).get(name, Limits()))]
    assert found
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_a_value_outside_of_a_limit(recipe):
    for name, limits in limits_of(recipe).items():
        takes = str(limits.at(None))
        values = [LIMITS[takes][name]] if takes else []
        if takes and recipe.kinds()[name] is float:
            values += [math.inf, math.nan]
        for value in values:
            line = line_of(recipe, **{name: value})
            assert line == f"{name} is {value!r}; it takes {takes}."


def test_every_limit_of_the_tables_is_declared():
    found = [each for r in RECIPES for each in limits_of(r).items()]
    assert {(n, str(x.at(None))) for n, x in found} - {
        (name, takes) for takes, fields in LIMITS.items() for name in fields
    } == {(name, "") for name, x in found if not str(x.at(None))}
    assert {n for n, x in found if x.requires} == REQUIRES.keys()
    assert {n for n, x in found if x.excludes} == EXCLUDES.keys()
    assert {n for n, x in found if x.unused} == UNUSED.keys()
    assert {n for n, x in found if callable(x.at_most)} == {
        next(iter(values)) for values, _ in DEPENDENT
    }


@pytest.mark.parametrize("name", REQUIRES)
def test_a_setting_that_requires_another(name):
    value, other, wanted = REQUIRES[name]
    for recipe in recipes_where(name, lambda limits: limits.requires):
        if other not in recipe.kinds() or limits_of(recipe)[other].unused:
            continue
        line = line_of(recipe, **{name: value})
        assert line.startswith(f"{name}={value}: requires {other}")
        assert line.endswith(f"; give {other} too, or leave {name} out.")
        recipe(**{name: value, other: wanted})


@pytest.mark.parametrize("name", EXCLUDES)
def test_a_setting_that_excludes_another(name):
    value, other, wrong = EXCLUDES[name]
    for recipe in recipes_where(name, lambda limits: limits.excludes):
        line = line_of(recipe, **{name: value, other: wrong})
        assert line.startswith(
            f"`{name}`={value} and `{other}`={wrong}: give one of the two, "
        )
        recipe(**{name: value})
        recipe(**{other: wrong})


@pytest.mark.parametrize("name", UNUSED)
def test_a_setting_that_does_not_apply(name):
    for recipe in recipes_where(name, lambda limits: limits.unused):
        line = line_of(recipe, **{name: UNUSED[name]})
        assert line.startswith(f"{name}={UNUSED[name]}: does not apply")


@pytest.mark.parametrize(("values", "line"), DEPENDENT)
def test_a_limit_by_another_setting(values, line):
    name = next(iter(values))
    for recipe in recipes_where(name, lambda limits: callable(limits.at_most)):
        least = limits_of(recipe)[name].at_least
        assert line_of(recipe, **values).startswith(line.format(least))


def test_a_teacher_that_nothing_is_learnt_of():
    none = dict.fromkeys(("soft_target_weight", "cosine_weight"), 0.0)
    for recipe in recipes_where("temperature", lambda limits: limits.requires):
        if not limits_of(recipe)["teacher"].unused:
            line = line_of(recipe, teacher="T", **none)
            assert line.startswith("teacher=T: nothing of it is learnt; give ")
            recipe(teacher="T", **{**none, "cosine_weight": 1.0})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_every_setting_has_help(recipe):
    for field in dataclasses.fields(recipe):
        assert field.metadata["help"], field.name
