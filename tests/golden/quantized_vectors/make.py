"""Makes vectors.npz beside it with sentence-transformers 6.2.0.

.venv-peers/bin/python tests/golden/quantized_vectors/make.py
"""

import pathlib

import numpy as np
from sentence_transformers import SimilarityFunction
from sentence_transformers.util import quantize_embeddings

random = np.random.default_rng(5)
# Of a number all are equal, others are 0; the width is no multiple of 8.
vectors = random.normal(size=(12, 11)).astype(np.float32)
vectors[:, 3] = 0.25
vectors[2] = 0
calibration = random.normal(size=(9, 11)).astype(np.float32)
arrays = {"vectors": vectors, "calibration": calibration}
for precision in ("int8", "uint8", "binary", "ubinary"):
    arrays[precision] = quantize_embeddings(vectors, precision)
    arrays[f"calibrated {precision}"] = quantize_embeddings(
        vectors, precision, calibration_embeddings=calibration
    )
for name in ("cosine", "dot", "euclidean", "manhattan"):
    function = SimilarityFunction.to_similarity_fn(name)
    arrays[name] = function(vectors, calibration).numpy()
np.savez_compressed(pathlib.Path(__file__).with_name("vectors.npz"), **arrays)
