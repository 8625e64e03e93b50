"""Flags for the use of a model that its folder does not state."""

from absl import flags

from bert_tf.families.usage_options import TASKS, UsageOptions

# Flags belong to the command that imports this module.
flags.disclaim_key_flags()


class UsageFlags:
    """Defines --task, --labels, --max_seq_length and --threshold."""

    def __init__(self) -> None:
        self._task = flags.DEFINE_string(
            "task",
            None,
            "Use of a model without task.json, such as "
            "text_pair_classification for pairs of texts; one of "
            f"{', '.join(TASKS)}.",
        )
        self._labels = flags.DEFINE_list(
            "labels",
            None,
            "Names of the model's outputs in order, comma-separated, if its "
            "folder has none.",
        )
        self._max_seq_length = flags.DEFINE_integer(
            "max_seq_length",
            None,
            "Longest row in tokens, of a model without task.json; by default "
            "as its folder states.",
        )
        self._threshold = flags.DEFINE_float(
            "threshold",
            None,
            "Multi-label: the probability above which a label is assigned, by "
            "default 0.5; questions: the margin by which no answer must score "
            "above the best answer, by default never.",
        )

    def options(self) -> UsageOptions:
        """Returns the options in the flags."""
        return UsageOptions(
            self._task.value,
            self._labels.value,
            self._max_seq_length.value,
            self._threshold.value,
        )
