"""What tests need to know of each architecture, beside what it computes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_tf.architecture_list import find_architecture
from bert_tf.checkpoints import MASKED_LM, REPLACED_TOKENS
from bert_tf.config import BertConfig
from bert_tf.text.tokenizer_protocol import TokenizerData
from bert_tf.text.wordpiece import WordPiece
from tests.contracts import made_up_architecture
from tests.golden.common import SIZES
from tests.records_corpus import VOCABULARY
from tests.relatives import (
    ALBERT_UNIGRAM,
    BYTES,
    LETTERS,
    UNIGRAM,
    Golden,
)


@dataclasses.dataclass(frozen=True)
class Case:
    """An architecture.

    Attributes:
      name: its model_type.
      targets: what peft calls the kernels that lora_on=all_dense updates.
      whole: what peft calls the modules that are trained whole, for classes
        and for choices.
      tokenizer: of as many tokens as `config` has.
      records_tokenizer: that of the records that it is pre-trained on.
      objective: what it is pre-trained for.
      records: further settings of those records.
      head: what a model folder has of that.
      golden: whether tests/golden has models of transformers.
      google_tf1: a part of the line that refuses Google's layout; empty where
        it is written.
      pruned: a part of the line that refuses pruning; empty where it is done.
      changes: to the sizes of `config`.
      sizes: by name: layers, hidden size, heads, intermediate size, embedding
        size.
      refused: edits of config.json of a class of transformers, each with a
        part of the line that refuses it.
    """

    name: str
    targets: tuple[str, ...]
    whole: tuple[tuple[str, ...], tuple[str, ...]]
    tokenizer: TokenizerData = LETTERS
    records_tokenizer: TokenizerData = WordPiece(VOCABULARY)
    objective: str = "masked_lm"
    records: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    head: str = MASKED_LM
    golden: bool = True
    google_tf1: str = ""
    pruned: str = ""
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict
    )
    refused: tuple[tuple[str, str, str, str], ...] = ()

    def config(self, **changes: Any) -> BertConfig:
        """A configuration of the sizes of the models in tests/golden."""
        values = {**SIZES, **self.changes, **changes}
        kind: type[BertConfig] = find_architecture(self.name, "tests").config
        return kind(**values)

    @property
    def recorded(self) -> Golden:
        """What transformers computed."""
        return Golden(self.name)


_OF_BERT = ("query", "key", "value", "intermediate.dense", "output.dense")
CASES = {
    case.name: case
    for case in (
        Case(
            name="bert",
            targets=_OF_BERT,
            whole=(("classifier", "pooler"), ("classifier", "pooler")),
            sizes={
                "tiny": (2, 128, 2, 512, 128),
                "base": (12, 768, 12, 3072, 768),
                "large": (24, 1024, 16, 4096, 1024),
                "3/24/2": (3, 24, 2, 96, 24),
            },
            refused=(
                ("BertModel", '"bert"', '"xlnet"', "model_type is 'xlnet'"),
                ("BertModel", '"bert"', '"electra"', "do not fit"),
                (
                    "BertModel",
                    '"gelu"',
                    '"silu"',
                    "hidden_act='silu': takes one of gelu",
                ),
            ),
        ),
        Case(
            name="distilbert",
            targets=("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
            whole=(
                ("classifier", "pre_classifier"),
                ("classifier", "pre_classifier"),
            ),
            google_tf1="model_type is distilbert: ",
            sizes={"base": (12, 768, 12, 3072, 768)},
            refused=(
                (
                    "DistilBertModel",
                    '"distilbert"',
                    '"xlnet"',
                    "model_type is 'xlnet'",
                ),
                ("DistilBertModel", '"distilbert"', '"bert"', "do not fit"),
                (
                    "DistilBertModel",
                    '"n_layers": 2',
                    '"n_layers": 3',
                    "do not fit",
                ),
                (
                    "DistilBertModel",
                    '"gelu"',
                    '"silu"',
                    "activation='silu': takes one of gelu",
                ),
            ),
        ),
        Case(
            name="electra",
            targets=_OF_BERT,
            whole=(("classifier",), ("classifier", "sequence_summary")),
            objective="replaced_tokens",
            head=REPLACED_TOKENS,
            changes={"embedding_size": 6},
            # Clark et al. 2020, table 6: discriminators.
            sizes={
                "small": (12, 256, 4, 1024, 128),
                "base": (12, 768, 12, 3072, 768),
                "large": (24, 1024, 16, 4096, 1024),
                "3/24/2": (3, 24, 2, 96, 24),
            },
            refused=(
                ("ElectraForPreTraining", '"electra"', '"bert"', "do not fit"),
                (
                    "ElectraForPreTraining",
                    '"embedding_size": 6',
                    '"embedding_size": 8',
                    "do not fit",
                ),
                (
                    "ElectraForPreTraining",
                    '"num_hidden_layers": 2',
                    '"num_hidden_layers": 3',
                    "do not fit",
                ),
                (
                    "ElectraForPreTraining",
                    '"summary_type": "first"',
                    '"summary_type": "mean"',
                    "summary_type is",
                ),
                (
                    "ElectraForPreTraining",
                    "ElectraForPreTraining",
                    "ElectraForMaskedLM",
                    "the weights hold no masked_lm",
                ),
            ),
        ),
        Case(
            name="roberta",
            targets=_OF_BERT,
            whole=(("classifier",), ("classifier", "pooler")),
            tokenizer=BYTES,
            records_tokenizer=BYTES,
            records={"sequences": "full_sentences"},
            changes={"vocab_size": len(BYTES)},
            google_tf1="model_type is roberta: ",
            # Liu et al. 2019, section 3.1 and appendix A.
            sizes={
                "base": (12, 768, 12, 3072, 768),
                "large": (24, 1024, 16, 4096, 1024),
            },
            refused=(
                ("RobertaForMaskedLM", '"roberta"', '"bert"', "do not fit"),
                (
                    "RobertaModel",
                    '"pad_token_id": 1',
                    '"pad_token_id": 0',
                    "pad_token_id is 0; 1 can be read",
                ),
                (
                    "RobertaModel",
                    '"max_position_embeddings": 12',
                    '"max_position_embeddings": 10',
                    "do not fit",
                ),
            ),
        ),
        Case(
            name="xlm-roberta",
            targets=_OF_BERT,
            whole=(("classifier",), ("classifier", "pooler")),
            tokenizer=UNIGRAM,
            records_tokenizer=UNIGRAM,
            records={"sequences": "full_sentences"},
            google_tf1="xlm-roberta: google-research/bert has no names",
            # Conneau et al. 2020, section 3.
            sizes={
                "base": (12, 768, 12, 3072, 768),
                "large": (24, 1024, 16, 4096, 1024),
            },
            refused=(
                ("XLMRobertaForMaskedLM", '"xlm-roberta"', '"bert"', "fit"),
            ),
        ),
        Case(
            name="albert",
            targets=(
                *("query", "key", "value", "attention.dense"),
                *("ffn", "ffn_output"),
            ),
            whole=(("classifier", "pooler"), ("classifier", "pooler")),
            tokenizer=ALBERT_UNIGRAM,
            records_tokenizer=ALBERT_UNIGRAM,
            objective="masked_lm_sentence_order",
            records={
                "sequences": "sentence_order",
                "whole_word_mask": True,
                "masked_ngram_length": 3,
            },
            pruned="layers share their weights",
            changes={
                "embedding_size": 6,
                "num_hidden_layers": 3,
                "num_hidden_groups": 2,
                "inner_group_num": 2,
            },
            # README of google-research/albert.
            sizes={
                "base": (12, 768, 12, 3072, 128),
                "large": (24, 1024, 16, 4096, 128),
                "xlarge": (24, 2048, 16, 8192, 128),
                "xxlarge": (12, 4096, 64, 16384, 128),
            },
            refused=(
                ("AlbertModel", '"albert"', '"bert"', "do not fit"),
                (
                    "AlbertModel",
                    '"embedding_size": 6',
                    '"embedding_size": 8',
                    "embeddings as wide as the layers, 8, are not projected",
                ),
                (
                    "AlbertForPreTraining",
                    '"num_hidden_groups": 2',
                    '"num_hidden_groups": 4',
                    "num_hidden_groups is 4",
                ),
            ),
        ),
        Case(
            name="modernbert",
            targets=("Wqkv", "Wo", "Wi"),
            whole=(("classifier", "head"), ("classifier", "head")),
            tokenizer=BYTES,
            records_tokenizer=BYTES,
            records={
                "sequences": "document_sentences",
                "masked_lm_prob": 0.3,
                "max_predictions_per_seq": 5,
            },
            changes={
                "vocab_size": len(BYTES),
                "num_hidden_layers": 4,
                "local_attention": 4,
            },
            google_tf1="modernbert: google-research/bert has no names",
            # Warner et al. 2024, section 2.1.2.
            sizes={
                "base": (22, 768, 12, 1152, 768),
                "large": (28, 1024, 16, 2624, 1024),
            },
            refused=(
                (
                    "ModernBertModel",
                    '"norm_bias": false',
                    '"norm_bias": true',
                    "norm_bias is True; False can be read",
                ),
                (
                    "ModernBertModel",
                    '"rope_type": "default"',
                    '"rope_type": "yarn"',
                    "rope_type is 'yarn'",
                ),
                (
                    "ModernBertModel",
                    '"full_attention",',
                    '"sliding_attention",',
                    "layer_types is",
                ),
            ),
        ),
        Case(
            name=made_up_architecture.NAME,
            targets=(
                *("query", "key", "value", "attended"),
                *("gate", "inner", "outer"),
            ),
            whole=(("head_classifier",), ("head_multiple_choice",)),
            golden=False,
            google_tf1="model_type is mosaic: ",
            pruned="layers share their weights",
            changes={"num_hidden_layers": 6, "windows": (0, 2, 1)},
            sizes={"base": (12, 768, 12, 3072, 768)},
        ),
    )
}
