"""Makes losses.npz, gradients.npz and hard_negatives.npz; see README.md.

Needs torch, datasets and sentence-transformers, no TensorFlow.
"""

import json
import pathlib
import shutil
import tempfile

import numpy as np
import safetensors.torch
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.losses.matryoshka import shrink
from sentence_transformers.util import mine_hard_negatives
from texts import TEXTS

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "sentence_transformers"
SYMMETRIC = {
    "directions": ("query_to_doc", "doc_to_query"),
    "partition_mode": "per_direction",
}
# Name to class, arguments, texts a row, and the shape of the targets; the name
# ends in what distinguishes cases of the same loss.
CASES = {
    "multiple_negatives": (losses.MultipleNegativesRankingLoss, {}, 2, None),
    "multiple_negatives/hard": (
        *(losses.MultipleNegativesRankingLoss, {}, 4, None),
    ),
    "symmetric_multiple_negatives": (
        *(losses.MultipleNegativesRankingLoss, SYMMETRIC, 2, None),
    ),
    "symmetric_multiple_negatives/hard": (
        *(losses.MultipleNegativesRankingLoss, SYMMETRIC, 3, None),
    ),
    "cosent": (losses.CoSENTLoss, {}, 2, "scores"),
    "cosent/equal": (losses.CoSENTLoss, {}, 2, "ones"),
    "contrastive": (losses.ContrastiveLoss, {}, 2, "labels"),
    "online_contrastive": (losses.OnlineContrastiveLoss, {}, 2, "labels"),
    "online_contrastive/positives": (
        *(losses.OnlineContrastiveLoss, {}, 2, "ones"),
    ),
    "online_contrastive/negatives": (
        *(losses.OnlineContrastiveLoss, {}, 2, "zeros"),
    ),
    "triplet": (losses.TripletLoss, {}, 3, None),
    "teacher_cosine": (losses.EmbedDistillLoss, {}, 1, "vectors"),
    "teacher_mse": (
        *(losses.EmbedDistillLoss, {"distance_metric": "mse"}, 1, "vectors"),
    ),
    "margin_mse": (losses.MarginMSELoss, {}, 4, (6, 3)),
    "margin_mse/margins": (losses.MarginMSELoss, {}, 4, (6, 2)),
    "kl_divergence": (losses.DistillKLDivLoss, {}, 4, (6, 3)),
}
DIMS = (8, 5, 2)
# Losses of texts, of which the first one is also summed over sizes.
OF_TEXTS = ("multiple_negatives", "cosent", "teacher_mse")
IN_MATRYOSHKA = ("multiple_negatives/hard", "cosent", "triplet", "margin_mse")


def targets_of(kind: object, count: int, width: int) -> np.ndarray | None:
    """The targets of rows by the kind that a case names."""
    random = np.random.default_rng(5)
    if kind is None:
        return None
    if kind == "scores":
        return np.round(random.random(count), 1)
    if kind in ("ones", "zeros"):
        return np.full(count, float(kind == "ones"))
    if kind == "labels":
        return np.arange(count) % 2.0
    shape = (count, width) if kind == "vectors" else (count, kind[1])
    return random.normal(size=shape)


def record_losses() -> dict[str, np.ndarray]:
    """Losses of random vectors and their gradients, in float64."""
    random = np.random.default_rng(3)
    found: dict[str, np.ndarray] = {}
    for name, (kind, arguments, count, targets) in CASES.items():
        vectors = random.normal(size=(6, count, 8)).astype(np.float32)
        goal = targets_of(targets, 6, 8)
        found[f"{name}:vectors"] = vectors
        if goal is not None:
            found[f"{name}:targets"] = goal
        loss = kind(torch.nn.Identity(), **arguments)
        labels = None if goal is None else torch.tensor(goal)
        for size in (0, *DIMS) if name in IN_MATRYOSHKA else (0,):
            given = torch.tensor(vectors.astype(np.float64), requires_grad=True)
            columns = [given[:, n] for n in range(count)]
            if size:
                columns = [shrink(column, size) for column in columns]
            if kind is losses.EmbedDistillLoss:
                labels = [torch.tensor(goal)]
            value = loss.compute_loss_from_embeddings(columns, labels)
            value.backward()
            suffix = f"@{size}" if size else ""
            found[f"{name}:value{suffix}"] = value.detach().numpy()
            found[f"{name}:gradient{suffix}"] = given.grad.numpy()
    return found


def small_model(folder: pathlib.Path) -> SentenceTransformer:
    """The recorded folder "dense" in float64, without dropout."""
    recorded = json.loads((MODEL / "cases.json").read_text(encoding="utf-8"))
    case = recorded["cases"]["dense"]
    inner = folder / case["inner"]
    shutil.copytree(MODEL / case["base"], inner, dirs_exist_ok=True)
    vocabulary = "\n".join(recorded["vocabulary"]) + "\n"
    (inner / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    for path, values in case["files"].items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(values))
    dense = np.load(MODEL / "dense.npz")
    for path, names in case["weights"].items():
        arrays = {k: torch.tensor(dense[name]) for k, name in names.items()}
        safetensors.torch.save_file(
            arrays, folder / path / "model.safetensors", {"format": "pt"}
        )
    return SentenceTransformer(str(folder), device="cpu").double().eval()


def record_gradients(model: SentenceTransformer) -> dict[str, np.ndarray]:
    """Losses of texts, and their gradients by all weights, in float64."""
    found: dict[str, np.ndarray] = {}
    width = model.get_embedding_dimension()
    for name in OF_TEXTS:
        kind, arguments, count, targets = CASES[name]
        goal = targets_of(targets, 4, width)
        labels = None if goal is None else torch.tensor(goal)
        features = [model.tokenize(column) for column in TEXTS[:count]]
        for suffix in ("", "@matryoshka"):
            loss = kind(model, **arguments)
            if suffix and name != OF_TEXTS[0]:
                continue
            if suffix:
                loss = losses.MatryoshkaLoss(model, loss, (width, 3))
            model.zero_grad()
            value = loss([dict(each) for each in features], labels)
            value.backward()
            found[f"{name}:value{suffix}"] = value.detach().numpy()
            for key, weight in model.named_parameters():
                if weight.grad is not None:
                    gradient = weight.grad.numpy().astype(np.float32)
                    found[f"{name}:{key}{suffix}"] = gradient
        if goal is not None:
            found[f"{name}:targets"] = goal
    return found


class Vectors:
    """Stands for a model whose texts are numbers of vectors."""

    device = torch.device("cpu")

    def __init__(self, vectors: dict[str, np.ndarray]):
        self.vectors = vectors

    def encode_query(self, texts: list[str], **_: object) -> np.ndarray:
        rows = np.stack([self.vectors[text] for text in texts])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_document = encode_query

    def similarity(self, a: object, b: object) -> torch.Tensor:
        return torch.as_tensor(a) @ torch.as_tensor(b).T

    def similarity_pairwise(self, a: object, b: object) -> torch.Tensor:
        return (torch.as_tensor(a) * torch.as_tensor(b)).sum(1)


def record_hard_negatives() -> dict[str, np.ndarray]:
    """The negatives of 60 rows, of which some share anchors or positives."""
    random = np.random.default_rng(11)
    anchors = [f"a{n // 2 if n < 20 else n}" for n in range(60)]
    positives = [f"p{n - 1 if n % 7 == 0 and n else n}" for n in range(60)]
    centers = {name: random.normal(size=8) for name in dict.fromkeys(anchors)}
    vectors = {n: v.astype(np.float32) for n, v in centers.items()}
    for anchor, positive in zip(anchors, positives, strict=True):
        noise = random.normal(size=8)
        vectors.setdefault(
            positive, (centers[anchor] + noise).astype(np.float32)
        )
    found = {
        "vectors": np.stack(
            [
                [vectors[a], vectors[p]]
                for a, p in zip(anchors, positives, strict=True)
            ]
        ),
        "anchors": np.array(anchors),
        "positives": np.array(positives),
    }
    for name, settings in {
        "plain": {},
        "skipping": {"range_min": 2},
        "margin": {"relative_margin": 0.3},
        "all": {"range_min": 1, "relative_margin": 0.2, "max_score": 0.4},
    }.items():
        mined = mine_hard_negatives(
            Dataset.from_dict({"anchor": anchors, "positive": positives}),
            Vectors(vectors),
            num_negatives=3,
            output_format="n-tuple",
            verbose=False,
            **settings,
        )
        columns = [mined[column] for column in mined.column_names]
        found[name] = np.array(columns).T
    return found


def main() -> None:
    np.savez_compressed(HERE / "losses.npz", **record_losses())
    with tempfile.TemporaryDirectory() as folder:
        found = record_gradients(small_model(pathlib.Path(folder)))
    np.savez_compressed(HERE / "gradients.npz", **found)
    np.savez_compressed(HERE / "hard_negatives.npz", **record_hard_negatives())


if __name__ == "__main__":
    main()
