"""The settings of a pre-training run."""

import dataclasses
from typing import Any

from bert_tf.architecture_list import ARCHITECTURES
from bert_tf.config import SIZE_HELP
from bert_tf.errors import UserError
from bert_tf.recipe import setting
from bert_tf.teacher_settings import TeacherSettings
from bert_tf.training.recipe import TrainingRecipe

# Settings of masking; the defaults are those of the records.
_MASKING = (
    "masked_lm_prob",
    "mask_token_rate",
    "random_token_rate",
    "max_predictions_per_seq",
)


# The weights of the losses are those of transformers' distillation script.
@dataclasses.dataclass(frozen=True)
class PretrainingRecipe(
    TeacherSettings,
    TrainingRecipe,
    defaults={
        "label_weight": 2.0,
        "soft_target_weight": 5.0,
        "cosine_weight": 1.0,
    },
):
    """The settings of a pre-training run, stored in recipe.json."""

    data_dir: str = setting(
        "",
        "folder of records, or two, comma-separated: short sequences for the "
        "first phase and long ones for the final phase",
    )
    size: str = setting("", SIZE_HELP)
    architecture: str = setting(
        "",
        f"architecture of a size, one of {', '.join(ARCHITECTURES)}; by "
        "default bert, or electra for replaced_tokens",
        choices=("", *ARCHITECTURES),
        requires="size",
    )
    config_file: str = setting(
        "", "bert_config.json, instead of a size", excludes="size"
    )
    vocab_file: str = setting(
        "", "vocabulary of records that do not store theirs"
    )
    objective: str = setting(
        "masked_lm_next_sentence",
        "objective: masked_lm_next_sentence, masked_lm, "
        "masked_lm_sentence_order (ALBERT), left_to_right, replaced_tokens "
        "(ELECTRA), or the path of a Python file that defines OBJECTIVE",
        may_be_code=True,
    )
    generator_size: float = setting(
        0.25,
        "replaced_tokens: width of the generator as a share of the "
        "discriminator's; 0.25 in the published small and large models, 1/3 in "
        "base",
        above=0,
        at_most=1,
    )
    masked_lm_prob: float = setting(
        0.0,
        "share of tokens to mask; 0 = that of the records",
        at_least=0,
        below=1,
    )
    mask_token_rate: float = setting(
        -1.0,
        "share of the chosen tokens replaced by [MASK]; -1 = that of the "
        "records",
        at_least=0,
        at_most=1,
        or_exactly=-1,
    )
    random_token_rate: float = setting(
        -1.0,
        "share of the chosen tokens replaced by a random one; the rest is "
        "unchanged; -1 = that of the records",
        at_least=0,
        at_most=1,
        or_exactly=-1,
    )
    max_predictions_per_seq: int = setting(
        0,
        "maximum of masked tokens in a sequence; 0 = that of the records, or "
        "with masked_lm_prob its share of a full sequence",
        at_least=0,
    )
    num_train_steps: int = setting(
        100_000, "optimizer steps of all phases", at_least=1
    )
    final_phase_proportion: float = setting(
        0.1,
        "share of the steps spent on the second folder of records",
        above=0,
        below=1,
    )
    final_phase_batch_size: int = setting(
        0, "train_batch_size of the final phase; 0 = the same", at_least=0
    )
    data_streams: int = setting(
        0,
        "number of even parts of the records that are read in parallel, each "
        "by one worker; 0 = one per worker. With the same number the batches "
        "are the same on any number of workers",
        at_least=0,
    )
    eval_steps: int = setting(
        1000, "steps between two evaluations", at_least=1, may_change=True
    )
    keep_model_steps: int = setting(
        0,
        "steps between two models stored in models/step-00001000 of the run's "
        "folder, each a model folder to fine-tune from; 0 = none",
        at_least=0,
        may_change=True,
    )

    def mask_settings(self) -> dict[str, Any]:
        """Returns the settings of masking that override the records'."""
        return {
            name: getattr(self, name)
            for name in _MASKING
            if getattr(self, name) != getattr(type(self), name)
        }

    @property
    def folders(self) -> list[str]:
        """The folders of records, one for each phase."""
        return [f.strip() for f in self.data_dir.split(",") if f.strip()]

    def phase_steps(self) -> list[int]:
        """Returns the steps of each phase, one for each folder of records.

        Raises:
          UserError: no folder, more than two, or a phase without a step.
        """
        if not 1 <= len(self.folders) <= 2:
            raise UserError(
                f"`data_dir`={self.data_dir}: give one folder of records, or "
                "two separated by a comma."
            )
        if len(self.folders) == 1:
            return [self.num_train_steps]
        final = round(self.num_train_steps * self.final_phase_proportion)
        if not 0 < final < self.num_train_steps:
            raise UserError(
                f"final_phase_proportion={self.final_phase_proportion} of "
                f"num_train_steps={self.num_train_steps} leaves a phase "
                "without a step."
            )
        return [self.num_train_steps - final, final]
