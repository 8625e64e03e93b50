"""Flags that several commands share, and the files that some of them name.

There is a flag for every field of a recipe. --task and --experiment name small
Python files. What they import is imported on use, since most commands need a
part of it.
"""

import functools
import importlib
import pathlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from absl import flags

from bert_tf.errors import UserError, did_you_mean, first_few
from bert_tf.families.usage_options import TASKS, UsageOptions
from bert_tf.recipe import Settings, check_kind, read_json_object
from bert_tf.training.cluster import Devices
from bert_tf.user_modules import (
    is_user_module,
    refuse_user_module,
    run_user_module,
)

from . import command_line

if TYPE_CHECKING:
    from bert_tf.families.recipe import FinetuningRecipe
    from bert_tf.families.task import TaskTemplate

# Flags belong to the command that defines them with this module.
flags.disclaim_key_flags()

S = TypeVar("S", bound=Settings)
# Headings of the help of commands that train, and patterns of their flags.
_GROUPS = {
    "Most used flags": "task init_from train_file dev_file data_dir "
    "text_columns label_column size output_dir mode overwrite max_seq_length "
    "num_train_epochs num_train_steps train_batch_size learning_rate seeds",
    "Data": "test_file dev_* format header encoding_errors bad_rows "
    "empty_text drop_duplicates label_kind label_separator label_form "
    "*_column *_columns comment unmarked context vocab_file data_streams",
    "Inputs and answers": "long_inputs doc_stride max_query_length "
    "max_answer_length n_best_size with_null threshold class_weights "
    "score_test objective generator_size mask* random_token_rate "
    "max_predictions_per_seq",
    "Optimization": "seed early_stopping warmup_proportion optimizer "
    "weight_decay_rate max_grad_norm decay_* adam_* final_* on_non_finite",
    "Model": "architecture config_file reset_head head_start "
    "classifier_pooling freeze_layers layer_decay bilstm features lstm_units "
    "tagger_dropout ensemble",
    "LoRA": "lora_rank lora_alpha lora_on",
    "Distillation": "teacher to layers temperature *_weight teacher_layers "
    "undistilled dimension sif_coefficient count_files",
    "Devices and memory": "strategy precision gradient_accumulation_steps "
    "rematerialize eval_batch_size loss_normalisation logical_cpus tpu "
    "worker_timeout",
    "The run": "recipe set eval_steps save_checkpoints_steps *",
}


_DEFINE: dict[type, Callable[..., flags.FlagHolder]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def required_string(name: str, help_text: str) -> flags.FlagHolder[str]:
    """Defines a flag without which the command does not start."""
    return flags.DEFINE_string(name, None, help_text, required=True)


def define_fields(
    settings: type[S], text_columns: Sequence[str] = ()
) -> Callable[[], S]:
    """Defines a flag for every field, with its default and its help text.

    Args:
      settings: the type of the settings.
      text_columns: the fields of one or two columns that --text_columns names
        too.

    Returns:
      A function that returns the settings of the parsed flags.
    """
    columns: flags.FlagHolder[Any] | None = None
    if text_columns:
        columns = define_text_columns(text_columns)
    defined = _define(_fields_of(settings), flags.FLAGS)

    def parsed() -> S:
        given = {name: flag.value for name, flag in defined.items()}
        names = [] if columns is None else columns.value or []
        if len(names) > len(text_columns):
            raise UserError(
                f"`text_columns`={','.join(names)}: name {len(text_columns)} "
                f"of them at most, as {' and '.join(text_columns)}."
            )
        for field, name in zip(text_columns, names, strict=False):
            if flags.FLAGS[field].present:
                raise UserError(
                    f"--text_columns and --{field}: give one of the two."
                )
            given[field] = name
        return settings(**given)

    return parsed


def define_text_columns(
    fields: Sequence[str] = (), default: str | None = None
) -> flags.FlagHolder[Any]:
    """Defines --text_columns of one column, or of two of a pair.

    Args:
      fields: the flag of each column, if they have flags of their own.
      default: the columns if it is not given.
    """
    text = "Column of the text in tables and JSON lines"
    if len(fields) != 1:
        text += ", or the two of a pair, comma-separated"
    if fields:
        others = " and ".join(f"--{name}" for name in fields)
        text += f"; the same as {others}"
    return flags.DEFINE_list("text_columns", default, f"{text}.")


class _Field(NamedTuple):
    """What a flag is made of; `shown` is its default in words."""

    kind: type
    default: Any
    text: str
    shown: str


def _fields_of(
    settings: type[Settings], defaults: Mapping[str, Any] = {}
) -> dict[str, _Field]:
    """Returns the fields that are used, what is special before what all share.

    Args:
      settings: the type of the settings.
      defaults: defaults that differ from the type's.
    """
    kinds, found = settings.kinds(), {}
    declared = settings.__dataclass_fields__
    for name in dict.fromkeys(
        n
        for each in settings.__mro__
        for n in vars(each).get("__annotations__", {})
    ):
        limits = declared[name].metadata["limits"]
        if limits.unused:
            continue
        text, takes = declared[name].metadata["help"], str(limits.at(None))
        named = all(choice in text for choice in limits.choices)
        if takes and takes != text and not (limits.choices and named):
            takes = f" Takes {takes}."
        else:
            takes = ""
        # Capitalised, unless it begins with a value or name.
        first = re.match("([a-z-]+)[ ,:]", text)
        if first and first[1] not in limits.choices:
            text = text[0].upper() + text[1:]
        if limits.choices:
            command_line.name_choices(
                name, functools.partial(filter, None, limits.choices)
            )
        default = defaults.get(name, declared[name].default)
        shown = str(default).lower() or "none"
        if declared[name].metadata["chosen_by_run"] and not default:
            shown = "chosen by the run"
        found[name] = _Field(kinds[name], default, f"{text}.{takes}", shown)
    return found


def _fields_of_all_tasks() -> dict[str, _Field]:
    """Returns the fields of all tasks, with other defaults in their texts."""
    from bert_tf.families.recipe import FilesRecipe, FinetuningRecipe

    shared = _fields_of(FilesRecipe) | _fields_of(FinetuningRecipe)
    by_family: dict[str, list[str]] = {}
    forms: dict[str, dict[_Field, list[str]]] = {}
    names = [name for name in task_names() if not name.startswith("example_")]
    for name in names:
        task = load_task(name)
        # Such as bert_tf.families.token_classification.task.
        family = type(task).__module__.split(".")[2].replace("_", " ")
        by_family.setdefault(family, []).append(name)
        fields = _fields_of(task.recipe_type, task.defaults)
        for field, form in fields.items():
            forms.setdefault(field, {}).setdefault(form, []).append(name)

    def in_words(tasks: Collection[str]) -> str:
        words = []
        for family, members in by_family.items():
            chosen = [name for name in members if name in tasks]
            words += chosen if chosen != members else [family]
        return first_few(words)

    merged = {}
    for field, found in forms.items():
        most = max(reversed(found), key=lambda form: len(found[form]))
        usual = shared.get(field, most)
        text, without = usual.text, set(names)
        others: dict[str, list[str]] = {}
        for form, tasks in found.items():
            without -= set(tasks)
            if form.shown != usual.shown:
                others.setdefault(form.shown, []).extend(tasks)
        if len(without) > len(names) / 2:
            text += f" For {in_words(set(names) - without)}."
        elif without:
            text += f" Not for {in_words(without)}."
        if others:
            shown = [f"{in_words(each)}: {v}" for v, each in others.items()]
            text += f" Default for {'; '.join(shown)}."
        merged[field] = usual._replace(text=text)
    return merged


def _define(
    fields: Mapping[str, _Field], values: flags.FlagValues
) -> dict[str, flags.FlagHolder]:
    """Defines a flag for every field."""
    return {
        name: _DEFINE[field.kind](
            name, field.default, field.text, flag_values=values
        )
        for name, field in fields.items()
    }


# Returns the type of a recipe, and defaults that differ from the type's, from
# --task, --recipe, --model, --to and --set, which are read before all others.
Find = Callable[[flags.FlagValues], tuple[type[Settings], Mapping[str, Any]]]


class FieldFlags:
    """Defines --set, and later a flag for every field of the recipe.

    Args:
      find: returns the type of the recipe.
      show_all: whether the help without a task shows the fields of all tasks.
      fields: the help of fields that are defined at once, as strings.
      model: the field that --model is another name of.
    """

    def __init__(
        self,
        find: Find,
        show_all: bool = False,
        fields: Mapping[str, str] = {},
        model: str = "",
    ):
        self._find, self._show_all, self._names = find, show_all, [*fields]
        for name, text in fields.items():
            flags.DEFINE_string(name, None, text)
        if model:
            command_line.name_model(model)
        self._set = flags.DEFINE_multi_string(
            "set", [], "key=value, the same as --key=value; may be repeated."
        )
        command_line.define_later(self._define_fields)

    def _define_fields(
        self, arguments: list[str], for_help: bool
    ) -> flags.FlagValues:
        """Defines the fields, and returns those that the help shows."""
        known = flags.FlagValues()
        for name in ("task", "recipe", "model", "to"):
            flags.DEFINE_string(name, "", "", flag_values=known)
        flags.DEFINE_multi_string("set", [], "", flag_values=known)
        known(arguments, known_only=True)
        shown, error = flags.FlagValues(), None
        try:
            fields = _fields_of(*self._find(known))
        except UserError as no_task:
            error, fields = no_task, {}
            if self._show_all or not for_help:
                fields = _fields_of_all_tasks()
        _define(fields, shown)
        for name in shown:
            if name not in flags.FLAGS:
                flags.FLAGS[name] = shown[name]
                self._names.append(name)
        if error and not for_help:
            # A flag that no task has is named first.
            flags.FLAGS(arguments)
            raise error
        return shown

    def assignments(self) -> list[str]:
        """Returns key=value of every given flag of a field, then of --set."""
        given = [flags.FLAGS[name] for name in self._names]
        return [f"{f.name}={f.value}" for f in given if f.present] + [
            *self._set.value
        ]


class RecipeFlags(FieldFlags):
    """Defines --output_dir, --recipe and the flags of devices besides.

    Args:
      See `FieldFlags`.
    """

    def __init__(
        self,
        find: Find,
        show_all: bool = False,
        fields: Mapping[str, str] = {},
        model: str = "init_from",
    ):
        command_line.group_help(_GROUPS)
        self._output_dir = required_string(
            "output_dir", "Folder of the run; becomes a model folder."
        )
        start = "Model to start from: a folder, hf://organisation/name or "
        super().__init__(
            find,
            show_all,
            {**fields, "init_from": f"{start}keras_hub://preset."},
            model,
        )
        self._recipe = flags.DEFINE_string(
            "recipe",
            "",
            "recipe.json of a run to repeat; other flags override it. A Python "
            "file in it is executed only if another flag names it too.",
        )
        self._logical_cpus = flags.DEFINE_integer(
            "logical_cpus",
            0,
            "Split the CPU into this many devices, to try --strategy=mirrored.",
        )
        self._tpu = flags.DEFINE_string(
            "tpu",
            "",
            "Name or address of the TPU for --strategy=tpu; local on a TPU VM.",
        )
        self._worker_timeout = flags.DEFINE_float(
            "worker_timeout",
            600.0,
            "Seconds to wait for the other workers of --strategy=multi_worker.",
            lower_bound=0.0,
        )

    @property
    def output_dir(self) -> str:
        """The folder of the run."""
        return self._output_dir.value

    @property
    def recipe_file(self) -> str:
        """The recipe's file; empty for none."""
        return self._recipe.value

    def recipe(self, defaults: S, first: Sequence[str] = ()) -> S:
        """Returns the recipe of the flags, without a task.

        Args:
          defaults: the recipe that the flags change, unless --recipe is given.
          first: assignments before those of the flags.
        """
        given = [*first, *self.assignments()]
        if self.recipe_file:
            return defaults.from_json(self.recipe_file, given, "--set")
        return defaults.override(given, "--set")

    @property
    def devices(self) -> Devices:
        """The devices of the recipe's strategy."""
        return Devices(
            self._logical_cpus.value,
            self._tpu.value,
            self._worker_timeout.value,
        )


def define_usage() -> Callable[[], UsageOptions]:
    """Defines the flags of `UsageOptions`.

    They state how a model is used whose folder does not state it.

    Returns:
      A function that returns the options in the flags.
    """
    task = flags.DEFINE_string(
        "task",
        None,
        "Use of a model without task.json, such as "
        "text_pair_classification for pairs of texts; one of "
        f"{', '.join(TASKS)}.",
    )
    command_line.name_choices("task", lambda: TASKS)
    labels = flags.DEFINE_list(
        "labels",
        None,
        "Names of the model's outputs in order, comma-separated, if its "
        "folder has none.",
    )
    max_seq_length = flags.DEFINE_integer(
        "max_seq_length",
        None,
        "Longest row in tokens, of a model without task.json; by default "
        "as its folder states.",
    )
    threshold = flags.DEFINE_float(
        "threshold",
        None,
        "Multi-label: the probability above which a label is assigned, by "
        "default 0.5; questions: the margin by which no answer must score "
        "above the best answer, by default never.",
    )
    split_special_tokens = flags.DEFINE_bool(
        "split_special_tokens",
        None,
        "Split special tokens in texts, such as </s>, like other text; "
        "--nosplit_special_tokens takes them for the tokens, as transformers "
        "does. By default split, except in folders of sentence-transformers.",
    )
    return lambda: UsageOptions(
        task.value,
        labels.value,
        max_seq_length.value,
        threshold.value,
        split_special_tokens.value,
    )


def define_corpora() -> flags.FlagHolder[str]:
    """Defines --input of text."""
    return required_string(
        "input",
        "Files or globs, or tfds:DATA_SET[@SPLIT], comma-separated; .gz, .bz2 "
        "and .zst are unpacked. NAME=PATH or NAME:WEIGHT=PATH defines a corpus "
        "to mix.",
    )


class NamedFiles(NamedTuple):
    """A package of small files, each of which defines one object.

    The object is named as the argument in capitals.

    Attributes:
      argument: the argument that names a file, such as task.
      package: the package of the files.
      kind: the type of the object, with its module.
      kind_words: the type for errors, such as "a SentenceTask".
      example: its definition, for errors.
      hint: which imports a file has, for errors.
    """

    argument: str
    package: str
    kind: str
    kind_words: str
    example: str
    hint: str

    def names(self) -> list[str]:
        """Returns the valid names."""
        (folder,) = importlib.import_module(self.package).__path__
        files = pathlib.Path(folder).glob("*.py")
        return sorted(f.stem for f in files if not f.stem.startswith("_"))

    def load(self, value: str) -> Any:
        """Returns the object of a file, by its name or the path of a .py file.

        Raises:
          UserError: there is no such file, or it is broken.
        """
        given, names = f"`{self.argument}`={value}", self.names()
        own = f"the path of your own {self.argument} file"
        if is_user_module(value):
            takes = f"{own}, or one of {', '.join(names)}"
            module = run_user_module(value, self.argument, takes, self.hint)
        elif value in names:
            module = importlib.import_module(f"{self.package}.{value}")
        else:
            hint = did_you_mean(value, names)
            raise UserError(
                f"{given}: no such {self.argument}.{hint} It takes one of "
                f"{', '.join(names)}, or {own}."
            )
        name = self.argument.upper()
        found = getattr(module, name, None)
        if found is None:
            raise UserError(
                f"{given}: the file defines no {name}; write {name} = "
                f"{self.example}."
            )
        room, _, kind = self.kind.rpartition(".")
        if not isinstance(found, getattr(importlib.import_module(room), kind)):
            raise UserError(
                f"{given}: {name} is of type {type(found).__name__}; it must "
                f"be {self.kind_words}."
            )
        return found


# Empty in a checkout, "bert_tf." in the wheel.
_PARENT = str(__package__).removesuffix("tools")
_TASKS = NamedFiles(
    "task",
    f"{_PARENT}tasks",
    "bert_tf.families.task.TaskTemplate",
    "a SentenceTask or another kind of task",
    "SentenceTask(...), as tasks/mrpc.py does",
    "task files import from bert_tf.finetuning, as tasks/mrpc.py does",
)
EXPERIMENTS = NamedFiles(
    "experiment",
    f"{_PARENT}paper_experiments" if _PARENT else "experiments",
    "bert_tf.experiments.Experiment",
    "an Experiment",
    "Experiment(...), as experiments/table5.py does",
    "experiment files import from bert_tf.experiments, as "
    "experiments/table5.py does",
)


def task_names() -> list[str]:
    """Returns the names that --task takes."""
    return _TASKS.names()


def task_help() -> str:
    """Returns the help of --task, without its last dot; names its choices."""
    command_line.name_choices("task", task_names)
    names = ", ".join(task_names())
    return f"One of {names}, or the path of your own task file"


def load_task(task: str) -> "TaskTemplate":
    """Returns the TASK of a name in tasks/, or of the user's .py file.

    Raises:
      UserError: there is no such task, or its file is broken.
    """
    found: TaskTemplate = _TASKS.load(task)
    if getattr(found, "data", found) is None:
        raise UserError(
            f"`task`={task}: TASK has data=None; define its data as "
            "tasks/mrpc.py does."
        )
    return found


def task_named(assignments: Sequence[str], recipe_file: str = "") -> str:
    """Returns the name of the task in assignments, or else in a recipe's file.

    Raises:
      UserError: neither names a task, or the recipe names a Python file, which
        is executed only if a flag names it.
    """
    name = ""
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        if key.strip() == "task":
            name = value.strip()
    if not name and recipe_file:
        name = read_json_object(recipe_file).get("task", "")
        check_kind("task", str, name, recipe_file)
        refuse_user_module("task", name, recipe_file)
    if not name:
        raise UserError(
            f"--task: give one of {', '.join(task_names())}, or the path of a "
            "task file."
        )
    return name


def recipe_of(
    task: "TaskTemplate",
    name: str,
    assignments: Sequence[str],
    recipe_file: str = "",
) -> "FinetuningRecipe":
    """Returns a task's recipe: its defaults or a file's, with assignments.

    `name` is the task's name in the command, for errors.

    Raises:
      UserError: an unknown setting, or an invalid value.
    """
    source = f"--task={name}, --set"
    if recipe_file:
        return task.recipe_type.from_json(recipe_file, assignments, source)
    recipe = task.recipe_type.from_dict(
        task.defaults, f"the defaults of {name}"
    )
    return recipe.override(assignments, source)


def task_and_recipe(
    assignments: Sequence[str], recipe_file: str
) -> tuple["TaskTemplate", "FinetuningRecipe"]:
    """Returns the task in flags or a recipe, and its recipe; see above."""
    name = task_named(assignments, recipe_file)
    task = load_task(name)
    return task, recipe_of(task, name, assignments, recipe_file)


def task_fields(
    known: flags.FlagValues, recipe_file: str = ""
) -> tuple[type["FinetuningRecipe"], Mapping[str, Any]]:
    """Returns the type of a task's recipe, and the task's defaults.

    Args:
      known: the values of --task, --recipe and --set.
      recipe_file: instead of --recipe.
    """
    given = [*([f"task={known.task}"] if known.task else []), *known.set]
    task = load_task(task_named(given, recipe_file or known.recipe))
    return task.recipe_type, task.defaults
