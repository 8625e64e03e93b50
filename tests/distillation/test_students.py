"""What a student is made of, computed beside its teacher."""

import functools

import numpy as np
import pytest

from bert_tf.architectures.distilbert import DistilBertConfig
from bert_tf.checkpoints import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.distillation.students import make_student
from bert_tf.encoders import encoder_class
from bert_tf.models import restore
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.teacher_settings import StudentSettings
from tests.model_helpers import fill, numpy, pretraining_batch, small_config
from tests.user_errors import error_of

CONFIG = small_config(num_hidden_layers=4)
BATCH = pretraining_batch(CONFIG)


@functools.cache
def teacher() -> Checkpoint:
    model = fill(BertPretrainer(CONFIG), 3)
    return Checkpoint(CONFIG, model.to_arrays(), source="T")


def hidden(checkpoint: Checkpoint, batch: dict) -> list[np.ndarray]:
    encoder = encoder_class(checkpoint.config)(checkpoint.config)
    restore(encoder, checkpoint)
    found = encoder(batch, return_all_layers=True)
    return [
        numpy(found["embedding_output"]),
        *map(numpy, found["all_encoder_layers"]),
    ]


@pytest.mark.parametrize(
    # A DistilBERT's positions contain the segment, which rounds otherwise.
    ("architecture", "atol"),
    [("bert", 1e-6), ("distilbert", 1e-5)],
)
def test_the_first_layers_compute_what_they_do_in_the_teacher(
    architecture, atol
) -> None:
    settings = StudentSettings(layers="0,1", architecture=architecture)
    student = make_student(settings, teacher(), 1)
    assert student.config.model_type == architecture
    assert student.config.num_hidden_layers == 2
    batch = BATCH
    if architecture == "distilbert":
        # It knows the first segment alone, and learns no order of sentences.
        batch = {**BATCH, "segment_ids": 0 * BATCH["segment_ids"]}
        assert student.heads == ("masked_lm",)
    whole = hidden(teacher(), batch)
    for own, theirs in zip(hidden(student, batch), whole, strict=False):
        np.testing.assert_allclose(own, theirs, atol=atol)


def test_layers_are_those_named_in_their_order() -> None:
    whole = teacher()
    student = make_student(StudentSettings(layers="3, 1"), whole, 1)
    for new, old in ((0, 3), (1, 1)):
        for part in ("attention/self/key/kernel", "output/LayerNorm/beta"):
            np.testing.assert_array_equal(
                student.arrays[f"bert/encoder/layer_{new}/{part}"],
                whole.arrays[f"bert/encoder/layer_{old}/{part}"],
            )
    others = {n for n in whole.arrays if "/layer_" not in n}
    assert {n for n in student.arrays if "/layer_" not in n} == others
    for name in others:
        np.testing.assert_array_equal(student.arrays[name], whole.arrays[name])


def test_a_new_student_is_drawn_from_the_seed() -> None:
    settings = StudentSettings(size="1/16/2")
    one, same, other = (
        make_student(settings, teacher(), seed) for seed in (1, 1, 2)
    )
    assert one.config == BertConfig.from_size("1/16/2", CONFIG.vocab_size)
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(one.arrays[name], same.arrays[name])
    assert not np.array_equal(one.arrays[name], other.arrays[name])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "give the student: `size`, `layers` of the teacher, or a model"),
        ({"layers": "0,4"}, "`layers`=0,4: '4' is no layer of the teacher, "),
        ({"layers": "0,,1"}, "`layers`=0,,1: '' is no layer of the teacher, "),
        ({"layers": "-1"}, "whose layers are 0 to 3."),
        ({"size": "huge"}, "`size`=huge: unknown size"),
    ],
)
def test_mistakes(settings, line) -> None:
    made = StudentSettings(**settings)
    assert line in error_of(make_student, made, teacher(), 1)


def test_layers_of_another_architecture() -> None:
    config = DistilBertConfig(**{**vars(CONFIG), "type_vocab_size": 0})
    arrays = fill(encoder_class(config)(config)).to_arrays()
    settings = StudentSettings(layers="0", architecture="bert")
    line = error_of(make_student, settings, Checkpoint(config, arrays), 1)
    assert line.startswith("`architecture`=bert: ")
    assert "distilbert" in line
    assert "`size`" in line
