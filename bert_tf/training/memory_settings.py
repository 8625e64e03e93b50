"""The settings of a plan of memory."""

import dataclasses
import re

from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.recipe import Settings, setting
from bert_tf.training.memory import Workload
from bert_tf.training.recipe import OPTIMIZERS, PRECISIONS

OBJECTIVES = ("pretraining", "classifier")
_UNITS = {"GB": 1e9, "GIB": 2.0**30, "MB": 1e6, "MIB": 2.0**20}


@dataclasses.dataclass(frozen=True)
class PlanSettings(Settings):
    """What is to be trained, and on what."""

    size: str = setting("", "architecture by name: tiny to large")
    config_file: str = setting("", "bert_config.json, instead of a size")
    init_from: str = setting("", "a model folder, instead of a size")
    vocab_size: int = setting(30_522, "tokens of the vocabulary, with a size")
    objective: str = setting(
        "pretraining", f"one of {', '.join(OBJECTIVES)} (of sentences)"
    )
    max_seq_length: int = setting(128, "tokens in a row")
    max_predictions_per_seq: int = setting(
        0, "masked tokens in a row; 0 = 15 % of the row"
    )
    precision: str = setting("float32", f"one of {', '.join(PRECISIONS)}")
    optimizer: str = setting("adamw", f"one of {', '.join(OPTIMIZERS)}")
    rematerialize: bool = setting(
        False, "compute each block anew in the backward pass"
    )
    gradient_accumulation_steps: int = setting(1, "slices of a device's batch")
    train_batch_size: int = setting(
        0, "sequences in a step, over all devices; 0 = the most that fit"
    )
    devices: int = setting(1, "devices that share the batch")
    memory: str = setting(
        "", "of a device, such as 16GB; empty asks the device of this machine"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("objective", self.objective in OBJECTIVES, OBJECTIVES)
        self._check("precision", self.precision in PRECISIONS, PRECISIONS)
        self._check("optimizer", self.optimizer in OPTIMIZERS, OPTIMIZERS)
        for name in ("devices", "gradient_accumulation_steps"):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        good = self.train_batch_size >= 0
        self._check("train_batch_size", good, "0 or more")
        parts = self.devices * self.gradient_accumulation_steps
        good = self.train_batch_size % parts == 0
        self._check("train_batch_size", good, f"a multiple of {parts}")
        good = 0 <= self.max_predictions_per_seq <= self.max_seq_length
        self._check(
            "max_predictions_per_seq", good, f"0 to {self.max_seq_length}"
        )
        if self.memory:
            parse_memory(self.memory)

    def workload(self) -> Workload:
        """What a device trains.

        Raises:
          UserError: the architecture is unknown, or has too few positions.
        """
        sources = (self.size, self.config_file, self.init_from)
        if sum(map(bool, sources)) != 1:
            raise UserError(
                "give one of `size`, `config_file` and `init_from`."
            )
        if self.size:
            config = BertConfig.from_size(self.size, self.vocab_size)
        elif self.config_file:
            config = BertConfig.from_json(self.config_file)
        else:
            config = load_checkpoint(self.init_from).config
        longest = config.max_position_embeddings
        good = 1 <= self.max_seq_length <= longest
        self._check(
            "max_seq_length",
            good,
            f"1 to {longest}, the max_position_embeddings",
        )
        return self._work(config, self.max_seq_length)

    def of_size(self, size: str, length: int) -> Workload:
        """The same training of a size by name, at another length."""
        config = BertConfig.from_size(size, self.vocab_size)
        return self._work(config, length)

    def _work(self, config: BertConfig, length: int) -> Workload:
        predictions = 0
        if self.objective == "pretraining":
            # google-research/bert's README: max_seq_length * masked_lm_prob.
            predictions = max(round(0.15 * length), 1)
            if length == self.max_seq_length:
                predictions = self.max_predictions_per_seq or predictions
        return Workload(
            config,
            length,
            max(self.train_batch_size // self.devices, 1),
            predictions,
            self.precision,
            self.optimizer,
            self.rematerialize,
            self.gradient_accumulation_steps,
        )


def parse_memory(text: str) -> float:
    """Bytes of a text such as 16GB, 11.5 GiB or 800MB.

    Raises:
      UserError: the text is no such size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([GM]i?B)\s*", text, re.I)
    if not found or not float(found[1]):
        raise UserError(
            f"`memory`={text}: give a number and GB, GiB, MB or MiB, such as "
            "16GB."
        )
    return float(found[1]) * _UNITS[found[2].upper()]
