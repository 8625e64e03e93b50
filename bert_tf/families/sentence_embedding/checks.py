"""Data doctor of sentence embeddings."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.families import checks
from bert_tf.families.checks import Fact, counted
from bert_tf.families.sentence_embedding.files import EmbeddingExample
from bert_tf.families.sentence_embedding.recipe import EmbeddingRecipe
from bert_tf.text.tokenizer_protocol import Tokenizer


def examine(
    task: Any,
    recipe: EmbeddingRecipe,
    tokenizer: Tokenizer,
    splits: Mapping[str, Sequence[EmbeddingExample]],
) -> checks.Examination:
    """Counts rows, texts, tokens and repeats; see `Task.examine`."""
    length = recipe.max_seq_length
    found = checks.examine(
        task.name,
        {
            name: _split_rows(examples, tokenizer, length)
            for name, examples in splits.items()
        },
        length,
    )
    checks.add_input_remarks(found)
    return found


def _split_rows(
    examples: Sequence[EmbeddingExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> checks.SplitRows:
    path, count = examples[0].path, len(examples[0].texts)
    rows = checks.ComparedRows(
        checks.Row(e.row, e.texts, e.label) for e in examples
    )
    # The model reads each text by itself.
    inputs = (checks.Row(e.row, (text,)) for e in examples for text in e.texts)
    tokens = checks.InputCounts(inputs, tokenizer, max_seq_length, "text")
    distinct = len({text for e in examples for text in e.texts})
    facts = [
        Fact("inputs", len(examples) * count),
        Fact("distinct_texts", distinct, [f"different texts: {distinct:,}"]),
        *tokens.facts(path),
    ]
    title = f"{counted(len(rows))} of {counted(count, 'text')}"
    return checks.SplitRows(path, rows, title, facts)
