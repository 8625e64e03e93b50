"""Inference: loaded models, files of texts, vectors, search and exports."""
