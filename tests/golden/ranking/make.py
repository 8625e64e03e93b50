"""Makes losses.npz and retrieval.json beside it; see README.md.

Needs torch, sentence-transformers and pytrec-eval-terrier, no TensorFlow.
"""

import json
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np
import pytrec_eval
import safetensors.torch
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses
from sentence_transformers.sentence_transformer.evaluation import (
    InformationRetrievalEvaluator,
)

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "sentence_transformers"
QUERIES = ["the cat", "a dog"]
# Lists of two and three documents, of which the first two are a pair.
DOCUMENTS = [
    ["the cat sat on the mat", "a dog ran"],
    ["the dog ran", "a cat sat", "the mat"],
]
LABELS = {
    "bce": [[1.0, 0.0], [0.75, 0.0]],
    "listnet": [[1.0, 0.0], [2.0, 0.5, 0.0]],
    "margin_mse": [[3.5, -1.25], [0.5, 0.25]],
}


def cross_encoder(folder: pathlib.Path) -> CrossEncoder:
    """The recorded CrossEncoder "plain", without dropout."""
    recorded = json.loads((MODEL / "cases.json").read_text(encoding="utf-8"))
    case = recorded["cross_encoders"]["plain"]
    (folder / "config.json").write_text(json.dumps(case["config.json"]))
    vocabulary = "\n".join(recorded["vocabulary"]) + "\n"
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    arrays = safetensors.torch.load_file(MODEL / "bert/model.safetensors")
    arrays = {f"bert.{key}": array for key, array in arrays.items()}
    dense = np.load(MODEL / "dense.npz")
    for part in ("weight", "bias"):
        array = torch.tensor(dense[f"classifier_1/{part}"])
        arrays[f"classifier.{part}"] = array
    safetensors.torch.save_file(
        arrays, folder / "model.safetensors", {"format": "pt"}
    )
    return CrossEncoder(str(folder), device="cpu").eval()


def record_losses(model: CrossEncoder) -> Iterator[tuple[str, np.ndarray]]:
    """Values, and gradients by scores and by weights in transformers' names."""
    computed: list[torch.Tensor] = []

    def keep(_: object, __: object, outputs: dict[str, torch.Tensor]) -> None:
        outputs["scores"].retain_grad()
        computed.append(outputs["scores"])

    model.register_forward_hook(keep)
    for name, labels in LABELS.items():
        computed.clear()
        pairs = [documents[:2] for documents in DOCUMENTS]
        if name == "bce":
            loss = losses.BinaryCrossEntropyLoss(model)
            flat = [sum(pairs, []), sum(labels, [])]
            inputs = [[q for q in QUERIES for _ in range(2)], flat[0]]
            value = loss(inputs, torch.tensor(flat[1]))
        elif name == "listnet":
            loss = losses.ListNetLoss(model)
            tensors = [torch.tensor(each) for each in labels]
            value = loss([QUERIES, DOCUMENTS], tensors)
        else:
            loss = losses.MarginMSELoss(model)
            columns = list(map(list, zip(*pairs, strict=True)))
            value = loss([QUERIES, *columns], torch.tensor(labels))
        model.zero_grad()
        value.backward()
        yield name, np.float64(value.item())
        found = [[t.detach(), t.grad] for t in computed]
        scores, gradients = (
            np.concatenate([each.numpy().ravel() for each in tensors])
            for tensors in zip(*found, strict=True)
        )
        if name == "margin_mse":
            # The first documents of all rows come first.
            scores, gradients = (
                each.reshape(2, -1).T.ravel() for each in (scores, gradients)
            )
        yield f"{name}.scores", scores
        yield f"{name}.gradient", gradients
        for key, weight in model.model.named_parameters():
            yield f"{name}/{key}", weight.grad.numpy()


def record_retrieval() -> dict:
    """Scores of random vectors, by both programs.

    sentence-transformers takes relevance as 0 or 1, pytrec_eval (BEIR, MTEB)
    as gains.
    """
    random = np.random.default_rng(7)
    corpus = random.normal(size=(230, 12)).astype(np.float32)
    queries = random.normal(size=(17, 12)).astype(np.float32)
    similar = queries @ corpus.T
    relevance: dict[str, dict[str, int]] = {}
    for number in range(len(queries)):
        # Some of the best documents, some of no rank, and one without gain.
        best = np.argsort(-similar[number])[random.integers(0, 30, 3)]
        others = random.choice(len(corpus), 2, replace=False)
        chosen = dict.fromkeys([*best.tolist(), *others.tolist()])
        relevance[f"q{number}"] = {
            f"d{each}": int(random.integers(1, 4)) for each in chosen
        }
    names = {f"d{number}": "" for number in range(len(corpus))}
    evaluator = InformationRetrievalEvaluator(
        {name: name for name in relevance},
        names,
        {name: set(each) for name, each in relevance.items()},
        score_functions={
            "cosine": lambda a, b: (
                torch.nn.functional.normalize(a)
                @ torch.nn.functional.normalize(b).T
            )
        },
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[1, 3, 5, 10],
        precision_recall_at_k=[1, 3, 5, 10],
        map_at_k=[100],
    )

    class Vectors:
        """Stands for a model."""

        def encode_query(self, texts: list[str], **_: object) -> torch.Tensor:
            return torch.tensor(queries[[int(text[1:]) for text in texts]])

    found = evaluator.compute_all_metrics(
        Vectors(), corpus_embeddings=torch.tensor(corpus)
    )["cosine"]
    binary = {
        f"{name[:-2]}@{k}": float(value)
        for name, values in found.items()
        for k, value in values.items()
    }
    cosines = similar / np.linalg.norm(corpus, axis=1)
    run = {
        f"q{number}": {f"d{n}": float(x) for n, x in enumerate(row)}
        for number, row in enumerate(cosines)
    }
    measures = {"ndcg_cut.10", "map_cut.100", "recall.10", "P.10"}
    graded = pytrec_eval.RelevanceEvaluator(relevance, measures).evaluate(run)
    names = ("ndcg_cut_10", "map_cut_100", "recall_10", "P_10")
    return {
        "corpus": corpus.round(6).tolist(),
        "queries": queries.round(6).tolist(),
        "relevance": relevance,
        "sentence_transformers": binary,
        "pytrec_eval": {
            name: float(np.mean([row[name] for row in graded.values()]))
            for name in names
        },
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorded = dict(record_losses(cross_encoder(pathlib.Path(folder))))
    np.savez_compressed(HERE / "losses.npz", **recorded)
    text = json.dumps(record_retrieval())
    (HERE / "retrieval.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
