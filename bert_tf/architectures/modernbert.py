"""ModernBERT (Warner et al. 2024): its configuration and its arrays.

Source: transformers 5.23.0, modeling_modernbert.py. Every head begins with a
dense layer and a layer norm of its own; for classes and choices these are the
pooler here.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bert_tf.architectures.bert import NAMES as BERT
from bert_tf.architectures.parts import (
    CLASSIFIER,
    MASKED_LM,
    MULTIPLE_CHOICE,
    POOLER,
    SPAN,
    TOKEN_CLASSIFIER,
    Architecture,
    HuggingFaceForm,
    Kind,
    Names,
    Part,
    task_classes,
)
from bert_tf.config import ALL_DENSE, QUERY_VALUE, BertConfig
from bert_tf.errors import UserError
from bert_tf.recipe import setting
from bert_tf.text.byte_bpe import ByteLevelBpe


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(
    BertConfig,
    defaults={
        "hidden_act": "gelu_erf",
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
    },
):
    """Configuration of a ModernBERT (Warner et al. 2024, sections 2.1 and 2.2).

    Pre-norm blocks with gated feed-forward layers and rotary positions, no
    biases, no segments. Some layers attend to all tokens, the others to a
    window. max_position_embeddings is the longest input; hidden_dropout_prob
    applies to the embeddings, attention_probs_dropout_prob also to the output
    of attention.
    """

    model_type: ClassVar[str] = "modernbert"
    title: ClassVar[str] = "ModernBERT"
    has_pooler: ClassVar[bool] = False
    has_biases: ClassVar[bool] = False
    has_shifts: ClassVar[bool] = False
    states_pooling: ClassVar[bool] = True
    sizes: ClassVar[Mapping[str, tuple[int, int]]] = {
        "base": (22, 768),
        "large": (28, 1024),
    }

    type_vocab_size: int = setting(
        0,
        "number of segments: none",
        at_least=0,
        at_most=lambda config: 0,
        why="a ModernBERT has no segments",
    )
    global_attn_every_n_layers: int = setting(
        3, "distance between layers that attend to all tokens", at_least=1
    )
    local_attention: int = setting(
        128,
        "tokens in the window of the other layers, half on each side",
        at_least=2,
    )
    global_rope_theta: float = setting(
        160000.0, "base of the rotations in layers with all tokens", above=0
    )
    local_rope_theta: float = setting(
        10000.0, "base of the rotations in layers with a window", above=0
    )
    mlp_dropout: float = setting(
        0.0, "dropout in the feed-forward layers", at_least=0, below=1
    )
    classifier_dropout: float = setting(
        0.0, "dropout before the last layer of heads", at_least=0, below=1
    )

    def rotations(self, layer: int) -> tuple[float, int | None]:
        """The base of a layer's rotations, and its window; None for all."""
        if layer % self.global_attn_every_n_layers:
            return self.local_rope_theta, self.local_attention // 2
        return self.global_rope_theta, None

    @property
    def qkv_size(self) -> int:
        """The width of queries, keys and values together."""
        return 3 * self.attention_size

    @property
    def gated_size(self) -> int:
        """The width of the inner layer and its gate together."""
        return 2 * self.intermediate_size

    @property
    def pooled_dropout(self) -> float:
        """Dropout on the pooled output, before classes and choices."""
        return self.classifier_dropout

    @property
    def span_dropout(self) -> float:
        """Dropout on the sequence output, before spans."""
        return self.classifier_dropout

    @classmethod
    def from_size(cls, size: str, vocab_size: int) -> Self:
        """The configuration of a size, as `BertConfig.from_size`.

        The inner layers of base are 1152 wide, those of large 2624.
        """
        config = super().from_size(size, vocab_size)
        inner = {"base": 1152, "large": 2624}
        if size in inner:
            return dataclasses.replace(config, intermediate_size=inner[size])
        return config


_GLOBAL, _LOCAL = "full_attention", "sliding_attention"


def _flat_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces layer_types and rope_parameters by the keys of older files.

    Raises:
      UserError: the layers that attend to all tokens are not evenly spaced, or
        the positions are scaled.
    """
    flat = dict(values)
    kinds = flat.pop("layer_types", None)
    if kinds:
        spacing = [i for i, kind in enumerate(kinds) if kind == _GLOBAL]
        every = spacing[1] if len(spacing) > 1 else len(kinds)
        expected = [_LOCAL if i % every else _GLOBAL for i in range(len(kinds))]
        if kinds != expected:
            raise UserError(
                f"layer_types is {kinds}; it takes {_GLOBAL} in the first "
                f"layer and then at equal distances, {_LOCAL} between."
            )
        flat["global_attn_every_n_layers"] = every
    for kind, rope in (flat.pop("rope_parameters", None) or {}).items():
        if rope.get("rope_type", "default") != "default":
            raise UserError(
                f"rope_parameters: rope_type is {rope['rope_type']!r}; "
                "'default' can be read."
            )
        key = "global_rope_theta" if kind == _GLOBAL else "local_rope_theta"
        if "rope_theta" in rope:
            flat[key] = rope["rope_theta"]
    return flat


_HIDDEN = "hidden_size"
_DENSE, _SCALE = Kind.KERNEL, Kind.SCALE
# Of the parts of a layer.
_LAYER = (
    (_SCALE, "attention/LayerNorm", (_HIDDEN,), "attn_norm"),
    (_DENSE, "attention/self/qkv", (_HIDDEN, "qkv_size"), "attn.Wqkv"),
    (_DENSE, "attention/output/dense", ("attention_size", _HIDDEN), "attn.Wo"),
    (_SCALE, "LayerNorm", (_HIDDEN,), "mlp_norm"),
    (_DENSE, "intermediate/dense", (_HIDDEN, "gated_size"), "mlp.Wi"),
    (_DENSE, "output/dense", ("intermediate_size", _HIDDEN), "mlp.Wo"),
)


def _norm(ours: str, theirs: str) -> Part:
    return Part(_SCALE, f"{ours}/LayerNorm", (_HIDDEN,), theirs)


def _transform(ours: str) -> tuple[Part, ...]:
    """The first parts of a head."""
    square = (_HIDDEN, _HIDDEN)
    dense = Part(_DENSE, f"{ours}/dense", square, "head.dense")
    return dense, _norm(ours, "head.norm")


def _last(head: str, theirs: str = "classifier") -> Part:
    """The last part of a head, which is BERT's."""
    return BERT.heads[head][-1].renamed(theirs)


NAMES = Names(
    embeddings=(
        BERT.embeddings[0].renamed("model.embeddings.tok_embeddings"),
        _norm("bert/embeddings", "model.embeddings.norm"),
    ),
    layer=tuple(
        Part(
            kind,
            f"bert/encoder/layer_{{}}/{ours}",
            sizes,
            f"model.layers.{{}}.{theirs}",
            in_first=theirs != "attn_norm",
        )
        for kind, ours, sizes, theirs in _LAYER
    ),
    final=(_norm("bert/encoder", "model.final_norm"),),
    heads={
        POOLER: _transform("bert/pooler"),
        MASKED_LM: (
            *_transform("cls/predictions/transform"),
            _last(MASKED_LM, "decoder.bias"),
        ),
        CLASSIFIER: (_last(CLASSIFIER),),
        SPAN: (*_transform("cls/squad/transform"), _last(SPAN)),
        TOKEN_CLASSIFIER: (
            *_transform("cls/token_classification/transform"),
            _last(TOKEN_CLASSIFIER),
        ),
        MULTIPLE_CHOICE: (_last(MULTIPLE_CHOICE),),
    },
    hugging_face=HuggingFaceForm(
        body="ModernBertModel",
        prefix="model.",
        # transformers 5.23.0, ModernBertConfig.
        keys={
            "vocab_size": ("vocab_size", 50368),
            "hidden_size": (_HIDDEN, 768),
            "num_hidden_layers": ("num_hidden_layers", 22),
            "num_attention_heads": ("num_attention_heads", 12),
            "intermediate_size": ("intermediate_size", 1152),
            "hidden_activation": ("hidden_act", "gelu"),
            "embedding_dropout": ("hidden_dropout_prob", 0.0),
            "attention_dropout": ("attention_probs_dropout_prob", 0.0),
            "max_position_embeddings": ("max_position_embeddings", 8192),
            "initializer_range": ("initializer_range", 0.02),
            "norm_eps": ("layer_norm_eps", 1e-5),
            # Ours are theirs.
            **{
                name: (name, getattr(ModernBertConfig, name))
                for name in (
                    *("global_attn_every_n_layers", "local_attention"),
                    *("global_rope_theta", "local_rope_theta"),
                    *("mlp_dropout", "classifier_dropout"),
                    "classifier_pooling",
                )
            },
        },
        fixed={
            "norm_bias": False,
            "attention_bias": False,
            "mlp_bias": False,
            "classifier_bias": False,
            "decoder_bias": True,
            "classifier_activation": "gelu",
            "rope_scaling": None,
            "quantization_config": None,
        },
        classes={
            "ModernBertModel": (),
            "ModernBertForMaskedLM": (MASKED_LM,),
            **task_classes("ModernBert"),
        },
        words_copy="decoder.weight",
        bias="decoder.bias",
        bias_copy="",
        targets={
            QUERY_VALUE: ("Wqkv",),
            ALL_DENSE: ("Wqkv", "Wo", "Wi"),
        },
        flat_keys=_flat_keys,
    ),
)
MODERNBERT = Architecture(
    config=ModernBertConfig,
    names=NAMES,
    tokenizer=ByteLevelBpe,
    encoder="bert_tf.encoders.modernbert.ModernBertEncoder",
)
