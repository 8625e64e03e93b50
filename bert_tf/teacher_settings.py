"""Settings of a training that has a teacher, and of the student it makes."""

import dataclasses
from typing import Self

from bert_tf.architecture_list import ARCHITECTURES
from bert_tf.config import SIZE_HELP
from bert_tf.errors import UserError
from bert_tf.recipe import Settings, setting

SOFT_TARGET = "soft_target"
LAYER_TERMS = ("cosine", "hidden_state", "attention_score")


@dataclasses.dataclass(frozen=True)
class TeacherSettings(Settings):
    """What a training adds that has a teacher.

    The loss is the sum of those named here, each times its weight.
    """

    teacher: str = setting(
        "",
        "distillation: the model to learn from, a folder, hf:// or "
        "keras_hub:// source; of a task, one that was fine-tuned for it",
    )
    temperature: float = setting(
        2.0,
        "distillation: what the logits of both are divided by for soft targets",
        above=0,
        requires="teacher",
    )
    label_weight: float = setting(
        1.0,
        "distillation: weight of the objective's own loss, on the labels",
        at_least=0,
        requires="teacher",
    )
    soft_target_weight: float = setting(
        1.0,
        "distillation: weight of the divergence from the teacher's "
        "distributions (of text: of every token), times the square of the "
        "temperature",
        at_least=0,
        requires="teacher",
    )
    cosine_weight: float = setting(
        0.0,
        "distillation: weight of one less the cosine of the last hidden "
        "states of each token",
        at_least=0,
        requires="teacher",
    )
    hidden_state_weight: float = setting(
        0.0,
        "distillation: weight of the mean square between hidden states of "
        "embeddings and layers, the student's behind a dense layer",
        at_least=0,
        requires="teacher",
    )
    attention_score_weight: float = setting(
        0.0,
        "distillation: weight of the mean square between attention scores of "
        "layers",
        at_least=0,
        requires="teacher",
    )
    teacher_layers: str = setting(
        "",
        "distillation: the teacher's layer, from 0, that each layer of the "
        "student is compared with, comma-separated; empty spreads them evenly",
        requires="teacher",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        learnt = any(map(self.weight, (SOFT_TARGET, *LAYER_TERMS)))
        if self.teacher and not learnt:
            raise UserError(
                f"teacher={self.teacher}: nothing of it is learnt; give "
                "soft_target_weight or another one of the weights."
            )

    def without_teacher(self) -> Self:
        """The same training, but from the labels alone."""
        return dataclasses.replace(
            self,
            **{
                name: getattr(type(self), name)
                for name in TeacherSettings.kinds()
            },
        )

    def weight(self, term: str) -> float:
        """The weight of a term of the loss."""
        return getattr(self, f"{term}_weight")

    @property
    def compares_layers(self) -> bool:
        """Whether hidden states are compared, not the outputs alone."""
        return any(map(self.weight, LAYER_TERMS))

    def compared_layers(self, student: int, teacher: int) -> list[int]:
        """The teacher's layer for each of the student's.

        Args:
          student: how many layers the student has.
          teacher: how many the teacher has.

        Raises:
          UserError: teacher_layers names other layers, or too few.
        """
        if not self.teacher_layers:
            # Jiao et al. 2020, section 4.2: the last of each even part.
            return [
                max(0, (layer + 1) * teacher // student - 1)
                for layer in range(student)
            ]
        layers = layer_numbers("teacher_layers", self.teacher_layers, teacher)
        if len(layers) != student:
            raise UserError(
                f"`teacher_layers`={self.teacher_layers}: names "
                f"{len(layers)} layers, and the student has {student}; name "
                "one for each."
            )
        return layers


def layer_numbers(argument: str, text: str, count: int) -> list[int]:
    """The numbers that a list of layers names.

    Args:
      argument: what it was given as, for the error.
      text: whole numbers, comma-separated.
      count: how many layers there are.

    Raises:
      UserError: one is no whole number from 0 to count - 1.
    """
    layers = []
    for part in map(str.strip, text.split(",")):
        # str.isdigit is true of other scripts' digits too.
        if not (part.isascii() and part.isdigit() and int(part) < count):
            raise UserError(
                f"`{argument}`={text}: {part!r} is no layer of the teacher, "
                f"whose layers are 0 to {count - 1}."
            )
        layers.append(int(part))
    return layers


@dataclasses.dataclass(frozen=True)
class StudentSettings(Settings):
    """What the student is made of, where it is no model already."""

    size: str = setting("", f"student with new weights: {SIZE_HELP}")
    layers: str = setting(
        "",
        "student of some of the teacher's layers, by number from 0, "
        "comma-separated, with its embeddings and heads, such as 0,2,4,7,9,11",
        excludes="size",
    )
    architecture: str = setting(
        "",
        f"architecture of that student, one of {', '.join(ARCHITECTURES)}; "
        "empty takes the teacher's",
        choices=("", *ARCHITECTURES),
    )
