"""The runs behind an experiment: corpus, records, pre-trainings, fine-tunings.

A run is a command with a folder of its own, whose name ends in a digest of all
that decides it. So what several cells need is done once, and another recipe
has another folder.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from bert_tf.checkpoints import load_checkpoint
from bert_tf.config import BertConfig
from bert_tf.corpora.sources import parse_inputs
from bert_tf.errors import UserError, did_you_mean
from bert_tf.experiments.estimates import (
    finetuning_bytes,
    finetuning_work,
    pretraining_bytes,
    pretraining_work,
    split_tokens,
)
from bert_tf.experiments.experiment import (
    KEPT_MODELS,
    AfterSteps,
    Cell,
    Experiment,
    Finetuning,
    Pretraining,
)
from bert_tf.experiments.running import RUNS, Plan, Run
from bert_tf.experiments.scales import Scale
from bert_tf.families.recipe import (
    ChoiceRecipe,
    FeatureRecipe,
    FinetuningRecipe,
    SentenceRecipe,
    SpanRecipe,
    TagRecipe,
    UserChoiceRecipe,
    UserQuestionRecipe,
    UserTableRecipe,
    UserTagRecipe,
)
from bert_tf.families.task import Task, TaskTemplate
from bert_tf.families.text_classification.task import TextClassificationTask
from bert_tf.families.token_classification.features import layers_of
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.objective import ObjectiveTraits, load_objective
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.progress import log
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.vocabulary import VOCABULARY_FILE

# Flags and settings of a command as the words that it takes.
Words = Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]
# Where below data_dir the files of a family are; users' own are in it directly.
_FOLDERS: Mapping[type[FinetuningRecipe], str] = {
    UserTableRecipe: "",
    UserChoiceRecipe: "",
    UserQuestionRecipe: "",
    UserTagRecipe: "",
    SentenceRecipe: "glue",
    SpanRecipe: "squad",
    ChoiceRecipe: "swag",
    TagRecipe: "conll2003",
}
# Settings of every fine-tuning that say what is read.
_OF_DATA = ("task", "data_dir", "encoding_errors", "max_seq_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """What an experiment is run with, besides its scale.

    Attributes:
      corpus: text to pre-train on, as tools.create_pretraining_data --input
        takes it.
      data_dir: folder of glue/, squad/, swag/ and conll2003/.
      init_from: the model of fine-tunings that name none.
      stand_ins: task to the task that is run in its place.
      precision, strategy: of all trainings.
    """

    corpus: str
    data_dir: str
    init_from: str
    stand_ins: Mapping[str, str]
    precision: str
    strategy: str


def make_plan(
    experiment: Experiment,
    scale: Scale,
    sources: Sources,
    load_task: Callable[[str], TaskTemplate],
    words: Words,
    rows: tuple[str, ...] = (),
) -> Plan:
    """Plans the runs of an experiment, and checks what can be checked.

    Args:
      experiment: what is computed.
      scale: how large.
      sources: from what.
      load_task: finds a task by its name.
      words: flags and settings of a command as words.
      rows: the rows to compute; all of them if empty.

    Raises:
      UserError: an unknown row, task or setting, a task without data, a corpus
        that is not there, a model that does not fit.
    """
    for row in rows:
        if row not in experiment.rows:
            hint = did_you_mean(row, experiment.rows, repr)
            raise UserError(
                f"`only`={row}: no such row.{hint} The rows are "
                f"{', '.join(map(repr, experiment.rows))}."
            )
    planner = _Planner(scale, sources, load_task, words)
    cells = [c for c in experiment.cells if not rows or c.row in rows]
    run_of = {}
    for cell in cells:
        if isinstance(cell.run, Pretraining):
            run = planner.pretraining(cell.run)
        else:
            run = planner.finetuning(cell.run)
            task, splits = planner.scored[run]
            _check_score(cell, task)
            if cell.split and cell.split not in splits:
                log(
                    f"{cell.column}: {task.name} has no {cell.split} here, so "
                    "the column stays empty."
                )
                continue
        run_of[cell.row, cell.column] = run
    # A stable sort: trainings that others wait for come first.
    order = {"run_finetuning": 1}
    runs = sorted(planner.runs.values(), key=lambda r: order.get(r.tool, 0))
    return Plan({run.name: run for run in runs}, run_of)


def _check_score(cell: Cell, task: Task) -> None:
    """Raises `UserError` for a score that a task of texts does not have."""
    if not isinstance(task, TextClassificationTask):
        return
    if cell.score not in task.scores:
        raise UserError(
            f"row {cell.row!r}, column {cell.column!r}: {task.name} has no "
            f"score {cell.score!r}; it has {', '.join(task.scores)}."
        )


class _Planner:
    """Adds runs, each once.

    Attributes:
      runs: by name.
      scored: name of a fine-tuning to its task and the splits that it scores.
    """

    def __init__(
        self,
        scale: Scale,
        sources: Sources,
        load_task: Callable[[str], TaskTemplate],
        words: Words,
    ) -> None:
        self.scale = scale
        self.sources = sources
        self.load_task = load_task
        self.words = words
        self.runs: dict[str, Run] = {}
        self.scored: dict[str, tuple[Task, tuple[str, ...]]] = {}
        self._corpus: list[tuple[str, int]] = []
        self._read: dict[FinetuningRecipe, dict[str, tuple[int, float]]] = {}
        self._kept_every: dict[str, int] = {}
        self._given: BertConfig | None = None

    def _add(self, run: Run, identity: Any = None) -> str:
        """Adds a run, and gives it its full name and its output.

        Args:
          run: its name is what the full one begins with, before a digest; its
            arguments are without the output.
          identity: what decides the run, besides its command.
        """
        decides = [run.tool, list(run.arguments), identity]
        digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
        name = f"{run.name}-{digest[:8]}"
        output = {"output_dir": f"{RUNS}/{name}"}
        if run.tool == "train_vocab":
            output = {"output": f"{RUNS}/{name}/{VOCABULARY_FILE}"}
        arguments = (*self.words(output, {}), *run.arguments)
        self.runs.setdefault(
            name, dataclasses.replace(run, name=name, arguments=arguments)
        )
        return name

    def _corpus_files(self) -> list[tuple[str, int]]:
        """The files of the corpus and their sizes."""
        if not self._corpus:
            found = parse_inputs(self.sources.corpus, RecordsRecipe())
            self._corpus = [(file.path, file.size()) for file in found]
        return self._corpus

    def _vocabulary(self) -> str:
        """The run that learns the vocabulary."""
        flags = {
            "input": self.sources.corpus,
            "vocab_size": self.scale.vocab_size,
        }
        run = Run(
            name="vocabulary",
            tool="train_vocab",
            arguments=tuple(self.words(flags, {})),
            size=1e6,
        )
        return self._add(run, self._corpus_files())

    def _records(self, settings: Mapping[str, Any]) -> str:
        """The run that makes records."""
        vocabulary = self._vocabulary()
        RecordsRecipe.from_dict(settings, "the experiment's records")
        files = self._corpus_files()
        flags = {
            "input": self.sources.corpus,
            "vocab_file": f"{RUNS}/{vocabulary}/{VOCABULARY_FILE}",
            **settings,
        }
        run = Run(
            name=f"records/{settings['max_seq_length']}",
            tool="create_pretraining_data",
            arguments=tuple(self.words(flags, {})),
            needs=(vocabulary,),
            # Measured: records take about as much as the text.
            size=1.1 * sum(size for _, size in files),
        )
        return self._add(run, files)

    def pretraining(self, wanted: Pretraining) -> str:
        """The run of a pre-training."""
        scale = self.scale
        phases = [{**scale.records, **wanted.records}]
        if scale.final_records is not None:
            phases.append(
                {**scale.records, **scale.final_records, **wanted.records}
            )
        records = [self._records(settings) for settings in phases]
        settings = {"objective": wanted.objective, **scale.pretraining}
        settings |= wanted.settings
        flags = {
            "data_dir": ",".join(f"{RUNS}/{name}" for name in records),
            "size": scale.size(wanted.size),
            "precision": self.sources.precision,
            "strategy": self.sources.strategy,
        }
        given = {**flags, **settings}
        recipe = PretrainingRecipe().override(
            [f"{name}={value}" for name, value in given.items()],
            "the experiment's pre-training",
        )
        steps = recipe.num_train_steps // KEPT_MODELS
        if not steps or "keep_model_steps" in wanted.settings:
            raise UserError(
                f"the experiment's pre-training: keeps {KEPT_MODELS} models at "
                "even steps, so num_train_steps is at least as many (it is "
                f"{recipe.num_train_steps}), and keep_model_steps is left out."
            )
        settings["keep_model_steps"] = steps
        recipe = dataclasses.replace(recipe, keep_model_steps=steps)
        config = self._config(wanted)
        lengths = [phase["max_seq_length"] for phase in phases]
        predictions = phases[0]["max_predictions_per_seq"]
        traits = ObjectiveTraits.of(load_objective(wanted.objective))
        if traits.reads_next_tokens:
            predictions = lengths[0] - 1
        run = Run(
            name=f"pretraining/{pathlib.Path(wanted.objective).stem}-"
            + flags["size"].replace("/", "_"),
            tool="run_pretraining",
            arguments=tuple(self.words(flags, settings)),
            needs=tuple(records),
            work=pretraining_work(recipe, config, lengths),
            size=pretraining_bytes(recipe, config),
            trial=Workload(
                config,
                lengths[0],
                recipe.train_batch_size,
                predictions,
                precision=self.sources.precision,
            ),
        )
        name = self._add(run)
        self._kept_every[name] = steps
        return name

    def _config(self, wanted: Pretraining) -> BertConfig:
        size = self.scale.size(wanted.size)
        return BertConfig.from_size(size, self.scale.vocab_size)

    def finetuning(self, wanted: Finetuning) -> str:
        """The run of a fine-tuning."""
        name = self.sources.stand_ins.get(wanted.task, wanted.task)
        template = self.load_task(name)
        label, init_from, needs, config = self._start(wanted)
        settings = {
            **self.scale.finetuning,
            **self.scale.tasks.get(name, {}),
            "seeds": self.scale.seeds,
            # Finished runs need no state to go on from, unfinished ones one.
            "keep_checkpoint_max": 1,
            **wanted.settings,
        }
        flags = {
            "task": name,
            "data_dir": settings.pop("data_dir", self._data_dir(template)),
            "init_from": init_from,
            "precision": self.sources.precision,
            "strategy": self.sources.strategy,
            "mode": "train",
        }
        given = {k: v for k, v in {**flags, **settings}.items() if k != "mode"}
        recipe = template.recipe_type.from_dict(
            template.defaults, f"the defaults of {name}"
        ).override(
            [f"{key}={value}" for key, value in given.items()],
            f"the experiment's fine-tuning on {name}",
        )
        self._check_model(recipe, config, init_from)
        task = template.resolve(recipe)
        splits = self._read_splits(name, task, recipe)
        counts, tokens = zip(*splits.values(), strict=True)
        run = Run(
            name=f"finetuning/{pathlib.Path(name).stem}-{label}",
            tool="run_finetuning",
            arguments=tuple(self.words(flags, settings)),
            needs=needs,
            task=name,
            work=finetuning_work(recipe, config, *tokens),
            size=finetuning_bytes(recipe, config),
            trial=Workload(
                config,
                recipe.max_seq_length,
                recipe.train_batch_size,
                precision=self.sources.precision,
            ),
        )
        # A model that is given has no run whose name says what it is.
        num_rows = [counts[0], sum(counts[1:])]
        identity = [num_rows, None if needs else config.to_dict()]
        added = self._add(run, identity)
        self.scored[added] = task, tuple(splits)[1:]
        return added

    def _start(
        self, wanted: Finetuning
    ) -> tuple[str, str, tuple[str, ...], BertConfig]:
        """Where a fine-tuning starts: label, folder, needs, architecture."""
        model = wanted.model
        if model is None:
            return "given", self.sources.init_from, (), self._given_config()
        pretraining = (
            model.pretraining if isinstance(model, AfterSteps) else model
        )
        run = self.pretraining(pretraining)
        steps = ""
        if isinstance(model, AfterSteps):
            steps = f"/models/step-{self._kept_every[run] * model.part:08d}"
        label = pathlib.PurePath(run).name.rpartition("-")[0]
        return (
            label + steps.replace("/models/", "-"),
            f"{RUNS}/{run}{steps}",
            (run,),
            self._config(pretraining),
        )

    def _given_config(self) -> BertConfig:
        """The architecture of the given model."""
        source = self.sources.init_from
        if not source:
            raise UserError(
                "`init_from`: this experiment fine-tunes a given model; name "
                "a folder, hf://organisation/name or keras_hub://preset."
            )
        if self._given is None:
            self._given = config = load_checkpoint(source).config
            size = f"{config.num_hidden_layers}/{config.hidden_size}"
            if not self.scale.any_checkpoint and size not in (
                "12/768",
                "24/1024",
            ):
                raise UserError(
                    f"`init_from`={source}: has {size} layers and hidden size, "
                    "and the paper's numbers are of 12/768 and 24/1024; choose "
                    "another model, or another `scale`."
                )
        return self._given

    def _check_model(
        self, recipe: FinetuningRecipe, config: BertConfig, source: str
    ) -> None:
        """Raises `UserError` where a model is too small for a fine-tuning."""
        if recipe.max_seq_length > config.longest_input:
            raise UserError(
                f"{source}: its longest input is "
                f"{config.longest_input}, below max_seq_length "
                f"{recipe.max_seq_length} of {recipe.task}."
            )
        if isinstance(recipe, FeatureRecipe):
            layers_of(recipe.features, config.num_hidden_layers)

    def _data_dir(self, template: TaskTemplate) -> str:
        """Where the files of a task's family are."""
        below = next(
            folder
            for family, folder in _FOLDERS.items()
            if issubclass(template.recipe_type, family)
        )
        return str(pathlib.Path(self.sources.data_dir) / below)

    def _read_splits(
        self, name: str, task: Task, recipe: FinetuningRecipe
    ) -> dict[str, tuple[int, float]]:
        """The split to train on, then those to score: examples and tokens."""
        # Of what is about the data; it says which splits are missing.
        neutral: dict[str, Any] = {
            field.name: field.default
            for field in dataclasses.fields(FinetuningRecipe)
            if field.name not in _OF_DATA
        }
        like = dataclasses.replace(recipe, **neutral)
        if like not in self._read:
            found = {}
            try:
                splits = task.splits(task.dev_splits, like)
                for split in (task.train_split, *splits):
                    examples = task.load(split, like)
                    found[split] = len(examples), split_tokens(examples, like)
            except UserError as error:
                why = str(error).rstrip(".")
                raise UserError(
                    f"{name}: {why}; `stand_in`={name}:OTHER puts another task "
                    "in its place."
                ) from None
            self._read[like] = found
        return self._read[like]
