"""Scores a prediction file against a file with the answers."""

from bert_tf.errors import UserError
from bert_tf.finetuning.kinds.sentence_recipe import SentenceRecipe
from bert_tf.finetuning.kinds.sentence_task import SentenceTask


def score_file(
    task: SentenceTask,
    recipe: SentenceRecipe,
    references: str,
    predictions: str,
) -> dict[str, float]:
    """Computes a task's official scores.

    Args:
      task: a prepared task.
      recipe: says how to read the references.
      references: path of a file that is laid out as the task's dev file.
      predictions: path of a file as `SentenceTask.write_predictions` writes.

    Returns:
      Score by name.

    Raises:
      UserError: a file is broken, or the two do not have the same rows.
    """
    answers = task.read_predictions(predictions)
    examples = task.read_references(references, recipe)
    for example in examples:
        if example.identifier not in answers:
            raise UserError(
                f"{predictions}: has no index {example.identifier}, which is "
                f"row {example.row} of {references}; predict every row."
            )
    if len(answers) > len(examples):
        known = {example.identifier for example in examples}
        index = next(index for index in answers if index not in known)
        raise UserError(
            f"{predictions}: has an index {index!r}, which {references} with "
            f"its {len(examples)} rows does not have."
        )
    wanted = [example.label for example in examples]
    found = [answers[example.identifier] for example in examples]
    return task.score(wanted, found, task.all_labels([*wanted, *found]))
