"""The settings that every training has, whatever is learnt."""

import dataclasses
import math

from bert_tf.recipe import Settings, setting

OPTIMIZERS = ("adamw", "adamw_no_bias_correction", "lamb")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# Keras takes no seed above this.
LARGEST_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class TrainingRecipe(Settings):
    """What defines a training; a kind of training adds settings of its own."""

    init_from: str = setting(
        "", "model to start from: a folder, hf:// or keras_hub:// source"
    )
    strategy: str = setting(
        "one_device", "one_device, mirrored, multi_worker or tpu"
    )
    precision: str = setting("float32", f"one of {', '.join(PRECISIONS)}")
    seed: int = setting(12345, "seed of new weights, dropout, order and masks")
    # Devlin et al. 2019, appendix A.2 and A.3, with the batch size of Google's
    # code for pre-training.
    train_batch_size: int = setting(32, "rows in a step, over all devices")
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
    rematerialize: bool = setting(
        False, "computes each block again in the backward pass, to save memory"
    )
    loss_normalisation: str = setting(
        "global",
        "global divides by the weights of the whole batch; per_replica "
        "averages the means of the devices, as the original does",
    )
    on_non_finite: str = setting(
        "stop",
        "stop, or skip: leave out a step whose loss or gradient is not finite "
        "and halve the learning rate for the next 100; ten in a row stop",
    )
    eval_batch_size: int = setting(64, "sequences in an evaluation batch")
    save_checkpoints_steps: int = setting(
        1000, "steps between two training states on disk"
    )
    keep_checkpoint_max: int = setting(3, "training states kept")
    log_steps: int = setting(50, "steps that a row of numbers covers")

    # What may change between a run and the run that resumes it.
    MAY_CHANGE = frozenset(
        {
            "rematerialize",
            "eval_batch_size",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "train_batch_size",
            "gradient_accumulation_steps",
            "eval_batch_size",
            "save_checkpoints_steps",
            "keep_checkpoint_max",
            "log_steps",
        ):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("learning_rate", "adam_epsilon"):
            good = 0 < getattr(self, name) < math.inf
            self._check(name, good, "more than 0")
        for name in ("weight_decay_rate", "max_grad_norm"):
            good = 0 <= getattr(self, name) < math.inf
            self._check(name, good, "0 or more")
        for name in ("warmup_proportion", "adam_beta_1", "adam_beta_2"):
            self._check(name, 0 <= getattr(self, name) < 1, "0 up to below 1")
        good = 0 <= self.seed <= LARGEST_SEED
        self._check("seed", good, f"0 to {LARGEST_SEED}")
        self._check("optimizer", self.optimizer in OPTIMIZERS, OPTIMIZERS)
        self._check("precision", self.precision in PRECISIONS, PRECISIONS)
        means = ("global", "per_replica")
        self._check(
            "loss_normalisation", self.loss_normalisation in means, means
        )
        ends = ("stop", "skip")
        self._check("on_non_finite", self.on_non_finite in ends, ends)
