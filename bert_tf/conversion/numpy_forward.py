"""A plain BERT forward in NumPy, to hold a conversion against.

Written from Devlin et al. 2019 and google-research/bert, modeling.py, in
float64 and one layer at a time. It knows no names of variables: what it
computes with, it asks of a `SourceVariables`, which reads the source's own
files under their own names and in their own layout.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

# Rows of the word table that are taken into float64 at a time.
_ROWS_AT_A_TIME = 4096


def _tanh_gelu(x: np.ndarray) -> np.ndarray:
    # x**3 would take the time of all the rest.
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + np.tanh(inner))


def _erf_gelu(x: np.ndarray) -> np.ndarray:
    values = map(math.erf, (x / math.sqrt(2)).ravel().tolist())
    erf = np.fromiter(values, np.float64, x.size).reshape(x.shape)
    return 0.5 * x * (1 + erf)


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh_gelu": _tanh_gelu,
    "erf_gelu": _erf_gelu,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}
# Their names in our folders and in Google's, whose gelu is the tanh form
# (google-research/bert, modeling.py; Model Garden, activations/gelu.py).
GOOGLE_ACTIVATIONS = {
    "gelu": "tanh_gelu",
    "gelu_erf": "erf_gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}

# Of the dense layer on the pooled token, by architecture; others have tanh.
_POOLERS = {"distilbert": "relu", "electra": "erf_gelu"}


@dataclasses.dataclass(frozen=True)
class Form:
    """What a source's configuration says beside the sizes of its arrays.

    Attributes:
      layers: how many blocks.
      heads: how many attention heads.
      activation: of the feed-forward layers, a key of `ACTIVATIONS`.
      epsilon: of every layer normalisation.
      masked_lm_activation: of the masked LM head.
      masked_lm_epsilon: of the masked LM head.
      causal: whether a position sees only itself and earlier ones; then the
        pooler reads the last token. transformers' reads the first, and is
        left out where a causal model is read or written.
      pooler_activation: of the dense layer on the pooled token.
      segments: whether there is a table of segments.
      model_type: the architecture.
    """

    layers: int
    heads: int
    activation: str
    epsilon: float
    masked_lm_activation: str
    masked_lm_epsilon: float
    causal: bool = False
    pooler_activation: str = "tanh"
    segments: bool = True
    model_type: str = "bert"

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        activations: Mapping[str, str],
        causal_key: str = "causal",
    ) -> Self:
        """What a configuration says; a key that is missing is BERT base's.

        Args:
          config: what its file holds.
          activations: the file's names of activations to ours.
          causal_key: the key that makes it causal.
        """
        activation = config.get("hidden_act", "gelu").lower()
        model_type = config.get("model_type", "bert")
        epsilon = config.get("layer_norm_eps", 1e-12)
        return cls(
            layers=config.get("num_hidden_layers", 12),
            heads=config.get("num_attention_heads", 12),
            activation=activations[activation],
            epsilon=epsilon,
            masked_lm_activation=activations[
                config.get("masked_lm_act") or activation
            ],
            masked_lm_epsilon=config.get("masked_lm_layer_norm_eps") or epsilon,
            causal=config.get(causal_key, False),
            pooler_activation=_POOLERS.get(model_type, "tanh"),
            segments=model_type != "distilbert",
            model_type=model_type,
        )


class SourceVariables(abc.ABC):
    """A source's own variables, by the part of BERT that they are.

    Linear parts of a block: query, key, value, attention_output,
    intermediate, output. Norms of a block: attention, output. Others have
    layer None: the norm embeddings, and the heads, which are pooler,
    masked_lm (a linear part and a norm), next_sentence, classifier, span,
    token_classifier and multiple_choice; bilstm, which is our own folders'
    alone; and an ELECTRA's embeddings_project, replaced_tokens and its last
    layer replaced_tokens_output.

    Args:
      form: how the source computes.
      arrays: the arrays by the source's names.

    Attributes:
      heads: the names of the heads that the source has, by their parts.
    """

    # Names by part; {} stands for the number of the layer. Those of linear
    # parts and norms are followed by an end for each of their two arrays.
    TABLES: Mapping[str, str]
    LINEAR: Mapping[str, str]
    NORMS: Mapping[str, str]
    NORM_ENDS: tuple[str, str]
    WORD_BIAS: str
    heads: dict[str, str]

    def __init__(self, form: Form, arrays: Mapping[str, np.ndarray]) -> None:
        self.form = form
        self.arrays = arrays

    def array(self, name: str) -> np.ndarray:
        """The array of a name."""
        return self.arrays[name]

    @abc.abstractmethod
    def kernel_and_bias(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Those of a linear part: [in, out] and [out].

        With attention's heads apart, query, key and value are [in, N, D] and
        [N, D], the attention's output is [N, D, out] and [out].
        """

    def table(self, name: str) -> np.ndarray:
        """The embedding table word, segment or position: [rows, E].

        E is H of all but an ELECTRA.
        """
        return self.array(self.TABLES[name])

    def output_table(self) -> np.ndarray:
        """The table that masked LM logits are products with: [V, E]."""
        return self.table("word")

    def linear(
        self, inputs: np.ndarray, part: str, layer: int | None = None
    ) -> np.ndarray:
        """Maps float64 [B, ..., in] to float64 [B, ..., out]."""
        name = self.heads[part] if layer is None else self.LINEAR[part]
        kernel, bias = self.kernel_and_bias(name.format(layer))
        if kernel.ndim == 2:
            return _affine(inputs, kernel, bias)
        if part == "attention_output":
            # The sum of what each head's share gives.
            shares = np.split(inputs, len(kernel), axis=-1)
            return sum(map(_affine, shares, kernel)) + bias.astype(np.float64)
        # One head after the other.
        heads = [
            _affine(inputs, kernel[:, head], bias[head])
            for head in range(kernel.shape[1])
        ]
        return np.concatenate(heads, axis=-1)

    def lstm(self, direction: str) -> list[np.ndarray]:
        """The BiLSTM's forward or backward kernel, recurrent kernel and bias.

        Of a width of u: [H, 4u], [u, 4u] and [4u], gates i, f, c and o.
        """
        name = self.heads["bilstm"].format(direction)
        ends = ("kernel", "recurrent_kernel", "bias")
        return [self.array(f"{name}{end}").astype(np.float64) for end in ends]

    def norm(
        self, part: str, layer: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The scale and the shift of a layer normalisation: [H] each."""
        name = self.NORMS[part].format(layer)
        scale, shift = self.NORM_ENDS
        return self.array(name + scale), self.array(name + shift)

    def word_bias(self) -> np.ndarray:
        """The masked LM head's bias of each word: [V]."""
        return self.array(self.WORD_BIAS)


def _affine(
    inputs: np.ndarray, matrix: np.ndarray, bias: np.ndarray | float = 0.0
) -> np.ndarray:
    return inputs @ matrix.astype(np.float64) + np.asarray(bias, np.float64)


def _normalise(
    inputs: np.ndarray, scale_and_shift: tuple[np.ndarray, ...], epsilon: float
) -> np.ndarray:
    scale, shift = (array.astype(np.float64) for array in scale_and_shift)
    centred = inputs - inputs.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * scale + shift


def _attend(
    source: SourceVariables, hidden: np.ndarray, seen: np.ndarray, layer: int
) -> np.ndarray:
    """Attention of block `layer` (Vaswani et al. 2017, section 3.2)."""
    rows, length, _ = hidden.shape
    # Each [B, N, S, D].
    query, key, value = (
        source.linear(hidden, part, layer)
        .reshape(rows, length, source.form.heads, -1)
        .transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1])
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    context = (shares @ value).transpose(0, 2, 1, 3)
    context = context.reshape(rows, length, -1)
    return source.linear(context, "attention_output", layer)


def _encode(
    source: SourceVariables, batch: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The output of the last block, float64 [B, S, H]."""
    form = source.form
    activate = ACTIVATIONS[form.activation]
    hidden = sum(
        source.table(table)[batch[ids]].astype(np.float64)
        for table, ids in (
            ("word", "input_ids"),
            ("segment", "segment_ids"),
            ("position", "position_ids"),
        )
        if form.segments or table != "segment"
    )
    hidden = _normalise(hidden, source.norm("embeddings"), form.epsilon)
    if "embeddings_project" in source.heads:
        hidden = source.linear(hidden, "embeddings_project")
    # Which positions each position sees: [B, 1, S or 1, S].
    seen = batch["input_mask"][:, None, None, :] != 0
    if form.causal:
        length = hidden.shape[1]
        seen = seen & np.tri(length, dtype=bool)
    for layer in range(form.layers):
        hidden = _normalise(
            hidden + _attend(source, hidden, seen, layer),
            source.norm("attention", layer),
            form.epsilon,
        )
        inner = activate(source.linear(hidden, "intermediate", layer))
        hidden = _normalise(
            hidden + source.linear(inner, "output", layer),
            source.norm("output", layer),
            form.epsilon,
        )
    return hidden


def _read_rows(
    weights: list[np.ndarray], hidden: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """An LSTM's outputs [B, S, u], 0 of padding, and last ones [B, u].

    Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000).
    """
    kernel, recurrent, bias = weights
    state = cell = np.zeros((len(hidden), len(recurrent)))
    outputs = np.zeros((*hidden.shape[:2], len(recurrent)))
    for place in range(hidden.shape[1]):
        gates = hidden[:, place] @ kernel + state @ recurrent + bias
        take, keep, new, give = np.split(gates, 4, axis=1)
        take, keep, give = (1 / (1 + np.exp(-x)) for x in (take, keep, give))
        seen = mask[:, place, None]
        cell = np.where(seen, keep * cell + take * np.tanh(new), cell)
        state = np.where(seen, give * np.tanh(cell), state)
        outputs[:, place] = np.where(seen, state, 0.0)
    return outputs, state


def _read_both_ways(
    source: SourceVariables, hidden: np.ndarray, mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The BiLSTM's outputs, float64 [B, S, H], and both ends, [B, H]."""
    forward, end = _read_rows(source.lstm("forward"), hidden, mask)
    backward, begin = _read_rows(
        source.lstm("backward"), hidden[:, ::-1], mask[:, ::-1]
    )
    tokens = np.concatenate([forward, backward[:, ::-1]], axis=-1)
    return tokens, np.concatenate([end, begin], axis=-1)


def _masked_lm_logits(
    source: SourceVariables, hidden: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """Scores of every word, float64 [B, P, V]."""
    form = source.form
    masked = np.take_along_axis(hidden, positions[:, :, None], axis=1)
    masked = source.linear(masked, "masked_lm")
    masked = ACTIVATIONS[form.masked_lm_activation](masked)
    masked = _normalise(
        masked, source.norm("masked_lm"), form.masked_lm_epsilon
    )
    table = source.output_table()
    pieces = [
        masked @ table[row : row + _ROWS_AT_A_TIME].astype(np.float64).T
        for row in range(0, len(table), _ROWS_AT_A_TIME)
    ]
    return np.concatenate(pieces, axis=-1) + source.word_bias()


def forward(
    source: SourceVariables, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Computes a source's outputs from its own variables.

    Args:
      source: the variables.
      batch: int32 [B, S]: input_ids, input_mask, segment_ids, position_ids;
        and masked_lm_positions [B, P].

    Returns:
      float64: sequence_output [B, S, H] and, of what the source has,
      pooled_output [B, H], masked_lm_logits [B, P, V] and the logits of the
      other heads, named after them: `<head>_logits` [B, labels], of span and
      token_classifier [B, S, labels], of replaced_tokens [B, S].
    """
    hidden, tokens = _encode(source, batch), batch["input_mask"] != 0
    pooled = hidden[:, 0]
    if source.form.causal:
        last = tokens.shape[1] - 1 - tokens[:, ::-1].argmax(axis=1)
        pooled = hidden[np.arange(len(hidden)), last]
    if "bilstm" in source.heads:
        hidden, pooled = _read_both_ways(source, hidden, tokens)
    outputs = {"sequence_output": hidden}
    if "masked_lm" in source.heads:
        outputs["masked_lm_logits"] = _masked_lm_logits(
            source, hidden, batch["masked_lm_positions"]
        )
    for head in ("span", "token_classifier"):
        if head in source.heads:
            outputs[f"{head}_logits"] = source.linear(hidden, head)
    if "replaced_tokens" in source.heads:
        inner = source.linear(hidden, "replaced_tokens")
        inner = ACTIVATIONS[source.form.activation](inner)
        logits = source.linear(inner, "replaced_tokens_output")
        outputs["replaced_tokens_logits"] = logits[..., 0]
    if "pooler" in source.heads:
        activate = ACTIVATIONS[source.form.pooler_activation]
        pooled = activate(source.linear(pooled, "pooler"))
        outputs["pooled_output"] = pooled
        for head in ("next_sentence", "classifier", "multiple_choice"):
            if head in source.heads:
                outputs[f"{head}_logits"] = source.linear(pooled, head)
    return outputs
