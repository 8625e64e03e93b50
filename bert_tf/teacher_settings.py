"""Settings of knowledge distillation: the losses, and the student."""

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
    """Settings of a training with a teacher; its loss is a weighted sum."""

    teacher: str = setting(
        "",
        "distillation: the teacher model, a folder, hf:// or keras_hub:// "
        "source; for a task a model fine-tuned for that task",
    )
    temperature: float = setting(
        2.0,
        "distillation: divisor of the logits of both models for soft targets",
        above=0,
        requires="teacher",
    )
    label_weight: float = setting(
        1.0,
        "distillation: weight of the loss on the labels",
        at_least=0,
        requires="teacher",
    )
    soft_target_weight: float = setting(
        1.0,
        "distillation: weight of the KL divergence from the teacher's "
        "distributions (in pre-training: of every token), times the square of "
        "the temperature",
        at_least=0,
        requires="teacher",
    )
    cosine_weight: float = setting(
        0.0,
        "distillation: weight of 1 - cosine similarity of the last hidden "
        "states of each token",
        at_least=0,
        requires="teacher",
    )
    hidden_state_weight: float = setting(
        0.0,
        "distillation: weight of the mean squared error between hidden states "
        "of embeddings and layers, the student's after a dense layer",
        at_least=0,
        requires="teacher",
    )
    attention_score_weight: float = setting(
        0.0,
        "distillation: weight of the mean squared error between attention "
        "scores of layers",
        at_least=0,
        requires="teacher",
    )
    teacher_layers: str = setting(
        "",
        "distillation: for each layer of the student the teacher's layer, "
        "counted from 0, that it is compared with, comma-separated; empty "
        "spreads them evenly",
        requires="teacher",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher and not any(
            map(self.weight, (SOFT_TARGET, *LAYER_TERMS))
        ):
            raise UserError(
                f"teacher={self.teacher}: nothing of it is learnt; give "
                "soft_target_weight or another one of the weights."
            )

    def without_teacher(self) -> Self:
        """Returns the settings of the same training on the labels only."""
        names = TeacherSettings.kinds()
        defaults = {name: getattr(type(self), name) for name in names}
        return dataclasses.replace(self, **defaults)

    def weight(self, term: str) -> float:
        """Returns the weight of a term of the loss."""
        return getattr(self, f"{term}_weight")

    @property
    def compares_layers(self) -> bool:
        """Whether the loss compares layers and not only outputs."""
        return any(map(self.weight, LAYER_TERMS))

    def compared_layers(self, student: int, teacher: int) -> list[int]:
        """Returns the teacher's layer for each layer of the student.

        Args:
          student: number of layers of the student.
          teacher: number of layers of the teacher.

        Raises:
          UserError: teacher_layers names a layer that the teacher does not
            have, or not one for each layer of the student.
        """
        if not self.teacher_layers:
            # Jiao et al. 2020, section 4.2: the last layer of each even part.
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
    """Parses a comma-separated list of the teacher's layers.

    Args:
      argument: name of the argument, for errors.
      text: whole numbers, comma-separated.
      count: number of layers of the teacher.

    Raises:
      UserError: a part is not a whole number from 0 to count - 1.
    """
    layers = []
    for part in map(str.strip, text.split(",")):
        # str.isdigit accepts the digits of other scripts too.
        if not (part.isascii() and part.isdigit() and int(part) < count):
            raise UserError(
                f"`{argument}`={text}: {part!r} is no layer of the teacher, "
                f"whose layers are 0 to {count - 1}."
            )
        layers.append(int(part))
    return layers


@dataclasses.dataclass(frozen=True)
class StudentSettings(Settings):
    """Settings of a student that is built for the training."""

    size: str = setting("", f"student with new weights: {SIZE_HELP}")
    layers: str = setting(
        "",
        "student of the teacher's embeddings, heads and these layers, counted "
        "from 0, comma-separated, for example 0,2,4,7,9,11",
        excludes="size",
    )
    architecture: str = setting(
        "",
        f"architecture of the student, one of {', '.join(ARCHITECTURES)}; "
        "empty for the teacher's",
        choices=("", *ARCHITECTURES),
    )
