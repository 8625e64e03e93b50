"""Scales of experiments: vocabulary, model sizes, steps and seeds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import check_choice


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """Settings of all runs of an experiment, which the experiment overrides.

    Attributes:
      description: what hardware it is for.
      vocab_size: number of tokens of the vocabulary that is trained.
      sizes: layers/hidden/heads of the paper to those that replace them; other
        sizes are not replaced.
      records: settings of `bert-tf create-pretraining-data`.
      final_records: further settings of the records of the second phase; None
        for one phase.
      pretraining: settings of `bert-tf pretrain`.
      finetuning: settings of every fine-tuning.
      tasks: further settings of the fine-tunings on a task.
      seeds: number of trainings of each fine-tuning.
      any_checkpoint: whether a given checkpoint may have any size.
    """

    description: str
    vocab_size: int
    sizes: Mapping[str, str]
    records: Mapping[str, Any]
    final_records: Mapping[str, Any] | None = None
    pretraining: Mapping[str, Any]
    finetuning: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Any]]
    seeds: int
    any_checkpoint: bool = True

    def size(self, paper_size: str) -> str:
        """The size that replaces a size of the paper."""
        return self.sizes.get(paper_size, paper_size)


SCALES = {
    # Layers are a third of the paper's, hidden sizes a twelfth, heads a sixth.
    "tiny": Scale(
        description="two CPU cores, a table in about two hours; shows that "
        "everything runs, and large effects",
        vocab_size=4096,
        sizes={
            "3/768/12": "1/64/2",
            "6/768/3": "2/64/1",
            "6/768/12": "2/64/2",
            "12/768/12": "4/64/2",
            "12/1024/16": "4/96/3",
            "24/1024/16": "8/96/3",
        },
        records={"max_seq_length": 128, "max_predictions_per_seq": 20},
        pretraining={
            "train_batch_size": 32,
            "num_train_steps": 2_000,
            "learning_rate": 1e-3,
            "eval_steps": 500,
        },
        finetuning={"learning_rate": 3e-4},
        tasks={
            "sst2": {"num_train_epochs": 1.0},
            "qqp": {"num_train_epochs": 1.0},
            "squad_v1": {
                "max_seq_length": 128,
                "max_query_length": 32,
                "doc_stride": 64,
                "num_train_epochs": 0.2,
            },
            "squad_v2": {
                "max_seq_length": 128,
                "max_query_length": 32,
                "doc_stride": 64,
            },
            "conll2003": {"context": "sentence"},
            "conll2003_features": {
                "context": "sentence",
                "learning_rate": 2e-3,
                "train_batch_size": 64,
                "num_train_epochs": 3.0,
                "lstm_units": 64,
            },
        },
        seeds=3,
    ),
    # Layers, hidden sizes and heads are a third of the paper's.
    "small": Scale(
        description="one GPU, a table in about a day",
        vocab_size=16_384,
        sizes={
            "3/768/12": "1/256/4",
            "6/768/3": "2/256/1",
            "6/768/12": "2/256/4",
            "12/768/12": "4/256/4",
            "12/1024/16": "4/384/6",
            "24/1024/16": "8/384/6",
        },
        records={"max_seq_length": 128, "max_predictions_per_seq": 20},
        final_records={"max_seq_length": 512, "max_predictions_per_seq": 77},
        pretraining={
            "train_batch_size": 256,
            "final_phase_batch_size": 64,
            "num_train_steps": 100_000,
            "learning_rate": 5e-4,
            "eval_steps": 5_000,
        },
        finetuning={"learning_rate": 1e-4},
        tasks={
            "conll2003_features": {
                "context": "sentence",
                "learning_rate": 1e-3,
                "lstm_units": 256,
            },
        },
        seeds=3,
    ),
    # Devlin et al. 2019, appendix A.2: 256 sequences of 512 tokens, a million
    # steps, the first 90 % of them on 128 tokens.
    "paper": Scale(
        description="the published sizes, steps and fine-tunings",
        vocab_size=30_522,
        sizes={},
        records={"max_seq_length": 128, "max_predictions_per_seq": 20},
        final_records={"max_seq_length": 512, "max_predictions_per_seq": 77},
        pretraining={
            "train_batch_size": 256,
            "num_train_steps": 1_000_000,
            "learning_rate": 1e-4,
            "warmup_proportion": 0.01,
            "eval_steps": 50_000,
            "save_checkpoints_steps": 10_000,
        },
        finetuning={},
        tasks={},
        seeds=5,
        any_checkpoint=False,
    ),
}


def scale_named(name: str) -> Scale:
    """Returns a scale by its name.

    Raises:
      UserError: unknown name.
    """
    check_choice("`scale`", name, SCALES)
    return SCALES[name]
