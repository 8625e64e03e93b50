"""Models for MTEB's `evaluate`, by its protocols and without importing it.

mteb 2.26, models/models_protocols.py.
"""

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bert_tf.families.data.similarity import COSINE
from bert_tf.inference.load import LoadedModel, load
from bert_tf.inference.rank import is_cross_encoder, pair_scores

# Batches of a torch DataLoader, with the texts as "text".
Batches = Iterable[Mapping[str, Any]]


def mteb_model(
    model: str | os.PathLike | LoadedModel,
) -> "MtebEncoder | MtebCrossEncoder":
    """Returns a model that MTEB evaluates on any of its tasks of text.

        tasks = mteb.get_tasks(["STSBenchmark"])
        mteb.evaluate(bert_tf.mteb_model("hub/minilm"), tasks)

    Args:
      model: a model of vectors, or a cross-encoder for tasks of reranking, a
        folder or loaded.

    Raises:
      UserError: the folder has no model of texts.
    """
    opened = model if isinstance(model, LoadedModel) else load(model)
    kind = MtebCrossEncoder if is_cross_encoder(opened) else MtebEncoder
    return kind(opened)


class _MtebModel:
    """Base of both kinds.

    Attributes:
      model: the loaded model.
    """

    def __init__(self, model: LoadedModel):
        self.model = model

    def _meta(self, kind: str, **values: Any) -> Any:
        """Returns MTEB's description, by which it stores results."""
        # Only MTEB reads it, which is not installed with this package.
        from mteb.models import ModelMeta

        facts, folder = self.model.facts, self.model.folder
        digest = hashlib.blake2b(digest_size=8)
        for path in sorted(folder.rglob("*")):
            # Another training in the same folder is another revision.
            status = path.stat()
            name = path.relative_to(folder)
            digest.update(f"{name} {status.st_size} {status.st_mtime}".encode())
        return ModelMeta.create_empty(
            {
                "name": f"local/{folder.name}",
                "revision": digest.hexdigest(),
                "framework": ["TensorFlow"],
                "model_type": [kind],
                "n_parameters": facts["num_parameters"],
                "max_tokens": facts["max_seq_length"],
                **values,
            }
        )


class MtebEncoder(_MtebModel):
    """A model of vectors (MTEB's EncoderProtocol); see `mteb_model`."""

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model."""
        modules = self.model.served.modules
        similarity = (modules.similarity if modules else None) or COSINE
        return self._meta("dense", similarity_fn_name=similarity)

    def encode(
        self,
        inputs: Batches,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> np.ndarray:
        """Computes the vectors of texts, float32 [N, D].

        Queries and documents have their prompts; see
        `LoadedModel.encode_query` and `encode_document`.
        """
        del task_metadata, hf_split, hf_subset, options
        kind = getattr(prompt_type, "value", prompt_type)
        encode = {
            "query": self.model.encode_query,
            "document": self.model.encode_document,
        }.get(kind, self.model.encode)
        return encode(_texts(inputs))

    def similarity(
        self, embeddings1: np.ndarray, embeddings2: np.ndarray
    ) -> np.ndarray:
        """Computes the similarities of all pairs, float32 [A, B]."""
        return self.model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(
        self, embeddings1: np.ndarray, embeddings2: np.ndarray
    ) -> np.ndarray:
        """Computes the similarities of N pairs, float32 [N]."""
        pairs = zip(embeddings1, embeddings2, strict=True)
        found = [self.model.similarity(*pair)[0, 0] for pair in pairs]
        return np.array(found, np.float32)


class MtebCrossEncoder(_MtebModel):
    """A cross-encoder (MTEB's CrossEncoderProtocol); see `mteb_model`."""

    @property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model."""
        return self._meta("cross-encoder")

    def predict(
        self,
        inputs1: Batches,
        inputs2: Batches,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> np.ndarray:
        """Computes the scores of N pairs, float32 [N]."""
        del task_metadata, hf_split, hf_subset, prompt_type, options
        queries, documents = map(_numbered, (inputs1, inputs2))
        pairs = np.stack([queries[1], documents[1]], axis=1)
        return pair_scores(self.model, queries[0], documents[0], pairs)


def _texts(inputs: Batches) -> Iterator[str]:
    """Yields the texts of all batches."""
    return itertools.chain.from_iterable(batch["text"] for batch in inputs)


def _numbered(inputs: Batches) -> tuple[list[str], list[int]]:
    """Returns the different texts, and the number of each text among them."""
    numbers: dict[str, int] = {}
    found = [numbers.setdefault(text, len(numbers)) for text in _texts(inputs)]
    return [*numbers], found
