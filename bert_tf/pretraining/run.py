"""A pre-training run: from records and a recipe to a model folder."""

import functools
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.architectures.electra import ElectraConfig
from bert_tf.checkpoints import (
    MASKED_LM,
    Checkpoint,
    head_shapes,
    load_checkpoint,
    save_checkpoint,
)
from bert_tf.config import BertConfig
from bert_tf.distiller import DistillationObjective, Distiller
from bert_tf.encoders import BertEncoder, encoder_class
from bert_tf.files import locked, sync, written_beside
from bert_tf.layers.initialization import assigned_later
from bert_tf.models import restore
from bert_tf.pretraining.electra import ElectraPretrainer, generator_of
from bert_tf.pretraining.objective import (
    PRETRAINING_HEADS,
    ObjectiveTraits,
    load_objective,
)
from bert_tf.pretraining.pretrainer import BertPretrainer
from bert_tf.pretraining.recipe import PretrainingRecipe
from bert_tf.pretraining.report import PretrainingResult, report
from bert_tf.pretraining.setup import (
    check_teacher,
    choose_configuration,
    choose_tokenizer,
    fingerprint,
    open_records,
)
from bert_tf.progress import log
from bert_tf.recipe import join_settings
from bert_tf.records.dataset import (
    check_streams,
    held_out_batches,
    reading_errors,
    training_batches,
)
from bert_tf.records.folder import RecordFolder
from bert_tf.sources import local_folder
from bert_tf.text.tokenizer_protocol import Tokenizer
from bert_tf.training.cluster import DEFAULT_DEVICES, Devices
from bert_tf.training.loop import Phase, TrainingLoop
from bert_tf.training.run_folder import (
    LOCK_FILE,
    MODELS,
    RunFolders,
    claim,
    folders_of,
    refuse_other_folders,
)
from bert_tf.training.saved_states import state_folder
from bert_tf.training.setup import (
    check_batch_size,
    make_step,
)
from bert_tf.training.step import EvaluationStep, Objective, TrainingStep
from bert_tf.training.strategies import (
    check_agreement,
    cluster_of,
    gather_numbers,
    make_strategy,
    needs_static_shapes,
    translate_worker_errors,
)


def pretrain(
    data_dir: str | os.PathLike,
    output_dir: str | os.PathLike,
    *,
    init_from: str | os.PathLike | None = None,
    size: str | None = None,
    num_train_steps: int | None = None,
    train_batch_size: int | None = None,
    learning_rate: float | None = None,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> PretrainingResult:
    """Pre-trains a model on records, as `bert-tf pretrain` does.

        bert_tf.create_records("corpus/*.txt", "vocab.txt", "records")
        bert_tf.pretrain("records", "out/model", size="mini")

    Calling it again resumes an interrupted run.

    Args:
      data_dir: folder of records, or two, comma-separated: short sequences, and
        long ones for the final phase.
      output_dir: becomes the model folder.
      init_from: model to start from: a folder, hf:// or keras_hub:// source.
      size: size of a new model: tiny to large, or layers/width/heads.
      num_train_steps: optimizer steps of all phases.
      train_batch_size: rows in a step.
      learning_rate: peak learning rate.
      settings: other settings by name, as a mapping.
      **others: any other setting of the recipe, such as objective.

    Returns:
      The scores of the finished run.

    Raises:
      UserError: see `run_pretraining`, or an invalid setting.
    """
    arguments = {
        "data_dir": os.fspath(data_dir),
        "init_from": None if init_from is None else os.fspath(init_from),
        "size": size,
        "num_train_steps": num_train_steps,
        "train_batch_size": train_batch_size,
        "learning_rate": learning_rate,
    }
    values = join_settings(arguments | others, settings)
    recipe = PretrainingRecipe.from_arguments(
        values, "the settings of pretrain", pretrain
    )
    return run_pretraining(recipe, pathlib.Path(output_dir))


def run_pretraining(
    recipe: PretrainingRecipe,
    output_dir: str | pathlib.Path,
    devices: Devices = DEFAULT_DEVICES,
) -> PretrainingResult:
    """Pre-trains a model, resuming an interrupted run of the same recipe.

    Args:
      recipe: the settings of the run.
      output_dir: the folder of the run, which becomes a model folder with the
        training states and the history.
      devices: settings of the devices of the recipe's strategy.

    Returns:
      The scores of the finished run.

    Raises:
      UserError: settings, records and output_dir do not fit each other, or a
        step was not finite.
      RunStopped: SIGTERM; the state is saved.
      KeyboardInterrupt: Ctrl-C; after the first one the state is saved.
      WorkerLost: another worker is gone.
    """
    steps = recipe.phase_steps()
    objective = load_objective(recipe.objective)
    # May split the CPU, which TensorFlow allows only before its first use.
    strategy = make_strategy(recipe.strategy, devices)
    cluster = cluster_of(strategy)
    with (
        translate_worker_errors(cluster),
        folders_of(output_dir, cluster) as run_dirs,
    ):
        check_agreement(strategy, recipe.to_dict())
        result = _run(recipe, objective, steps, strategy, run_dirs)
        # The others wait, since the first worker still writes files, and would
        # lose its connections.
        gather_numbers(strategy, [0])
    return result


def _run(
    recipe: PretrainingRecipe,
    objective: Objective,
    steps: Sequence[int],
    strategy: tf.distribute.Strategy,
    run_dirs: RunFolders,
) -> PretrainingResult:
    output_dir = run_dirs.own
    traits = ObjectiveTraits.of(objective)
    folders = open_records(recipe, traits)
    initial = load_checkpoint(recipe.init_from) if recipe.init_from else None
    teacher = load_checkpoint(recipe.teacher) if recipe.teacher else None
    models = {"init_from": initial, "teacher": teacher}
    tokenizer = choose_tokenizer(recipe, folders, models)
    vocabulary = tokenizer.vocabulary
    config = choose_configuration(recipe, folders, vocabulary, initial, traits)
    if teacher is not None:
        check_teacher(recipe, folders, teacher, config, traits)
    phases = _phases(recipe, folders, steps, strategy)
    refuse_other_folders(output_dir, recipe)
    keras.utils.set_random_seed(recipe.seed)
    with strategy.scope(), assigned_later():
        encoder = encoder_class(config)(
            config,
            dtype=recipe.precision,
            rematerialize=recipe.rematerialize,
        )
        packed = any(folder.packing is not None for folder in folders)
        model = _make_pretrainer(
            recipe,
            encoder,
            objective,
            traits,
            unpadded=packed and not needs_static_shapes(strategy),
        )
        # Untrained heads are those of init_from, or are not saved.
        heads = set(PRETRAINING_HEADS).intersection(model.heads)
        untrained = heads.difference(traits.heads)
        left_out = untrained.difference(initial.heads if initial else ())
        if initial is not None:
            restore(model, initial, sorted(left_out))
            model.load_beside(local_folder(recipe.init_from))
    with strategy.scope():
        trained, full_objective = model, objective
        if teacher is not None:
            full_objective = DistillationObjective(objective, recipe)
            trained = Distiller(
                model,
                load_pretrainer(teacher, recipe.precision, model.unpadded),
                recipe,
                return_all_layers=True,
            )
        step = make_step(
            recipe,
            trained,
            full_objective,
            strategy,
            recipe.num_train_steps,
            trained.non_trainable_weights,
            limits={
                "input_ids": config.vocab_size,
                "masked_lm_ids": config.vocab_size,
                "segment_ids": config.segment_limit,
            },
            warmup_times_decay=config.warmup_times_decay,
        )
    output_dir.mkdir(parents=True, exist_ok=True)
    with locked(output_dir / LOCK_FILE, output_dir):
        claim(output_dir, recipe)
        _announce(config, step, phases, folders)
        save = functools.partial(_save_model, model, tokenizer, left_out)
        loop = TrainingLoop(
            step,
            EvaluationStep(model, objective, strategy),
            phases,
            run_dirs,
            recipe,
            recipe.eval_steps,
            functools.partial(reading_errors, *folders),
            fingerprint(
                config,
                folders,
                recipe.objective,
                _head_arrays(model, sorted(untrained - left_out)),
                teacher.arrays if teacher is not None else {},
            )
            | {"number of data streams": str(_streams(recipe, strategy))},
            keep_model=functools.partial(
                _keep_model, output_dir / MODELS, save
            ),
            keep_model_steps=recipe.keep_model_steps,
        )
        history = loop.run()
        save(output_dir)
        fills_masks = MASKED_LM in heads - left_out and not config.causal
        mask = vocabulary.special.mask if fills_masks else None
        return report(
            recipe, output_dir, history, loop, folders[-1], config, mask
        )


def _make_pretrainer(
    recipe: PretrainingRecipe,
    encoder: BertEncoder,
    objective: Objective,
    traits: ObjectiveTraits,
    unpadded: bool,
) -> BertPretrainer:
    """Builds the model that an objective trains, on an encoder."""
    if not traits.detects_replaced_tokens:
        return BertPretrainer(encoder, objective=objective, unpadded=unpadded)
    # Checked by `choose_configuration`.
    assert isinstance(encoder.config, ElectraConfig)
    generator = None
    if recipe.init_from:
        generator = generator_of(local_folder(recipe.init_from))
    if generator is None:
        generator = encoder.config.generator(recipe.generator_size)
    return ElectraPretrainer(
        encoder, objective=objective, unpadded=unpadded, generator=generator
    )


def load_pretrainer(
    source: Checkpoint, precision: str, unpadded: bool = False
) -> BertPretrainer:
    """Builds the pre-training model of a checkpoint with a masked LM head.

    Other heads that the checkpoint lacks are reinitialized without a message.

    Args:
      source: the checkpoint.
      precision: a Keras dtype policy.
      unpadded: see `BertPretrainer`.
    """
    model = BertPretrainer(source.config, dtype=precision, unpadded=unpadded)
    heads = set(PRETRAINING_HEADS).intersection(head_shapes(source.config))
    restore(model, source, sorted(heads.difference(source.heads)))
    return model


def _head_arrays(
    model: BertPretrainer, heads: Iterable[str]
) -> dict[str, np.ndarray]:
    """Returns the weights of some heads by their checkpoint names."""
    shapes, weights = head_shapes(model.config), model.named_weights()
    return {n: weights[n].array() for head in heads for n in shapes[head]}


def _save_model(
    model: BertPretrainer,
    tokenizer: Tokenizer,
    left_out: Iterable[str],
    folder: pathlib.Path,
) -> None:
    """Writes a model folder without some of its heads."""
    tokenizer.save(folder)
    arrays = model.to_arrays()
    for name in _head_arrays(model, left_out):
        del arrays[name]
    save_checkpoint(folder, Checkpoint(model.config, arrays))
    model.save_beside(folder, tokenizer)


def _keep_model(
    models: pathlib.Path,
    save: Callable[[pathlib.Path], None],
    step: int,
) -> None:
    """Writes the model after a step and waits until it is on the disk."""
    folder = state_folder(models, step)
    with written_beside(folder) as partial:
        partial.mkdir()
        save(partial)
        for path in partial.iterdir():
            sync(path)
    sync(models)


def _streams(
    recipe: PretrainingRecipe, strategy: tf.distribute.Strategy
) -> int:
    """Returns the number of even parts that the records are read in."""
    return recipe.data_streams or len(cluster_of(strategy).workers)


def _phases(
    recipe: PretrainingRecipe,
    folders: Sequence[RecordFolder],
    steps: Sequence[int],
    strategy: tf.distribute.Strategy,
) -> list[Phase]:
    phases = []
    streams, shard = _streams(recipe, strategy), cluster_of(strategy).shard
    for index, (folder, count) in enumerate(zip(folders, steps, strict=True)):
        name = "train_batch_size"
        if index == 1 and recipe.final_phase_batch_size:
            name = "final_phase_batch_size"
        size = getattr(recipe, name)
        slices = recipe.gradient_accumulation_steps
        check_batch_size(name, size, strategy, slices)
        check_streams(folder, size, streams, shard)
        batches = functools.partial(
            training_batches,
            folder,
            size,
            recipe.seed,
            streams=streams,
            shard=shard,
        )
        held_out = None
        if folder.num_held_out:
            eval_size = recipe.eval_batch_size
            check_batch_size("eval_batch_size", eval_size, strategy)
            held_out = functools.partial(
                held_out_batches, folder, eval_size, shard
            )
        phases.append(
            Phase(count, size, batches, held_out, folder.mean_sequences)
        )
    return phases


def _announce(
    config: BertConfig,
    step: TrainingStep,
    phases: Sequence[Phase],
    folders: Sequence[RecordFolder],
) -> None:
    workers = len(cluster_of(step.strategy).workers)
    for folder in folders:
        if len(folder.training_files) < workers:
            log(
                f"{folder.path}: {len(folder.training_files)} files for "
                f"{workers} workers, so several workers read different records "
                "of one file; bert-tf create-pretraining-data --num_shards "
                "sets the number of files."
            )
    parameters = sum(math.prod(v.shape) for v in step.variables)
    print(
        f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{parameters:,} parameters"
    )
    for phase, folder in zip(phases, folders, strict=True):
        epochs = phase.num_steps * phase.batch_size / folder.num_records
        rows = f"{phase.batch_size} sequences"
        if folder.packing is not None:
            mean = phase.batch_size * folder.mean_sequences
            rows = f"{phase.batch_size} rows ({mean:.0f} sequences)"
        print(
            f"{phase.num_steps:,} steps of {rows} of "
            f"{folder.max_seq_length} tokens: {epochs:.2g} epochs of "
            f"{folder.num_records:,} records",
            flush=True,
        )
