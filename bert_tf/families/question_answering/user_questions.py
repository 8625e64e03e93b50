"""User files of questions: tables, or JSON files in SQuAD's layout."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bert_tf.errors import Fault, UserError, excerpt, first_few
from bert_tf.families.data.user_files import UserFiles
from bert_tf.families.question_answering.recipe import UserQuestionRecipe
from bert_tf.families.question_answering.squad_files import (
    Answer,
    Question,
    as_in_context,
    placed_answer,
    read_questions,
    split_off_questions,
    with_starts,
)
from bert_tf.families.question_answering.task import QuestionAnsweringTask
from bert_tf.files import unpacked_name
from bert_tf.progress import log
from bert_tf.tables.faults import Faults
from bert_tf.tables.list_cells import entries_of, object_in
from bert_tf.tables.table import (
    Cell,
    Dialect,
    Row,
    Table,
    convert_rows,
    format_of,
    named_columns,
    text_of,
)

if TYPE_CHECKING:
    from bert_tf.families.in_memory import DataFile


def read_user_questions(
    path: str, recipe: UserQuestionRecipe, answers_needed: bool = True
) -> list[Question]:
    """Reads a .json file in SQuAD's layout, or another file as a table.

    In a table, a question's identifier is its position in the file, from 0. In
    JSON lines the answers may have the form of Hugging Face's data sets, an
    object of lists text and answer_start, or a list of such objects.

    Args:
      path: the file, or for tables see `Table`.
      recipe: states the columns and the dialect.
      answers_needed: whether every question must state its answers or that
        there is none, as for training and scoring.

    Raises:
      UserError: the file cannot be read, or has invalid rows.
    """

    def check(question: Question, place: str) -> None:
        for name in ("question", "context"):
            text = getattr(question, name)
            if not text.strip() and recipe.empty_text == "error":
                raise Fault(
                    "an empty text",
                    f"{place}: the {name} is empty ({excerpt(text)}); correct "
                    "it, or pass `empty_text`=keep or `empty_text`=drop.",
                )
        if answers_needed and not (question.answers or recipe.with_null):
            raise Fault(
                "no answer",
                f"{place}: has no answer; give one, or pass `with_null`=True "
                "where questions may have none.",
            )

    if unpacked_name(path).endswith(".json") and not recipe.format:
        questions = read_questions(
            path,
            answers_needed,
            encoding_errors=recipe.encoding_errors,
            bad_rows=recipe.bad_rows,
            check=check,
        )
    else:
        settings = ["question_column", "context_column"]
        if answers_needed:
            settings.append("answer_column")
            if recipe.answer_start_column:
                settings.append("answer_start_column")
        columns = named_columns(
            {setting: [getattr(recipe, setting)] for setting in settings}, path
        )
        nested: list[str] = []
        table = Table(path, Dialect.of_recipe(recipe))
        file_format = recipe.format or format_of(table.files[0])
        if answers_needed and file_format not in ("csv", "tsv"):
            # The key has the answer, or an object that contains it.
            key = recipe.answer_column
            nested = [key, f"{key}.text", f"{key}.answer_start"]
            columns.remove(key)

        respelled: list[str] | None = None if recipe.exact_answers else []

        def make(row: Row) -> Question:
            place = row.place
            question, context = (
                text_of(cell, column, place)
                for cell, column in zip(row.cells[:2], columns, strict=False)
            )
            cells = list(row.cells[2:])
            if nested:
                *starts, answer, texts, nested_starts = cells
                if answer is None and texts is None:
                    raise Fault(
                        "a missing key",
                        f"{place}: has no {nested[0]!r} with the answer, nor "
                        "an object of that name with text; name the key with "
                        "`answer_column`, for example answers.",
                    )
                if texts is not None and not starts:
                    starts = [] if nested_starts is None else [nested_starts]
                cells = [answer if texts is None else texts, *starts]
            answers = _answers(cells, context, place, respelled)
            found = Question(
                identifier=str(row.position),
                title="",
                question=question,
                context=context,
                answers=answers,
                is_impossible=answers_needed and not answers,
            )
            check(found, place)
            return found

        faults = Faults(path, recipe.bad_rows)
        rows = table.rows(columns, nested)
        questions = list(convert_rows(rows, make, faults))
        if respelled:
            log(
                f"{path}: {len(respelled)} answers have other blanks or "
                "another case than their contexts, whose spelling is taken: "
                f"{first_few([*map(excerpt, respelled)])}; pass "
                "`exact_answers`=true to refuse them."
            )
    if recipe.empty_text != "drop":
        return questions
    kept = [q for q in questions if q.question.strip() and q.context.strip()]
    if not kept:
        raise UserError(f"{path}: all questions or contexts are empty.")
    if len(kept) < len(questions):
        log(
            f"{path}: {len(questions) - len(kept)} of {len(questions)} "
            "questions are empty, or their contexts, and are dropped "
            "(empty_text=drop)."
        )
    return kept


def _answers(
    cells: Sequence[Cell], context: str, place: str, respelled: list[str] | None
) -> tuple[Answer, ...]:
    """Returns the answers in the cells of answers and starts, if any.

    An empty cell, or an empty answer at -1, is no answer; a list has several,
    also as a text, and so may an object of lists text and answer_start. Without
    starts, the first occurrence in the context is used, whose spelling may have
    other blanks and another case; then the answer is added to `respelled`,
    unless that is None.
    """
    if cells and isinstance(cells[0], str):
        stated = object_in(cells[0]) or {}
        if "text" in stated:
            names = ("text", "answer_start")[: 3 - len(cells)]
            lists = [stated[name] for name in names if name in stated]
            cells = [*lists, *cells[1:]]
    texts, *given = [
        _entries(cell, is_start=number > 0) for number, cell in enumerate(cells)
    ] or [()]
    starts = given[0] if given else None
    if not any(map(str.strip, texts)) and starts and {*starts} == {"-1"}:
        return ()
    if not all(map(str.strip, texts)):
        raise Fault(
            "an empty answer",
            f"{place}: one of its answers is empty; remove it from the list.",
        )
    pairs = with_starts(texts, starts, place)
    try:
        numbers = [None if start is None else int(start) for _, start in pairs]
    except ValueError:
        raise Fault(
            "a start that is no number",
            f"{place}: the start is {excerpt(', '.join(starts or ()))}; it "
            "counts the characters of the context before the answer.",
        ) from None
    found = []
    for text, start in zip(texts, numbers, strict=True):
        spelled = text
        if start is None and respelled is not None:
            spelled = as_in_context(text, context)
            respelled += [text] * (spelled != text)
        found.append(placed_answer(spelled, start, context, place))
    return tuple(found)


def _entries(cell: Cell, is_start: bool) -> tuple[str, ...]:
    """Returns the answers or starts in a cell."""
    entries = entries_of(cell)
    if isinstance(cell, str):
        # An answer may be a number in brackets.
        is_text = not is_start and entries and not {*"'\""} & {*cell}
        if entries is None or is_text:
            return (cell,) if cell else ()
    return entries or ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserQuestionAnsweringTask(QuestionAnsweringTask):
    """The task called questions, which reads user files."""

    train_name: str = ""
    dev_name: str = ""
    with_null: bool = False
    main_metric: str = "f1"
    data: UserFiles = dataclasses.field(
        default_factory=lambda: UserFiles(split_off_questions, "questions")
    )

    recipe_type: ClassVar[type[UserQuestionRecipe]] = UserQuestionRecipe
    data_folder: ClassVar[str] = ""

    def stored(
        self, data: Any, name: str, settings: Mapping[str, Any]
    ) -> "DataFile":
        """Converts questions to a file: also what `read_questions` reads."""
        from bert_tf.families.in_memory import (
            DataFile,
            json_value,
            stored_table,
        )
        from bert_tf.tables.memory import is_list

        is_json = isinstance(data, list) or (
            isinstance(data, Mapping) and is_list(data.get("data"))
        )
        if is_json:
            text = json.dumps(json_value(data, name), ensure_ascii=False)
            return DataFile("json", text)
        return stored_table(data, name, "a list of questions")

    def resolve(self, recipe: Any) -> Self:
        """Returns the task of one run, in which a file is read once."""
        return dataclasses.replace(
            self,
            with_null=recipe.with_null,
            main_metric="best_f1" if recipe.with_null else self.main_metric,
            data=UserFiles(split_off_questions, "questions"),
        )

    def read_file(
        self, path: str, recipe: Any, labelled: bool = True, unique: bool = True
    ) -> list[Question]:
        """Reads a table or a JSON file; see `read_user_questions`."""
        return read_user_questions(path, recipe, labelled)
