"""Which arrays a BERT has: our names and shapes, encoder and heads.

The names are those of Google's TF1 checkpoints, and so are the shapes: Dense
kernels are [in, out], output weights of heads are [labels, hidden]. Google has
no names for token classification and multiple choice; ours follow its form.
"""

from bert_tf.config import BertConfig

# None stands for a size that the configuration does not tell (the number of
# labels of a head).
Shape = tuple[int | None, ...]
Shapes = dict[str, Shape]

POOLER = "pooler"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
SPAN = "span"
TOKEN_CLASSIFIER = "token_classifier"
MULTIPLE_CHOICE = "multiple_choice"
# Those that a fine-tuning makes.
TASK_HEADS = (CLASSIFIER, SPAN, TOKEN_CLASSIFIER, MULTIPLE_CHOICE)

# Those that score the pooled output.
HEADS_ON_POOLER = (NEXT_SENTENCE, CLASSIFIER, MULTIPLE_CHOICE)


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def _dense(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def _output(name: str, labels: int | None, hidden: int) -> Shapes:
    return {
        f"{name}output_weights": (labels, hidden),
        f"{name}output_bias": (labels,),
    }


def encoder_shapes(config: BertConfig) -> Shapes:
    """The arrays of the encoder without its pooler."""
    hidden, inner = config.hidden_size, config.intermediate_size
    at = "bert/embeddings"
    shapes: Shapes = {
        f"{at}/word_embeddings": (config.vocab_size, hidden),
        f"{at}/token_type_embeddings": (config.type_vocab_size, hidden),
        f"{at}/position_embeddings": (config.max_position_embeddings, hidden),
        **_norm(f"{at}/LayerNorm", hidden),
    }
    for i in range(config.num_hidden_layers):
        at = f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes |= _dense(f"{at}/attention/self/{part}", hidden, hidden)
        shapes |= _dense(f"{at}/attention/output/dense", hidden, hidden)
        shapes |= _norm(f"{at}/attention/output/LayerNorm", hidden)
        shapes |= _dense(f"{at}/intermediate/dense", hidden, inner)
        shapes |= _dense(f"{at}/output/dense", inner, hidden)
        shapes |= _norm(f"{at}/output/LayerNorm", hidden)
    return shapes


def head_shapes(config: BertConfig) -> dict[str, Shapes]:
    """The arrays of each head by the head's name, the pooler among them."""
    hidden = config.hidden_size
    at = "cls/predictions"
    return {
        POOLER: _dense("bert/pooler/dense", hidden, hidden),
        MASKED_LM: {
            **_dense(f"{at}/transform/dense", hidden, hidden),
            **_norm(f"{at}/transform/LayerNorm", hidden),
            f"{at}/output_bias": (config.vocab_size,),
        },
        NEXT_SENTENCE: _output("cls/seq_relationship/", 2, hidden),
        CLASSIFIER: _output("", None, hidden),
        SPAN: _output("cls/squad/", 2, hidden),
        TOKEN_CLASSIFIER: _output("cls/token_classification/", None, hidden),
        MULTIPLE_CHOICE: _output("cls/multiple_choice/", 1, hidden),
    }
