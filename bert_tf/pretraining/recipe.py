"""The settings of a pre-training run."""

import dataclasses

from bert_tf.errors import UserError
from bert_tf.recipe import Settings, setting

OPTIMIZERS = ("adamw", "adamw_no_bias_correction", "lamb")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class PretrainingRecipe(Settings):
    """What defines a pre-training run; recipe.json repeats it."""

    data_dir: str = setting(
        "",
        "folder of records, or two, comma-separated: short sequences for the "
        "first phase and long ones for the final phase",
    )
    size: str = setting("", "architecture by name: tiny to large")
    config_file: str = setting("", "bert_config.json, instead of a size")
    init_from: str = setting("", "model folder to continue from")
    vocab_file: str = setting(
        "", "vocabulary of records that do not carry theirs"
    )
    strategy: str = setting("one_device", "one_device or mirrored")
    precision: str = setting("float32", f"one of {', '.join(PRECISIONS)}")
    seed: int = setting(12345, "seed of weights, dropout, order and masks")
    # Devlin et al. 2019, appendix A.2, with the batch size of Google's code.
    train_batch_size: int = setting(32, "sequences in a step, over all devices")
    num_train_steps: int = setting(100_000, "optimizer steps of all phases")
    learning_rate: float = setting(1e-4, "peak learning rate")
    warmup_proportion: float = setting(
        0.1, "share of the steps in which the learning rate rises"
    )
    optimizer: str = setting("adamw", f"one of {', '.join(OPTIMIZERS)}")
    weight_decay_rate: float = setting(0.01, "decoupled weight decay")
    adam_beta_1: float = setting(0.9, "decay of the first moment")
    adam_beta_2: float = setting(0.999, "decay of the second moment")
    adam_epsilon: float = setting(1e-6, "added to the root, not inside it")
    max_grad_norm: float = setting(
        1.0, "global norm that gradients are clipped to; 0 = no clipping"
    )
    gradient_accumulation_steps: int = setting(
        1, "slices a device's batch is cut into, to save memory"
    )
    final_phase_proportion: float = setting(
        0.1, "share of the steps spent on the second folder of records"
    )
    final_phase_batch_size: int = setting(
        0, "train_batch_size of the final phase; 0 = the same"
    )
    eval_batch_size: int = setting(64, "sequences in an evaluation batch")
    eval_steps: int = setting(1000, "steps between two evaluations")
    save_checkpoints_steps: int = setting(
        1000, "steps between two training states on disk"
    )
    keep_checkpoint_max: int = setting(3, "training states kept")
    log_steps: int = setting(50, "steps that a row of numbers covers")

    # What may change between a run and the run that resumes it.
    MAY_CHANGE = frozenset(
        {
            "eval_steps",
            "eval_batch_size",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
        }
    )

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "num_train_steps",
            "gradient_accumulation_steps",
            "eval_batch_size",
            "eval_steps",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_steps",
        ):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("learning_rate", "adam_epsilon"):
            self._check(name, getattr(self, name) > 0, "more than 0")
        for name in (
            "weight_decay_rate",
            "max_grad_norm",
            "final_phase_batch_size",
            "seed",
        ):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        for name in (
            "warmup_proportion",
            "adam_beta_1",
            "adam_beta_2",
        ):
            self._check(name, 0 <= getattr(self, name) < 1, "from 0 to 1")
        self._check(
            "final_phase_proportion",
            0 < self.final_phase_proportion < 1,
            "above 0 and below 1",
        )
        self._check("optimizer", self.optimizer in OPTIMIZERS, OPTIMIZERS)
        self._check("precision", self.precision in PRECISIONS, PRECISIONS)
        if self.size and self.config_file:
            raise UserError("give --size or --config_file, not both.")

    def _check(self, name: str, good: bool, wanted: object) -> None:
        if isinstance(wanted, tuple):
            wanted = "one of " + ", ".join(wanted)
        if not good:
            raise UserError(
                f"{name} is {getattr(self, name)!r}; it takes {wanted}."
            )

    @property
    def folders(self) -> list[str]:
        """The folders of records, one for each phase."""
        return [f.strip() for f in self.data_dir.split(",") if f.strip()]

    @property
    def warmup_steps(self) -> int:
        """Steps in which the learning rate rises."""
        return int(self.num_train_steps * self.warmup_proportion)

    def phase_steps(self) -> list[int]:
        """Steps of each phase, one for each folder of records.

        Raises:
          UserError: no folder, more than two, or a phase without a step.
        """
        if not 1 <= len(self.folders) <= 2:
            raise UserError(
                f"--data_dir={self.data_dir}: give one folder of records, or "
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
