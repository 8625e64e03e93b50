"""What an experiment is: a table whose cells are scores of runs.

A file in experiments/ says rows, columns, the run behind each cell and the
paper's number. What a run does not say is the scale's (`scales.py`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, whole_number

# At how many even steps a pre-training's model is kept, besides the last.
KEPT_MODELS = 20
Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
    """A pre-training from random weights.

    Attributes:
      objective: what `tools.run_pretraining --set objective` takes.
      size: layers/hidden/heads of the paper; a scale has its own in its place.
      records: settings of tools.create_pretraining_data.
      settings: settings of tools.run_pretraining.
    """

    objective: str = "masked_lm_next_sentence"
    size: str = "12/768/12"
    records: Values = dataclasses.field(default_factory=dict)
    settings: Values = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class AfterSteps:
    """A pre-training's model as it was after some of its steps.

    Attributes:
      pretraining: the pre-training.
      part: after so many twentieths of its steps, 1 to 20.
    """

    pretraining: Pretraining
    part: int

    def __post_init__(self) -> None:
        whole_number("part", self.part, 1, KEPT_MODELS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuning:
    """A fine-tuning with the seeds of the scale.

    Attributes:
      task: what `tools.run_finetuning --task` takes.
      model: what it starts from; None for the model that `init_from` names.
      settings: settings of the task's recipe, which go before the scale's.
    """

    task: str
    model: Pretraining | AfterSteps | None = None
    settings: Values = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of the table.

    Attributes:
      row, column: where it stands.
      run: what it is a score of.
      score: its name in the run's results.json.
      split: the dev split that it is of; empty for the task's first one.
      factor: what the score is multiplied by in the table.
      paper: the paper's number; None where the paper has none.
    """

    row: str
    column: str
    run: Pretraining | Finetuning
    score: str
    split: str = ""
    factor: float = 100.0
    paper: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or a figure of a paper, or of one's own.

    Attributes:
      title: what it shows, and where the paper has it.
      cells: the numbers; rows and columns stand in the order in which they
        first appear here.
      reference: the row that the others are compared with; empty for the
        first one.
      paper_rows: row to column to number, of rows of the paper that nothing is
        run for.
      across: where the columns are numbers, what they are: the rows are drawn
        as curves over them.
      against: the column that the others are drawn against.
      lower_is_better: columns in which the lower number is the better one.
      notes: what differs from the paper, a sentence each.
    """

    title: str
    cells: Sequence[Cell]
    reference: str = ""
    paper_rows: Mapping[str, Mapping[str, float]] = dataclasses.field(
        default_factory=dict
    )
    across: str = ""
    against: str = ""
    lower_is_better: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        places = [(cell.row, cell.column) for cell in self.cells]
        if not places:
            raise UserError(f"{self.title}: an experiment needs a cell.")
        for row, column in places:
            if places.count((row, column)) > 1:
                raise UserError(
                    f"{self.title}: row {row!r} has column {column!r} twice."
                )
        named = [("reference", self.reference, self.rows)]
        columns = (self.against, *self.lower_is_better)
        named += [("column", column, self.columns) for column in columns]
        for what, name, names in named:
            if name and name not in names:
                raise UserError(
                    f"{self.title}: {what} {name!r} is none of "
                    f"{', '.join(names)}."
                )
        for column in self.columns if self.across else ():
            try:
                float(column)
            except ValueError:
                raise UserError(
                    f"{self.title}: column {column!r} is no number; across "
                    "takes columns that are."
                ) from None

    @property
    def pretrainings(self) -> list[Pretraining]:
        """What is pre-trained for the cells, with repetitions."""
        models = [
            cell.run.model if isinstance(cell.run, Finetuning) else cell.run
            for cell in self.cells
        ]
        return [
            model.pretraining if isinstance(model, AfterSteps) else model
            for model in models
            if model is not None
        ]

    @property
    def rows(self) -> list[str]:
        """The names of the rows, in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))
