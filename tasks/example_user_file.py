"""An example to copy: a file of mails, scored by the cost of wrong answers.

bert-tf finetune --task=tasks/example_user_file.py --mode=train,eval \\
    --model=MODEL --output_dir=out
"""

from bert_tf.finetuning import UserFileTask


def cost(labels, predictions):
    """Of 0 = good and 1 = spam: a good mail lost costs as much as ten spam."""
    return (10 * (predictions > labels) + (predictions < labels)).mean()


FILE = {"train_file": "mails.csv", "text_columns": "text"}
TASK = UserFileTask(
    "example_user_file",
    scores={"cost": cost},
    lower_is_better=("cost",),
    defaults=FILE | {"label_column": "label"},
)
