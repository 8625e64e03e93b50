"""What an editor and a notebook know of bert_tf: its names and signatures."""

import inspect
import pathlib

import jedi

import bert_tf
from tests.finetuning.sentence_runs import TOKENS

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parameters(name: str) -> list[str]:
    return list(inspect.signature(getattr(bert_tf, name)).parameters)


def without_underscore(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_jedi() -> None:
    """What Jupyter, IPython and many editors ask."""
    script = jedi.Interpreter("bert_tf.", [{"bert_tf": bert_tf}])
    shown = without_underscore(each.name for each in script.complete())
    assert shown == set(bert_tf.__all__)
    project = jedi.Project(ROOT)
    for name in ("BertTokenizer", "adamw", "embed", "load_checkpoint"):
        script = jedi.Script(
            f"import bert_tf\nbert_tf.{name}(", project=project
        )
        (signature,) = script.get_signatures()
        assert [p.name for p in signature.params] == parameters(name)


def test_what_a_notebook_prints_says_what_it_is() -> None:
    config = bert_tf.BertConfig.from_size("2/8/2", len(TOKENS))
    encoder = bert_tf.BertEncoder(config)
    tokenizer = bert_tf.BertTokenizer(TOKENS, lower_case=False)
    size = "2 layers of 8, 2 attention heads, "
    # Tables, two blocks and the pooler; intermediate_size is 32.
    block = 4 * (8 * 8 + 8) + 2 * 8 * 32 + 32 + 8 + 2 * 2 * 8
    count = 8 * (len(TOKENS) + 512 + 2 + 2) + 2 * block + 8 * 8 + 8
    assert repr(encoder) == (
        f"<BertEncoder name=bert, {size}{count:,} parameters>"
    )
    pretrainer = bert_tf.BertPretrainer(encoder)
    arrays = pretrainer.to_arrays()
    count = sum(array.size for array in arrays.values())
    size = f"{size}{count:,} parameters"
    assert repr(pretrainer) == f"<BertPretrainer name=bert_pretrainer, {size}>"
    heads = "pooler, masked_lm, next_sentence"
    checkpoint = bert_tf.Checkpoint(config, arrays)
    assert repr(checkpoint) == f"Checkpoint({size}; {heads})"
    assert repr(tokenizer) == "BertTokenizer(22 tokens, cased)"
    pack = bert_tf.SentencePacker(tokenizer, seq_length=16)
    assert repr(pack) == f"SentencePacker({tokenizer!r}, seq_length=16)"


def test_a_tokenizer_is_called() -> None:
    tokenizer = bert_tf.BertTokenizer(TOKENS)
    for texts in ("a good film", ["a good film", "", "dull"]):
        called, named = tokenizer(texts), tokenizer.tokenize(texts)
        assert type(called) is type(named)
        # A ragged one has a NumPy array in each row.
        assert str(called) == str(named)
