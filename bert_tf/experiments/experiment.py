"""The definition of an experiment: a table whose cells are scores of runs.

A file in experiments/ defines the rows, the columns, and for each cell its run
and the paper's number. The scale (`scales.py`) has the other settings.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.errors import UserError, whole_number

# How many models of a pre-training are kept, at equal intervals.
KEPT_MODELS = 20
Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining:
    """A pre-training from random weights.

    Attributes:
      objective: the setting of `bert-tf pretrain`.
      size: layers/hidden/heads in the paper; a scale may replace them.
      records: settings of `bert-tf create-pretraining-data`.
      settings: settings of `bert-tf pretrain`.
    """

    objective: str = "masked_lm_next_sentence"
    size: str = "12/768/12"
    records: Values = dataclasses.field(default_factory=dict)
    settings: Values = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class AfterSteps:
    """The model of a pre-training after a part of its steps.

    Attributes:
      pretraining: the pre-training.
      part: in twentieths of all steps, 1 to 20.
    """

    pretraining: Pretraining
    part: int

    def __post_init__(self) -> None:
        whole_number("part", self.part, 1, KEPT_MODELS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuning:
    """A fine-tuning with the seeds of the scale.

    Attributes:
      task: the name of a task, as `bert-tf finetune --task` takes it.
      model: the initial model; None for the model that `init_from` names.
      settings: settings of the task's recipe; they override the scale's.
    """

    task: str
    model: Pretraining | AfterSteps | None = None
    settings: Values = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of the table.

    Attributes:
      row, column: its position.
      run: the run that it is a score of.
      score: the name of the score in the run's results.json.
      split: the dev split; empty for the first one of the task.
      factor: multiplies the score in the table.
      paper: the paper's number; None if the paper has none.
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
    """A table or a figure of a paper or of a user.

    Attributes:
      title: the title, with its number in the paper.
      cells: the cells; rows and columns are in the order of their first cell.
      reference: the row that other rows are compared with; empty for the first
        one.
      paper_rows: row to column to number, for rows of the paper without runs.
      across: if the columns are numbers, their name: the rows are drawn as
        curves over them.
      against: the column that the others are plotted against.
      lower_is_better: columns in which a lower number is better.
      notes: differences from the paper, one sentence each.
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
                    f"{self.title}: {what} {name!r} is not one of "
                    f"{', '.join(names)}."
                )
        for column in self.columns if self.across else ():
            try:
                float(column)
            except ValueError:
                raise UserError(
                    f"{self.title}: column {column!r} is not a number, which "
                    "`across` needs."
                ) from None

    @property
    def pretrainings(self) -> list[Pretraining]:
        """The pre-trainings of all cells, with repetitions."""
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
