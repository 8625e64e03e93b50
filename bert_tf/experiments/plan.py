"""Plans the runs of an experiment: records, pre-trainings, fine-tunings.

Each run is a command with its own folder, whose name ends in a digest of its
inputs. Runs that several cells need are done once, and another recipe has
another folder.
"""

import dataclasses
import functools
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
)
from bert_tf.experiments.experiment import (
    KEPT_MODELS,
    AfterSteps,
    Experiment,
    Finetuning,
    Pretraining,
)
from bert_tf.experiments.running import RUNS, Plan, Run
from bert_tf.experiments.scales import Scale
from bert_tf.families.recipe import FinetuningRecipe
from bert_tf.families.task import Task, TaskTemplate
from bert_tf.memory.prediction import Workload
from bert_tf.pretraining.objective import ObjectiveTraits, load_objective
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.progress import log
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.text.vocabulary import VOCABULARY_FILE

# Settings of every fine-tuning that determine which data is read.
_DATA_SETTINGS = ("task", "data_dir", "encoding_errors", "max_seq_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """The inputs of an experiment.

    Attributes:
      corpus: text to pre-train on, as the input of
        `bert-tf create-pretraining-data`.
      data_dir: folder with glue/, squad/, swag/ and conll2003/.
      init_from: the initial model of fine-tunings that do not name one.
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
    rows: tuple[str, ...] = (),
) -> Plan:
    """Plans the runs of an experiment and checks their settings and data.

    Args:
      experiment: the experiment.
      scale: its size.
      sources: its inputs.
      load_task: loads a task by its name.
      rows: the rows to compute; all rows if empty.

    Raises:
      UserError: an unknown row, task or setting, a task without data, a
        missing corpus, or a model that does not fit.
    """
    for row in rows:
        if row not in experiment.rows:
            hint = did_you_mean(row, experiment.rows, repr)
            raise UserError(
                f"`only`={row}: unknown row.{hint} The rows are "
                f"{', '.join(map(repr, experiment.rows))}."
            )
    planner = _Planner(scale, sources, load_task)
    cells = [c for c in experiment.cells if not rows or c.row in rows]
    run_of = {}
    for cell in cells:
        if isinstance(cell.run, Pretraining):
            run = planner.pretraining(cell.run)
        else:
            run = planner.finetuning(cell.run)
            task, splits = planner.scored[run]
            names = task.score_names
            if names and cell.score not in names:
                raise UserError(
                    f"row {cell.row!r}, column {cell.column!r}: {task.name} "
                    f"has no score {cell.score!r}; it has {', '.join(names)}."
                )
            if cell.split and cell.split not in splits:
                log(
                    f"{cell.column}: {task.name} has no {cell.split} here, so "
                    "the column stays empty."
                )
                continue
        run_of[cell.row, cell.column] = run
    # Fine-tunings, on which no run depends, come last; the sort is stable.
    runs = sorted(planner.runs.values(), key=lambda run: run.tool == "finetune")
    return Plan({run.name: run for run in runs}, run_of)


@dataclasses.dataclass
class _Planner:
    """Collects the runs, each once.

    Attributes:
      runs: by name.
      scored: name of a fine-tuning to its task and the splits that it scores.
      splits_read: recipe to the examples and tokens of each split.
      kept_every: name of a pre-training to the interval of its kept models.
    """

    scale: Scale
    sources: Sources
    load_task: Callable[[str], TaskTemplate]
    runs: dict[str, Run] = dataclasses.field(default_factory=dict)
    scored: dict[str, tuple[Task, tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )
    splits_read: dict[FinetuningRecipe, dict[str, tuple[int, float]]] = (
        dataclasses.field(default_factory=dict)
    )
    kept_every: dict[str, int] = dataclasses.field(default_factory=dict)

    def _add(self, run: Run, identity: Any = None) -> str:
        """Adds a run and returns its name, which ends in a digest.

        Args:
          run: with the beginning of the name, and arguments without the output.
          identity: further inputs of the run that enter the digest.
        """
        inputs = [run.tool, list(run.arguments), identity]
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        name = f"{run.name}-{digest[:8]}"
        output = {"output_dir": f"{RUNS}/{name}"}
        if run.tool == "train-vocab":
            output = {"output": f"{RUNS}/{name}/{VOCABULARY_FILE}"}
        arguments = (*_words(output), *run.arguments)
        self.runs.setdefault(
            name, dataclasses.replace(run, name=name, arguments=arguments)
        )
        return name

    @functools.cached_property
    def _corpus_files(self) -> list[tuple[str, int]]:
        """Paths and sizes of the files of the corpus."""
        files = parse_inputs(self.sources.corpus, RecordsRecipe())
        return [(file.path, file.size()) for file in files]

    def _vocabulary(self) -> str:
        """Adds the run that trains the vocabulary."""
        flags = {
            "input": self.sources.corpus,
            "vocab_size": self.scale.vocab_size,
        }
        run = Run(
            name="vocabulary",
            tool="train-vocab",
            arguments=_words(flags),
            size=1e6,
        )
        return self._add(run, self._corpus_files)

    def _records(self, settings: Mapping[str, Any]) -> str:
        """Adds the run that creates records."""
        vocabulary = self._vocabulary()
        RecordsRecipe.from_dict(settings, "the experiment's records")
        flags = {
            "input": self.sources.corpus,
            "vocab_file": f"{RUNS}/{vocabulary}/{VOCABULARY_FILE}",
            **settings,
        }
        run = Run(
            name=f"records/{settings['max_seq_length']}",
            tool="create-pretraining-data",
            arguments=_words(flags),
            needs=(vocabulary,),
            # Measured: records are about as large as the text.
            size=1.1 * sum(size for _, size in self._corpus_files),
        )
        return self._add(run, self._corpus_files)

    def pretraining(self, spec: Pretraining) -> str:
        """Adds the run of a pre-training."""
        scale = self.scale
        phases = [{**scale.records, **spec.records}]
        if scale.final_records is not None:
            phases.append(
                {**scale.records, **scale.final_records, **spec.records}
            )
        records = [self._records(settings) for settings in phases]
        settings = {"objective": spec.objective, **scale.pretraining}
        settings |= spec.settings
        flags = {
            "data_dir": ",".join(f"{RUNS}/{name}" for name in records),
            "size": scale.size(spec.size),
            "precision": self.sources.precision,
            "strategy": self.sources.strategy,
        }
        given = {**flags, **settings}
        recipe = PretrainingRecipe().override(
            [f"{name}={value}" for name, value in given.items()],
            "the experiment's pre-training",
        )
        steps = recipe.num_train_steps // KEPT_MODELS
        if not steps or "keep_model_steps" in spec.settings:
            raise UserError(
                f"the experiment's pre-training: keeps {KEPT_MODELS} models at "
                "equal intervals, so num_train_steps is at least "
                f"{KEPT_MODELS} (it is {recipe.num_train_steps}), and "
                "keep_model_steps is left out."
            )
        settings["keep_model_steps"] = steps
        recipe = dataclasses.replace(recipe, keep_model_steps=steps)
        config = self._config(spec)
        lengths = [phase["max_seq_length"] for phase in phases]
        predictions = phases[0]["max_predictions_per_seq"]
        traits = ObjectiveTraits.of(load_objective(spec.objective))
        if traits.reads_next_tokens:
            predictions = lengths[0] - 1
        run = Run(
            name=f"pretraining/{pathlib.Path(spec.objective).stem}-"
            + flags["size"].replace("/", "_"),
            tool="pretrain",
            arguments=_words({**flags, **settings}),
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
        self.kept_every[name] = steps
        return name

    def _config(self, spec: Pretraining) -> BertConfig:
        size = self.scale.size(spec.size)
        return BertConfig.from_size(size, self.scale.vocab_size)

    def finetuning(self, spec: Finetuning) -> str:
        """Adds the run of a fine-tuning."""
        name = self.sources.stand_ins.get(spec.task, spec.task)
        template = self.load_task(name)
        label, init_from, needs, config = self._start(spec)
        settings = {
            **self.scale.finetuning,
            **self.scale.tasks.get(name, {}),
            "seeds": self.scale.seeds,
            # Finished runs need no training state, unfinished ones need one.
            "keep_checkpoint_max": 1,
            **spec.settings,
        }
        data_dir = pathlib.Path(self.sources.data_dir) / template.data_folder
        flags = {
            "task": name,
            "data_dir": settings.pop("data_dir", str(data_dir)),
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
        if recipe.max_seq_length > config.longest_input:
            raise UserError(
                f"{init_from}: its longest input is {config.longest_input}, "
                f"below max_seq_length {recipe.max_seq_length} of {name}."
            )
        task = template.resolve(recipe)
        task.encoder_config(recipe, config)
        splits = self._read_splits(name, task, recipe)
        counts, tokens = zip(*splits.values(), strict=True)
        run = Run(
            name=f"finetuning/{pathlib.Path(name).stem}-{label}",
            tool="finetune",
            arguments=_words({**flags, **settings}),
            needs=needs,
            work=finetuning_work(recipe, config, *tokens),
            size=finetuning_bytes(recipe, config),
            trial=Workload(
                config,
                recipe.max_seq_length,
                recipe.train_batch_size,
                precision=self.sources.precision,
            ),
        )
        # A given model has no run whose name identifies it.
        num_rows = [counts[0], sum(counts[1:])]
        identity = [num_rows, None if needs else config.to_dict()]
        added = self._add(run, identity)
        self.scored[added] = task, tuple(splits)[1:]
        return added

    def _start(
        self, spec: Finetuning
    ) -> tuple[str, str, tuple[str, ...], BertConfig]:
        """The label, folder, runs needed and config of the initial model."""
        model = spec.model
        if model is None:
            return "given", self.sources.init_from, (), self._given_config
        pretraining = (
            model.pretraining if isinstance(model, AfterSteps) else model
        )
        run = self.pretraining(pretraining)
        steps = ""
        if isinstance(model, AfterSteps):
            steps = f"/models/step-{self.kept_every[run] * model.part:08d}"
        label = pathlib.PurePath(run).name.rpartition("-")[0]
        return (
            label + steps.replace("/models/", "-"),
            f"{RUNS}/{run}{steps}",
            (run,),
            self._config(pretraining),
        )

    @functools.cached_property
    def _given_config(self) -> BertConfig:
        """The config of the model that `init_from` names."""
        source = self.sources.init_from
        if not source:
            raise UserError(
                "`init_from`: this experiment fine-tunes a given model; name "
                "a folder, hf://organisation/name or keras_hub://preset."
            )
        config = load_checkpoint(source).config
        size = f"{config.num_hidden_layers}/{config.hidden_size}"
        if not self.scale.any_checkpoint and size not in ("12/768", "24/1024"):
            raise UserError(
                f"`init_from`={source}: has {size} layers and hidden size, and "
                "the paper's numbers are of 12/768 and 24/1024; choose another "
                "model, or another `scale`."
            )
        return config

    def _read_splits(
        self, name: str, task: Task, recipe: FinetuningRecipe
    ) -> dict[str, tuple[int, float]]:
        """Examples and tokens of the training split and the scored splits."""
        # Recipes that read the same data share the result.
        neutral: dict[str, Any] = {
            field.name: field.default
            for field in dataclasses.fields(FinetuningRecipe)
            if field.name not in _DATA_SETTINGS
        }
        of_data = dataclasses.replace(recipe, **neutral)
        if of_data not in self.splits_read:
            found = {}
            try:
                splits = task.splits(task.dev_splits, of_data)
                for split in (task.train_split, *splits):
                    examples = task.load(split, of_data)
                    found[split] = (
                        len(examples),
                        task.estimated_tokens(examples, of_data),
                    )
            except UserError as error:
                why = str(error).rstrip(".")
                raise UserError(
                    f"{name}: {why}; `stand_in`={name}:OTHER runs another task "
                    "in its place."
                ) from None
            self.splits_read[of_data] = found
        return self.splits_read[of_data]


def _words(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the arguments of a command."""
    return tuple(f"--{name}={value}" for name, value in flags.items())
