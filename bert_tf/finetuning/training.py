"""One training of a task: one seed, one folder."""

import contextlib
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.encoder import BertEncoder
from bert_tf.errors import UserError
from bert_tf.files import locked
from bert_tf.finetuning.batches import num_steps, training_batches
from bert_tf.finetuning.model_folder import save_sentence_model
from bert_tf.finetuning.prediction import Predictor
from bert_tf.finetuning.recipe import FinetuningRecipe
from bert_tf.finetuning.results import write_results
from bert_tf.finetuning.scoring import Scorer
from bert_tf.finetuning.sentence_model import SentenceModel
from bert_tf.finetuning.setup import (
    Material,
    facts_of,
    freeze,
    identity,
    rate_factors,
)
from bert_tf.models import restore
from bert_tf.optimization import adamw
from bert_tf.training.best_weights import BestWeights
from bert_tf.training.loop import (
    Diagnosis,
    LoopSettings,
    Phase,
    TrainingLoop,
)
from bert_tf.training.loss_scale import LossScale
from bert_tf.training.run_folder import (
    LOCK_FILE,
    claim,
    refuse_other_folders,
)
from bert_tf.training.step import TrainingStep

LAST = "last"


def train_once(
    material: Material,
    recipe: FinetuningRecipe,
    output_dir: pathlib.Path,
    strategy: tf.distribute.Strategy,
) -> dict[str, Any]:
    """Trains with one seed, going on where an earlier run of it stopped.

    Args:
      material: what to train on and from.
      recipe: what to do; its `seed` is the one.
      output_dir: becomes a model folder, with the run's states and numbers.
      strategy: the distribution strategy.

    Returns:
      What results.json holds.

    Raises:
      UserError: settings that do not fit each other or output_dir, or a step
        that was not finite.
    """
    phase = _phase(material, recipe, strategy)
    refuse_other_folders(output_dir, recipe)
    keras.utils.set_random_seed(recipe.seed)
    with strategy.scope():
        encoder = BertEncoder(material.initial.config, dtype=recipe.precision)
        model = SentenceModel(encoder, material.num_outputs)
        restore(model.classifier, material.initial, material.fresh)
        step = _training_step(material, recipe, model, phase, strategy)
    predictor = Predictor(model, strategy, recipe.eval_batch_size)
    scorer = Scorer(
        material.task,
        material.labels,
        material.objective,
        predictor,
        recipe.threshold,
    )

    def score() -> dict[str, float]:
        found = scorer.score(material.dev[material.main_split])
        return {"loss": found.loss, **found.scores}

    best = BestWeights(
        step.variables,
        score,
        material.task.main_metric,
        recipe.early_stopping,
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    with locked(output_dir / LOCK_FILE, output_dir):
        claim(output_dir, recipe)
        _announce(model, phase, material)
        loop = _loop(material, recipe, step, phase, output_dir, best)
        history = loop.run()
        facts = facts_of(material.task, recipe, material.labels)
        last = output_dir / LAST
        save_sentence_model(last, model, material.tokenizer, facts)
        best.assign()
        save_sentence_model(output_dir, model, material.tokenizer, facts)
        return write_results(
            output_dir, recipe, material, scorer, loop, history
        )


def _phase(
    material: Material,
    recipe: FinetuningRecipe,
    strategy: tf.distribute.Strategy,
) -> Phase:
    """The whole training as one stretch of steps."""
    replicas = strategy.num_replicas_in_sync
    parts = replicas * recipe.gradient_accumulation_steps
    size = recipe.train_batch_size
    if size % parts:
        raise UserError(
            f"train_batch_size {size} is not a multiple of {parts}: {replicas} "
            f"devices x gradient_accumulation_steps "
            f"{recipe.gradient_accumulation_steps}."
        )
    if recipe.eval_batch_size % replicas:
        raise UserError(
            f"eval_batch_size {recipe.eval_batch_size} is not a multiple of "
            f"{replicas} devices."
        )
    rows = len(material.data.rows)
    steps = num_steps(rows, size, recipe.num_train_epochs)
    if not steps:
        raise UserError(
            f"num_train_epochs={recipe.num_train_epochs} of {rows} rows do "
            f"not fill one batch of train_batch_size={size}; choose a smaller "
            "batch or more epochs."
        )
    return Phase(
        steps,
        size,
        lambda start: training_batches(material.data, size, recipe.seed, start),
        None,
    )


def _training_step(
    material: Material,
    recipe: FinetuningRecipe,
    model: SentenceModel,
    phase: Phase,
    strategy: tf.distribute.Strategy,
) -> TrainingStep:
    frozen = freeze(model.encoder, recipe.freeze_layers)
    optimizer = adamw(
        recipe.learning_rate,
        phase.num_steps,
        int(phase.num_steps * recipe.warmup_proportion),
        recipe.weight_decay_rate,
        # The step clips, after the reduction over devices.
        clip_norm=None,
    )
    factors = rate_factors(
        model.encoder, model.trainable_variables, recipe.layer_decay
    )
    return TrainingStep(
        model,
        material.objective,
        optimizer,
        strategy,
        recipe.max_grad_norm,
        recipe.gradient_accumulation_steps,
        recipe.seed,
        LossScale() if recipe.precision == "mixed_float16" else None,
        frozen,
        factors,
    )


def _loop(
    material: Material,
    recipe: FinetuningRecipe,
    step: TrainingStep,
    phase: Phase,
    output_dir: pathlib.Path,
    best: BestWeights,
) -> TrainingLoop:
    config = material.initial.config
    limits = {
        "input_ids": config.vocab_size,
        "segment_ids": config.type_vocab_size,
    }
    epoch = math.ceil(len(material.data.rows) / phase.batch_size)
    return TrainingLoop(
        step,
        None,
        [phase],
        output_dir,
        LoopSettings(
            recipe.log_steps,
            recipe.eval_steps or epoch,
            recipe.save_checkpoints_steps,
            recipe.keep_checkpoint_max,
        ),
        Diagnosis(
            limits,
            functools.partial(_forward_tensors, step.model, step.objective),
        ),
        contextlib.nullcontext,
        identity(material, step.frozen),
        best,
    )


def _forward_tensors(
    model: SentenceModel, objective: Any, batch: Mapping[str, object]
) -> list[tuple[str, object]]:
    """Every tensor of the forward pass that has a name, in order."""
    batch = {name: tf.convert_to_tensor(value) for name, value in batch.items()}
    encoded = model.encoder(batch, training=False, return_all_layers=True)
    named = [("embedding_output", encoded["embedding_output"])]
    named += [
        (f"the output of layer {index}", layer)
        for index, layer in enumerate(encoded["all_encoder_layers"])
    ]
    named.append(("pooled_output", encoded["pooled_output"]))
    outputs = model(batch, training=False)
    losses, _ = objective(outputs, batch)
    return [*named, *outputs.items(), *losses.items()]


def _announce(model: SentenceModel, phase: Phase, material: Material) -> None:
    config, rows = model.encoder.config, material.data.rows
    windows = ""
    if len(rows) != rows.num_examples:
        windows = f" in {len(rows):,} windows"
    print(
        f"{material.task.name}: {config.num_hidden_layers} layers of "
        f"{config.hidden_size}, {model.count_params():,} parameters; "
        f"{rows.num_examples:,} examples{windows} of "
        f"{rows.lengths.mean():.0f} tokens on average; {phase.num_steps:,} "
        f"steps of {phase.batch_size}",
        flush=True,
    )
