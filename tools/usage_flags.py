"""Flags that state how a model is used, where its folder does not."""

from absl import flags

from bert_tf.families.usage_options import TASKS, UsageOptions

# The flags are those of the command that imports them.
flags.disclaim_key_flags()


class UsageFlags:
    """Defines --task, --labels, --max_seq_length and --threshold."""

    def __init__(self) -> None:
        self._task = flags.DEFINE_string(
            "task",
            None,
            "What a model without task.json is used for, such as "
            "text_pair_classification where a row of its texts is a pair; one "
            f"of {', '.join(TASKS)}.",
        )
        self._labels = flags.DEFINE_list(
            "labels",
            None,
            "Names of the model's outputs in their order, comma-separated, "
            "where its folder has none.",
        )
        self._max_seq_length = flags.DEFINE_integer(
            "max_seq_length",
            None,
            "The longest row in tokens, of a model without task.json; what its "
            "folder states if none.",
        )
        self._threshold = flags.DEFINE_float(
            "threshold",
            None,
            "Of several labels a text, the probability above which a label "
            "holds, 0.5 if none; of questions, by how much having no answer "
            "must score above the best answer, which is given if none.",
        )

    def options(self) -> UsageOptions:
        """What the flags state."""
        return UsageOptions(
            self._task.value,
            self._labels.value,
            self._max_seq_length.value,
            self._threshold.value,
        )
