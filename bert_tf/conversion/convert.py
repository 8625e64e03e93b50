"""Converts a checkpoint: reads, resizes, writes and verifies it."""

import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from bert_tf.checkpoints import (
    BILSTM,
    CLASSIFIER,
    HEADS_ON_POOLER,
    LABELLED_HEADS,
    MASKED_LM,
    POOLER,
    TASK_HEADS,
    Checkpoint,
    google_tf1,
    head_shapes,
    load_checkpoint,
    recognise,
    save_checkpoint,
)
from bert_tf.checkpoints.folder import WRITTEN
from bert_tf.checkpoints.resize import replace_vocabulary, resize_positions
from bert_tf.checkpoints.sentence_files import (
    read_cross_encoder,
    read_sentence_modules,
    write_cross_encoder,
    write_sentence_modules,
)
from bert_tf.checkpoints.sentence_modules import Modules
from bert_tf.checkpoints.task_file import TASK_FILE, read_task_file
from bert_tf.checkpoints.tokenizers import tokenizer_kind
from bert_tf.conversion.proof import PRETRAINING_OUTPUTS, Comparison, prove
from bert_tf.conversion.transformers_check import compare_in_transformers
from bert_tf.errors import UserError, check_choice, first_few, whole_number
from bert_tf.families.token_classification.recipe import TAGGER_FILE
from bert_tf.files import new_folder, refuse_filled
from bert_tf.foreign_files import demand_regular
from bert_tf.lazy_arrays import LazyArrays, shapes_of_arrays
from bert_tf.libraries import missing_libraries, require_extra
from bert_tf.processes import own_memory
from bert_tf.progress import log
from bert_tf.sharing.model_card import CARD_FILE, ModelCard
from bert_tf.sources import local_folder, transformer_folder


@dataclasses.dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion.

    Attributes:
      output_dir: the written folder.
      family: the source's family.
      to: the written layout.
      heads: the written heads, including the pooler.
      comparisons: the comparison of each output.
      not_compared: outputs without a comparison, and why.
      seconds: the time.
      peak_bytes: the peak memory of the process so far.
      in_transformers: the comparisons of `check`=transformers.
    """

    output_dir: pathlib.Path
    family: str
    to: str
    heads: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    not_compared: dict[str, str]
    seconds: float
    peak_bytes: int
    in_transformers: tuple[Comparison, ...] = ()

    def table(self) -> str:
        """Returns the comparisons as a table of text."""
        lines = [
            f"{'output':<24}{'largest difference':>20}{'largest value':>16}"
        ]
        lines += map(str, self.comparisons)
        lines += [
            f"{output:<24}not compared: {why}"
            for output, why in self.not_compared.items()
        ]
        if self.in_transformers:
            lines.append(
                "in transformers, from its model of the source to that of the "
                "written folder and to ours:"
            )
            lines += map(str, self.in_transformers)
        return "\n".join(lines)


def convert(
    source: str | os.PathLike,
    to: str,
    path: str | os.PathLike,
    vocab_file: str | os.PathLike = "",
    lower_case: bool | None = None,
    max_position_embeddings: int = 0,
    drop_heads: Sequence[str] = (),
    seed: int = 0,
    generator: bool = False,
    ignore: str = "",
    check: str = "",
) -> ConversionReport:
    """Converts a checkpoint and verifies that both models compute the same.

        bert_tf.convert("uncased_L-12_H-768_A-12", "hugging_face", "out/bert")

    Prints what is left out, kept and new, then the comparison. The description
    of a task's head is converted too: task.json, names of labels, problem_type,
    lengths and the model card.

    Args:
      source: a model folder of any family, hf://organisation/name or
        keras_hub://preset; see `load_checkpoint`.
      to: the layout to write: bert_tf, google_tf1 or hugging_face.
      path: the folder to write, missing or empty.
      vocab_file: the vocabulary of a source without one; or a new vocabulary,
        to which rows are copied by token.
      lower_case: whether text is lower-cased; None as the source states.
      max_position_embeddings: the new number of positions; 0 keeps the
        source's.
      drop_heads: heads that are not written.
      seed: of new rows and of the random ids of the comparison.
      generator: whether to convert the generator in an ELECTRA's TF1 checkpoint
        instead of its discriminator.
      ignore: a regular expression of arrays that are no part of the model;
        see `load_checkpoint`.
      check: "transformers" also loads both folders in Hugging Face's
        transformers, and compares hidden states and logits.

    Returns:
      What was written, and the comparison of each output.

    Raises:
      UserError: the source cannot be read, an argument does not fit it, or the
        models differ; nothing is written.
    """
    start = time.monotonic()
    check_choice("`to`", to, WRITTEN)
    whole_number("seed", seed, 0)
    if check:
        check_choice("`check`", check, ("transformers",))
        require_extra("transformers", "`check`=transformers")
    refuse_filled(path, "path")
    folder = transformer_folder(local_folder(source))
    family = recognise(folder)
    loaded = load_checkpoint(source, generator=generator, ignore=ignore)
    sizes = loaded.config
    _say(
        f"source: {source} ({family}), {sizes.num_hidden_layers} "
        f"layers of width {sizes.hidden_size}, vocabulary "
        f"{sizes.vocab_size}, {sizes.max_position_embeddings} positions, "
        f"{sizes.hidden_act}, epsilon {sizes.layer_norm_eps:g}"
    )
    if loaded.left_out:
        _say(f"left out, no part of the model: {first_few(loaded.left_out)}")
    modules, activation = _read_modules(loaded)
    checkpoint = _drop_heads(loaded, drop_heads)
    checkpoint = _with_vocabulary(checkpoint, folder, vocab_file, seed)
    length = checkpoint.config.max_position_embeddings
    if max_position_embeddings not in (0, length):
        checkpoint, line = resize_positions(
            checkpoint, max_position_embeddings, seed
        )
        _say(line)
    tokenizer = checkpoint.require_tokenizer(checkpoint.source)
    if tokenizer.other_rules or lower_case is not None:
        # Refuses a tokenizer with rules that cannot be written.
        tokenizer = tokenizer.with_rules_of(folder, lower_case)
        checkpoint = checkpoint.with_tokenizer(tokenizer)
    checkpoint, beside_weights = _with_task(loaded, checkpoint, folder, to)
    for line in tokenizer.notices(to):
        _say(line)
    if to == "google_tf1":
        for line in google_tf1.notices(checkpoint.config):
            _say(line)
    if modules is not None:
        length = checkpoint.config.longest_input
        modules = dataclasses.replace(
            modules, max_seq_length=min(modules.max_seq_length, length)
        )
    with new_folder(path, "path") as beside:
        save_checkpoint(beside, checkpoint, to)
        for name, content in beside_weights.items():
            (beside / name).write_bytes(content)
        if modules is not None:
            hidden_size = checkpoint.config.hidden_size
            write_sentence_modules(beside, modules, hidden_size)
        if activation is not None and CLASSIFIER in checkpoint.heads:
            write_cross_encoder(beside, activation)
        if modules is not None and CARD_FILE not in beside_weights:
            name = pathlib.Path(os.path.abspath(path)).name
            _write_card(beside, name, modules, checkpoint)
        written = load_checkpoint(beside)
        comparisons = prove(loaded, checkpoint, written, drop_heads, seed)
        in_transformers: tuple[Comparison, ...] = ()
        if check:
            in_transformers = compare_in_transformers(
                loaded, folder, written, beside, seed
            )
    not_compared = {}
    for output, needed in PRETRAINING_OUTPUTS.items():
        if absent := [h for h in needed if h not in checkpoint.heads]:
            not_compared[output] = (
                f"{absent[0]} was dropped"
                if absent[0] in loaded.heads
                else f"the source has no {absent[0]}"
            )
    report = ConversionReport(
        pathlib.Path(os.path.abspath(path)),
        family,
        to,
        checkpoint.heads,
        comparisons,
        not_compared,
        time.monotonic() - start,
        own_memory(peak=True),
        in_transformers,
    )
    _say(
        f"proof: {len(written.arrays)} arrays read back bit-identical; the "
        "same random ids through the source's model and the written one "
        "(float32)"
    )
    _say(report.table())
    return report


def _write_card(
    folder: pathlib.Path, name: str, modules: Modules, checkpoint: Checkpoint
) -> None:
    """Writes the model card of a folder of sentence-transformers without one.

    Nothing is written where the library of templates is not installed.
    """
    if missing_libraries("report"):
        return
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    card = ModelCard(
        summary=f"{config.title}, a {modules.model_type}: {modules}",
        pipeline_tag="",
        question={"text": "A calm sea."},
        init_from=checkpoint.source,
        num_rows={},
        scores=(),
        settings={},
        architecture=config.model_type,
        tokenizer=tokenizer.vocabulary.description if tokenizer else "",
        sentence_kind=modules.model_type,
    )
    card.write(folder, name)


def _say(line: str) -> None:
    log(line, sys.stdout)


def _read_modules(
    checkpoint: Checkpoint,
) -> tuple[Modules | None, str | None]:
    """Reads the modules, or the activation of a CrossEncoder, if supported."""
    try:
        modules = read_sentence_modules(checkpoint)
        activation = None if modules else read_cross_encoder(checkpoint)
    except UserError as error:
        _say(f"left out, files of sentence-transformers: {error}")
        return None, None
    if modules is not None:
        _say(f"sentence-transformers: {modules} kept")
    if activation is not None:
        _say(f"sentence-transformers: CrossEncoder, {activation} kept")
    return modules, activation


def _drop_heads(checkpoint: Checkpoint, dropped: Sequence[str]) -> Checkpoint:
    if isinstance(dropped, str):
        raise UserError(
            f"drop_heads={dropped!r}: takes a list of names of heads."
        )
    heads = checkpoint.heads
    if absent := [head for head in dropped if head not in heads]:
        raise UserError(
            f"`drop_heads`={absent[0]}: the source has no such head; it has "
            f"{', '.join(heads) or 'none'}."
        )
    if BILSTM in dropped:
        raise UserError(
            f"`drop_heads`={BILSTM}: all other heads read its output; without "
            "it this is another model."
        )
    kept = [head for head in heads if head not in dropped]
    needing = [head for head in kept if head in HEADS_ON_POOLER]
    if POOLER in dropped and needing:
        raise UserError(
            f"`drop_heads`={POOLER}: {', '.join(needing)} need it; drop "
            "these too."
        )
    line = f"heads kept: {', '.join(kept) or 'none'}"
    _say(f"{line}; dropped: {', '.join(dropped)}" if dropped else line)
    if not dropped:
        return checkpoint
    shapes = shapes_of_arrays(checkpoint.arrays)
    for head in set(dropped):
        for name in head_shapes(checkpoint.config)[head]:
            del shapes[name]
    labels = checkpoint.labels if set(kept) & set(LABELLED_HEADS) else None
    config = checkpoint.config
    if MASKED_LM in dropped:
        config = dataclasses.replace(
            config, masked_lm_act="", masked_lm_layer_norm_eps=0.0
        )
    return dataclasses.replace(
        checkpoint,
        config=config,
        arrays=LazyArrays(shapes, checkpoint.arrays.__getitem__),
        labels=labels,
    )


def _with_vocabulary(
    checkpoint: Checkpoint,
    folder: pathlib.Path,
    vocab_file: str | os.PathLike,
    seed: int,
) -> Checkpoint:
    if not vocab_file:
        if checkpoint.vocabulary is None:
            raise UserError(
                f"{checkpoint.source}: holds no vocabulary; pass the one it "
                "was trained with as `vocab_file`."
            )
        return checkpoint
    rows = checkpoint.config.vocab_size
    kind = tokenizer_kind(checkpoint.config, folder)
    tokenizer = kind.of_tokens(vocab_file, rows)
    vocabulary = tokenizer.vocabulary
    if checkpoint.vocabulary == vocabulary and len(vocabulary) == rows:
        return checkpoint
    if checkpoint.vocabulary is not None:
        checkpoint, line = replace_vocabulary(checkpoint, vocabulary, seed)
        _say(line)
        return checkpoint
    vocabulary.require_rows(rows, f"`vocab_file`={vocab_file}")
    if len(vocabulary) < rows:
        _say(
            f"vocabulary: {vocab_file} has {len(vocabulary)} tokens; the last "
            f"{rows - len(vocabulary)} of {rows} rows have no token"
        )
    return checkpoint.with_tokenizer(tokenizer.with_rules_of(folder))


def _with_task(
    source: Checkpoint, written: Checkpoint, folder: pathlib.Path, to: str
) -> tuple[Checkpoint, dict[str, bytes]]:
    """Collects the description of a fine-tuned model for the written folder.

    Returns:
      The checkpoint with the metadata that the layout itself stores, and the
      contents of further files by name.
    """
    dropped = {*TASK_HEADS} & ({*source.heads} - {*written.heads})
    values = read_task_file(folder)
    length, longest = (written.max_seq_length, written.config.longest_input)
    if values is not None and (dropped or to != "hugging_face"):
        # task.json states it, or its head is dropped.
        length = None
    written = dataclasses.replace(
        written,
        problem_type=None if CLASSIFIER in dropped else written.problem_type,
        max_seq_length=length and min(length, longest),
    )
    if dropped:
        if values is not None:
            _say(f"left out with the {' and '.join(dropped)}: {TASK_FILE}")
        return written, {}
    names = [CARD_FILE, *([TAGGER_FILE] if values is not None else [])]
    files = {}
    for name in names:
        demand_regular(folder / name)
        if (folder / name).is_file():
            files[name] = (folder / name).read_bytes()
    if values is not None:
        values = _fitted(values, longest)
        text = json.dumps(values, indent=2)
        files[TASK_FILE] = f"{text}\n".encode()
    if files:
        _say(f"files kept: {', '.join(sorted(files))}")
    return written, files


def _fitted(values: dict[str, Any], longest: int) -> dict[str, Any]:
    """Fits the values of task.json to the number of positions."""
    length = values.get("max_seq_length")
    if not isinstance(length, int) or length <= longest:
        return values
    question = values.get("max_query_length")
    # [CLS], two [SEP] and a token of the context.
    if isinstance(question, int) and question + 4 > longest:
        raise UserError(
            f"`max_position_embeddings`={longest}: leaves no room for a "
            f"context beside a question of max_query_length={question} "
            f"({TASK_FILE}); keep {question + 4} positions or more, or drop "
            "the head."
        )
    _say(f"{TASK_FILE}: max_seq_length is {longest}, not {length}")
    return values | {"max_seq_length": longest}
