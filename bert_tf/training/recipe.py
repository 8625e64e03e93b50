"""The settings of every training."""

import dataclasses

from bert_tf.config import DECAY_SHAPES, LINEAR, PRECISIONS
from bert_tf.recipe import Settings, setting

OPTIMIZERS = ("adamw", "adamw_no_bias_correction", "lamb", "stable_adamw")
# What a fine-tuning does with its data.
MODES = ("train", "eval", "predict", "check")
# The largest seed of Keras.
LARGEST_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class TrainingRecipe(Settings):
    """The settings of every training; subclasses add those of their kind."""

    init_from: str = setting(
        "", "model to start from: a folder, hf:// or keras_hub:// source"
    )
    strategy: str = setting(
        "one_device", "one_device, mirrored, multi_worker or tpu"
    )
    precision: str = setting("float32", choices=PRECISIONS)
    seed: int = setting(
        12345,
        "seed of new weights, dropout, order and masks",
        at_least=0,
        at_most=LARGEST_SEED,
    )
    # Devlin et al. 2019, appendix A.2 and A.3, with the batch size of Google's
    # code for pre-training.
    train_batch_size: int = setting(
        32, "rows in a step, over all devices", at_least=1
    )
    learning_rate: float = setting(1e-4, "peak learning rate", above=0)
    warmup_proportion: float = setting(
        0.1,
        "share of the steps in which the learning rate rises",
        at_least=0,
        below=1,
    )
    decay_proportion: float = setting(
        1.0,
        "share of the steps, at the end, in which the learning rate falls to "
        "0; before, it is constant",
        at_least=0,
        at_most=1,
    )
    decay_shape: str = setting(LINEAR, choices=DECAY_SHAPES)
    optimizer: str = setting("adamw", choices=OPTIMIZERS)
    weight_decay_rate: float = setting(
        0.01, "decoupled weight decay", at_least=0
    )
    adam_beta_1: float = setting(
        0.9, "decay of the first moment", at_least=0, below=1
    )
    adam_beta_2: float = setting(
        0.999, "decay of the second moment", at_least=0, below=1
    )
    adam_epsilon: float = setting(
        1e-6, "added to the root, not inside it", above=0
    )
    max_grad_norm: float = setting(
        1.0,
        "global norm that gradients are clipped to; 0 = no clipping",
        at_least=0,
    )
    gradient_accumulation_steps: int = setting(
        1, "number of slices of a device's batch, to save memory", at_least=1
    )
    rematerialize: bool = setting(
        False,
        "recompute each block in the backward pass, to save memory",
        may_change=True,
    )
    loss_normalisation: str = setting(
        "global",
        "global divides by the weights of the whole batch; per_replica "
        "averages the means of the devices, as google-research/bert does",
        choices=("global", "per_replica"),
    )
    on_non_finite: str = setting(
        "stop",
        "stop, or skip: skip a step whose loss or gradient is not finite and "
        "halve the learning rate for the next 100; ten in a row stop the run",
        choices=("stop", "skip"),
    )
    eval_batch_size: int = setting(
        64, "sequences in an evaluation batch", at_least=1, may_change=True
    )
    save_checkpoints_steps: int = setting(
        1000,
        "steps between two training states on disk",
        at_least=1,
        may_change=True,
    )
    keep_checkpoint_max: int = setting(
        3, "training states kept", at_least=1, may_change=True
    )
    log_steps: int = setting(
        50, "steps that a row of numbers covers", at_least=1
    )

    @property
    def num_slices(self) -> int:
        """The number of slices of a device's batch."""
        return self.gradient_accumulation_steps
