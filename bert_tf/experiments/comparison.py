"""Whether the paper's differences between rows show in our scores."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from bert_tf.experiments.experiment import Cell, Experiment, Finetuning
from bert_tf.experiments.results import Found, Numbers

# Differences of printed numbers are exact to so many decimals.
_DECIMALS = 6
# Differences count whose p-value in Welch's test is below this.
SIGNIFICANT = 0.05
# Points of the integration of Student's distribution.
_POINTS = 400


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of no values or of one that is not finite."""
    if not values or not all(map(math.isfinite, values)):
        return None
    return statistics.fmean(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """The sample's (n - 1); None of fewer than two values, as for `mean`."""
    if len(values) < 2 or mean(values) is None:
        return None
    return statistics.stdev(values)


def stand_in(cell: Cell, stand_ins: Mapping[str, str]) -> str:
    """The task that is run in place of the cell's own, or nothing."""
    if not isinstance(cell.run, Finetuning):
        return ""
    return stand_ins.get(cell.run.task, "")


def headings(
    experiment: Experiment, stand_ins: Mapping[str, str]
) -> dict[str, str]:
    """What stands over each column: its name, and what stands in for it."""
    found = {column: column for column in experiment.columns}
    for cell in experiment.cells:
        if task := stand_in(cell, stand_ins):
            found[cell.column] = f"{cell.column} (here {task})"
    return found


def written(value: float | None, factor: float, sign: str = "") -> str:
    """A number as tables print it: shares x 100 with one decimal.

    Args:
      value: the number.
      factor: of its cell; other numbers, such as perplexities, have about
        three digits.
      sign: "+" writes it of positive numbers too.
    """
    if value is None or not math.isfinite(value):
        return "\u2013"
    size = abs(value)
    decimals = 1 if factor == 100 or 10 <= size < 1000 else 2 * (size < 10)
    return f"{value:{sign},.{decimals}f}".replace("-", "\u2212")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How a row differs from the reference row in a column.

    Attributes:
      column: its name.
      stand_in: the task that is run in place of the column's, or nothing.
      paper: the paper's number of the row minus that of the reference.
      ours: the same of our means over the seeds.
      standard_error: of `ours`; None where one of the two has a single value.
      p_value: of `ours` in Welch's t-test, two-sided; None as above.
      factor: of the cells.
      lower_is_better: whether the lower number is the better one.
      is_degenerate: whether no seed of either did better than the commonest
        label.
    """

    column: str
    stand_in: str
    paper: float
    ours: float
    standard_error: float | None
    p_value: float | None
    factor: float
    lower_is_better: bool
    is_degenerate: bool

    @property
    def sign_agrees(self) -> bool | None:
        """Whether the order is the paper's; None where the paper has none."""
        return self.ours * self.paper > 0 if self.paper else None

    @property
    def is_significant(self) -> bool | None:
        """Whether the spread of the seeds does not explain it, p < .05.

        None where one of the two has a single value.
        """
        return None if self.p_value is None else self.p_value < SIGNIFICANT

    @property
    def verdict(self) -> str:
        """What is to be said of the column."""
        if self.is_degenerate:
            return "not learned"
        if not self.paper:
            return "tie in the paper"
        if self.is_significant is None and self.ours:
            return (
                "one run, agrees" if self.sign_agrees else "one run, reversed"
            )
        if not self.is_significant:
            return "within the spread"
        return "shows" if self.sign_agrees else "reversed"

    def __str__(self) -> str:
        numbers = written(self.ours, self.factor, "+")
        if self.standard_error is not None:
            numbers += f" \u00b1 {written(self.standard_error, self.factor)}"
        where = f"{self.stand_in} here, " if self.stand_in else ""
        return f"{self.column} ({where}{numbers})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A row beside the reference row.

    Attributes:
      row, reference: their names.
      differences: in the columns in which both have a number, ours and the
        paper's.
      unfinished: the columns in which the paper has both and we do not yet.
    """

    row: str
    reference: str
    differences: Sequence[Difference]
    unfinished: Sequence[str]

    def sentence(self, experiment: Experiment) -> str:
        """What the row shows, in one sentence."""
        if not experiment.across:
            clauses = _clauses(self.differences)
        else:
            clauses = _curve_clauses(self.differences, experiment.columns)
        if self.unfinished:
            clauses.append(f"{_joined(self.unfinished)}: not finished")
        return f"{self.row} against {self.reference}: {'; '.join(clauses)}."


def comparisons(
    experiment: Experiment, numbers: Numbers, stand_ins: Mapping[str, str]
) -> list[Comparison]:
    """Every row that the paper has numbers of beside the reference row's."""
    cells = {(cell.row, cell.column): cell for cell in experiment.cells}
    reference = experiment.reference or experiment.rows[0]
    found = []
    for row in experiment.rows:
        differences, unfinished = [], []
        for column in experiment.columns:
            cell = cells.get((row, column))
            base = cells.get((reference, column))
            if cell is None or base is None or row == reference:
                continue
            if cell.paper is None or base.paper is None:
                continue
            both = [numbers.get((name, column)) for name in (row, reference)]
            pair = [x for x in both if x and mean(x.values) is not None]
            if len(pair) < 2:
                unfinished.append(column)
                continue
            ours, standard_error, p_value = _difference(*pair)
            differences.append(
                Difference(
                    column=column,
                    stand_in=stand_in(cell, stand_ins),
                    paper=round(cell.paper - base.paper, _DECIMALS),
                    ours=ours,
                    standard_error=standard_error,
                    p_value=p_value,
                    factor=cell.factor,
                    lower_is_better=column in experiment.lower_is_better,
                    is_degenerate=all(
                        each.degenerate == len(each.values) for each in pair
                    ),
                )
            )
        if differences or unfinished:
            found.append(
                Comparison(
                    row=row,
                    reference=reference,
                    differences=differences,
                    unfinished=unfinished,
                )
            )
    return found


def _difference(
    ours: Found, theirs: Found
) -> tuple[float, float | None, float | None]:
    """Of two means, its standard error and its p-value if it has them.

    Welch 1947: the variances of both may differ, and the degrees of freedom
    are those of Satterthwaite 1946.
    """
    both = (ours.values, theirs.values)
    difference = statistics.fmean(both[0]) - statistics.fmean(both[1])
    if min(map(len, both)) < 2:
        return round(difference, _DECIMALS), None, None
    shares = [statistics.variance(v) / len(v) for v in both]
    error = math.sqrt(sum(shares))
    if not error:
        p_value = 0.0 if difference else 1.0
    else:
        degrees = sum(shares) ** 2 / sum(
            share**2 / (len(v) - 1)
            for share, v in zip(shares, both, strict=True)
        )
        p_value = two_sided_p_value(difference / error, degrees)
    return (
        round(difference, _DECIMALS),
        round(error, _DECIMALS),
        round(p_value, _DECIMALS),
    )


def two_sided_p_value(t: float, degrees: float) -> float:
    """The probability of a larger |t| under Student's t distribution.

    With t = sqrt(n) tan(x) the density is cos(x) ** (n - 1), which is
    integrated by Simpson's rule.

    Args:
      t: the statistic.
      degrees: the degrees of freedom, n >= 1.
    """

    def integral(first: float, last: float) -> float:
        width = (last - first) / _POINTS
        heights = [
            max(math.cos(first + width * k), 0.0) ** (degrees - 1)
            for k in range(_POINTS + 1)
        ]
        inner = 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
        return (heights[0] + inner + heights[-1]) * width / 3

    place = math.atan(abs(t) / math.sqrt(degrees))
    return integral(place, math.pi / 2) / integral(0.0, math.pi / 2)


def _shows(differences: Sequence[Difference]) -> str:
    """In how many columns the paper's order shows, of those with a spread."""
    found = [each.verdict for each in differences]
    shows = found.count("shows")
    total = shows + found.count("reversed") + found.count("within the spread")
    if not total:
        return ""
    count = f"{shows or 'none'} of {total} column{'s' * (total > 1)}"
    if shows == total > 1:
        count = f"all {total} columns"
    return f"the paper's order shows in {count}"


def _clauses(differences: Sequence[Difference]) -> list[str]:
    """What is to be said of the columns, by verdict."""
    clauses = []
    for verdict, text in (
        ("shows", "{words}"),
        ("reversed", "it is reversed: {words}"),
        ("within the spread", "the difference is within the spread in {names}"),
        ("one run, agrees", "as in the paper, but by one run each: {words}"),
        ("one run, reversed", "not as in the paper, by one run each: {words}"),
        ("tie in the paper", "the paper has no difference in {names}"),
        ("not learned", "neither learned the task of {names}"),
    ):
        some = [each for each in differences if each.verdict == verdict]
        better = [e for e in some if (e.ours < 0) == e.lower_is_better]
        worse = [each for each in some if each not in better]
        words = ", ".join(
            f"{word} in {_joined(group)}"
            for word, group in (("better", better), ("worse", worse))
            if group
        )
        if some:
            clauses.append(text.format(names=_joined(some), words=words))
    if shows := _shows(differences):
        # What shows, if anything does, stands first.
        is_first = any(each.verdict == "shows" for each in differences)
        clauses[:is_first] = [": ".join([shows, *clauses[:is_first]])]
    return clauses


def _curve_clauses(
    differences: Sequence[Difference], columns: Sequence[str]
) -> list[str]:
    """Where one curve is above the other, in the paper and here."""
    if not differences:
        return []
    paper: dict[str, list[str]] = {}
    ours: dict[str, list[str]] = {}
    for each in differences:
        sides = ["below" if x < 0 else "above" for x in (each.paper, each.ours)]
        paper.setdefault(sides[0] if each.paper else "equal", []).append(
            each.column
        )
        if each.is_degenerate:
            here = "without having learned the task"
        elif each.is_significant:
            here = sides[1]
        elif each.standard_error is None and each.ours:
            here = f"{sides[1]}, by one run each,"
        else:
            here = "within the spread"
        ours.setdefault(here, []).append(each.column)
    stand_ins = sorted({each.stand_in for each in differences} - {""})
    where = f"here ({_joined(stand_ins)})" if stand_ins else "here"
    clauses = [
        _shows(differences),
        f"in the paper it is {_places(paper, columns)}",
        f"{where} it is {_places(ours, columns)}",
    ]
    return [each for each in clauses if each]


def _places(of: Mapping[str, Sequence[str]], columns: Sequence[str]) -> str:
    """Which of the columns, those that follow one another as a stretch."""
    texts = []
    for words, chosen in of.items():
        stretches: list[list[str]] = []
        for column in chosen:
            before = columns[: columns.index(column)][-1:]
            if stretches and stretches[-1][-1:] == before:
                stretches[-1].append(column)
            else:
                stretches.append([column])
        names = [
            f"{each[0]} to {each[-1]}" if len(each) > 1 else each[0]
            for each in stretches
        ]
        texts.append(f"{words} at {_joined(names)}")
    return ", ".join(texts)


def _joined(names: Sequence[object]) -> str:
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last
