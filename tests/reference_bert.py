"""BERT's forward pass in NumPy, float64, written from the papers.

Devlin et al. 2019 (section 3, figure 2, appendix A.2) and Vaswani et al. 2017
(sections 3.1 to 3.3), with the names of Google's TF1 checkpoints. One row and
one head at a time, sums as loops where that is plainer: it is meant to be
checked by eye, and shares no code with the package.
"""

import math

import numpy as np

_erf = np.vectorize(math.erf)

ACTIVATIONS = {
    "gelu": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "gelu_erf": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def layer_norm(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return gamma * centred / deviation + beta


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class ReferenceBert:
    """A BERT that reads its weights from named arrays."""

    def __init__(self, config, arrays):
        self.config = config
        self.arrays = {k: v.astype(np.float64) for k, v in arrays.items()}
        self.act = ACTIVATIONS[config.hidden_act]
        self.head_act = ACTIVATIONS[config.masked_lm_act or config.hidden_act]
        self.head_eps = config.masked_lm_layer_norm_eps or config.layer_norm_eps

    def dense(self, x, name):
        return x @ self.arrays[f"{name}/kernel"] + self.arrays[f"{name}/bias"]

    def norm(self, x, name, epsilon=None):
        gamma, beta = self.arrays[f"{name}/gamma"], self.arrays[f"{name}/beta"]
        epsilon = epsilon or self.config.layer_norm_eps
        return layer_norm(x, gamma, beta, epsilon)

    def embed(self, ids, segments, positions):
        tables = "bert/embeddings"
        words = self.arrays[f"{tables}/word_embeddings"][ids]
        types = self.arrays[f"{tables}/token_type_embeddings"][segments]
        places = self.arrays[f"{tables}/position_embeddings"][positions]
        return self.norm(words + types + places, f"{tables}/LayerNorm")

    def attend(self, x, mask, name):
        """Context [S, A] and probabilities [N, S, S] of one row."""
        heads = self.config.num_attention_heads
        query, key, value = (
            self.dense(x, f"{name}/self/{part}")
            for part in ("query", "key", "value")
        )
        size = query.shape[-1] // heads
        length = len(x)
        contexts, probabilities = [], []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = query[:, part] @ key[:, part].T / math.sqrt(size)
            for i in range(length):
                for j in range(length):
                    hidden_later = self.config.causal and j > i
                    if mask[j] == 0 or hidden_later:
                        scores[i, j] -= 10000.0
            probabilities.append(softmax(scores))
            contexts.append(probabilities[-1] @ value[:, part])
        return np.concatenate(contexts, -1), np.stack(probabilities)

    def block(self, x, mask, name):
        context, probabilities = self.attend(x, mask, f"{name}/attention")
        attended = self.dense(context, f"{name}/attention/output/dense")
        x = self.norm(x + attended, f"{name}/attention/output/LayerNorm")
        inner = self.act(self.dense(x, f"{name}/intermediate/dense"))
        outer = self.dense(inner, f"{name}/output/dense")
        return self.norm(x + outer, f"{name}/output/LayerNorm"), probabilities

    def read(self, x, name):
        """An LSTM's outputs [S, u] of tokens [S, H], from the first on."""
        kernel = self.arrays[f"{name}/kernel"]
        recurrent = self.arrays[f"{name}/recurrent_kernel"]
        bias = self.arrays[f"{name}/bias"]
        units = len(recurrent)
        state = cell = np.zeros(units)
        outputs = []
        for token in x:
            sums = token @ kernel + state @ recurrent + bias
            enter, forget, leave = (
                1 / (1 + np.exp(-sums[gate * units : (gate + 1) * units]))
                for gate in (0, 1, 3)
            )
            new = np.tanh(sums[2 * units : 3 * units])
            cell = forget * cell + enter * new
            state = leave * np.tanh(cell)
            outputs.append(state)
        return np.stack(outputs)

    def read_both_ways(self, x, mask):
        """A BiLSTM's outputs [S, H], 0 of padding, and the two last ones."""
        tokens = np.flatnonzero(mask)
        forward = self.read(x[tokens], "bert/bilstm/forward")
        backward = self.read(x[tokens[::-1]], "bert/bilstm/backward")
        outputs = np.zeros_like(x)
        outputs[tokens] = np.concatenate([forward, backward[::-1]], axis=1)
        return outputs, np.concatenate([forward[-1], backward[-1]])

    def encode_row(self, ids, mask, segments):
        positions = np.arange(len(ids))
        hidden = self.embed(ids, segments, positions)
        layers, probabilities = [hidden], []
        for i in range(self.config.num_hidden_layers):
            hidden, probs = self.block(hidden, mask, f"bert/encoder/layer_{i}")
            layers.append(hidden)
            probabilities.append(probs)
        # In a causal model the last token alone sees all the others.
        place = max(np.flatnonzero(mask)) if self.config.causal else 0
        pooled, output = hidden[place], hidden
        if self.config.bilstm:
            output, pooled = self.read_both_ways(hidden, mask)
        pooled = np.tanh(self.dense(pooled, "bert/pooler/dense"))
        return layers, probabilities, pooled, output

    def predict_words(self, hidden, positions):
        at = "cls/predictions"
        rows = self.dense(hidden[positions], f"{at}/transform/dense")
        rows = self.head_act(rows)
        rows = self.norm(rows, f"{at}/transform/LayerNorm", self.head_eps)
        words = self.arrays["bert/embeddings/word_embeddings"]
        return rows @ words.T + self.arrays[f"{at}/output_bias"]

    def predict_next(self, pooled):
        at = "cls/seq_relationship"
        weights = self.arrays[f"{at}/output_weights"]
        return pooled @ weights.T + self.arrays[f"{at}/output_bias"]

    def __call__(self, batch):
        """All outputs of the encoder and, given positions, of the heads."""
        rows = [
            self.encode_row(*row)
            for row in zip(
                batch["input_ids"],
                batch["input_mask"],
                batch["segment_ids"],
                strict=True,
            )
        ]
        layers = [np.stack(x) for x in zip(*(r[0] for r in rows), strict=True)]
        probs = [np.stack(x) for x in zip(*(r[1] for r in rows), strict=True)]
        outputs = {
            "sequence_output": np.stack([row[3] for row in rows]),
            "pooled_output": np.stack([row[2] for row in rows]),
            "all_encoder_layers": tuple(layers[1:]),
            "embedding_output": layers[0],
            "attention_probs": tuple(probs),
        }
        if "masked_lm_positions" in batch:
            outputs["masked_lm_logits"] = np.stack(
                [
                    self.predict_words(row[3], positions)
                    for row, positions in zip(
                        rows, batch["masked_lm_positions"], strict=True
                    )
                ]
            )
            outputs["next_sentence_logits"] = self.predict_next(
                outputs["pooled_output"]
            )
        return outputs


def pretraining_loss(outputs, batch):
    """Mean negative log likelihoods of both tasks (appendix A.2)."""
    words = np.log(softmax(outputs["masked_lm_logits"]))
    total = weight = 0.0
    for row, ids in enumerate(batch["masked_lm_ids"]):
        for place, true_id in enumerate(ids):
            w = batch["masked_lm_weights"][row, place]
            total -= w * words[row, place, true_id]
            weight += w
    follows = np.log(softmax(outputs["next_sentence_logits"]))
    labels = batch["next_sentence_labels"]
    nexts = -np.mean([follows[i, label] for i, label in enumerate(labels)])
    return total / (weight + 1e-5), nexts
