"""Makes the golden data beside it; see README.md.

Needs torch, transformers, sentence-transformers and safetensors, no TensorFlow.
"""

import json
import pathlib
import shutil
import string
import tempfile

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from torch import nn
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

HERE = pathlib.Path(__file__).parent
H, D = 16, 6
VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] [unused0] [unused1] the cat sat on mat a "
    "dog ran query : ##s cafe . , ! i am for search ing ##ing q d [ ]"
).split()
TEXTS = [
    "the cat sat on the mat.",
    "a dog ran",
    "",
    "The Café!",
    "the cats ran for the dog, on the mat : a cat sat on a mat . for a dog "
    * 3,
    "i am search ing [SEP] , , ,",
    "dog dog dog dog dog dog dog",
]
PROMPTS = {"query": "query : ", "document": "the "}
EXPANSION = {"strategy": "fixed", "length": 12}
PUNCTUATION = list(string.punctuation)


def base_model(folder: pathlib.Path) -> None:
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        max_position_embeddings=24,
        hidden_size=H,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        initializer_range=0.4,
    )
    model = BertForMaskedLM(config)
    with torch.no_grad():
        for each in model.parameters():
            if each.ndim == 1:
                each.add_(torch.randn_like(each) * 0.2)
    model.eval().save_pretrained(folder)
    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    BertTokenizer(str(vocab)).save_pretrained(folder)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(folder / file, HERE / file)


class Recorder:
    """Writes folders, records their files and what encode gives."""

    def __init__(self, work: pathlib.Path):
        self.work = work
        self.base = work / "base"
        self.cases: dict[str, dict] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def transformer(self, task: str, **settings) -> Transformer:
        return Transformer(str(self.base), transformer_task=task, **settings)

    def sparse(
        self,
        name: str,
        pooling: SpladePooling,
        length: int | None = None,
        **options,
    ) -> None:
        settings = {} if length is None else {"max_seq_length": length}
        modules = [self.transformer("fill-mask", **settings), pooling]
        model = SparseEncoder(modules=modules, device="cpu", **options)
        model.save(str(self.work / name), create_model_card=False)
        self.record_sparse(name)

    def record_sparse(self, name: str) -> None:
        model = SparseEncoder(str(self.work / name), device="cpu")
        for task, encode in (
            ("text", model.encode),
            ("query", model.encode_query),
            ("document", model.encode_document),
        ):
            found = encode(TEXTS, convert_to_sparse_tensor=False)
            self.arrays[f"{name}/{task}"] = found.numpy()
        tokens = model.decode(model.encode(TEXTS[0]))
        self.record(name, tokens=tokens)

    def late(
        self, name: str, *modules, settings: dict | None = None, **options
    ) -> None:
        first = self.transformer("feature-extraction", **(settings or {}))
        model = MultiVectorEncoder(
            modules=[first, *modules], device="cpu", **options
        )
        model.save(str(self.work / name), create_model_card=False)
        self.record_late(name)

    def record_late(self, name: str) -> None:
        model = MultiVectorEncoder(str(self.work / name), device="cpu")
        queries = model.encode_query(TEXTS, convert_to_numpy=True)
        documents = model.encode_document(TEXTS, convert_to_numpy=True)
        for task, found in (("query", queries), ("document", documents)):
            self.arrays[f"{name}/{task}"] = np.concatenate(found)
            self.arrays[f"{name}/{task}_counts"] = np.array([*map(len, found)])
        found = model.similarity(queries, documents)
        self.arrays[f"{name}/similarity"] = found.numpy()
        self.record(name)

    def record(self, name: str, **values) -> None:
        folder, files = self.work / name, {}
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            is_json = path.suffix in (".json", ".metadata")
            # The first describes what vocab.txt and tokenizer_config.json do.
            if is_json and relative not in ("tokenizer.json", "config.json"):
                files[relative] = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "model.safetensors" and path.parent != folder:
                for key, array in safetensors.numpy.load_file(path).items():
                    self.arrays[f"{name}/{relative}/{key}"] = array
        self.cases[name] = {"files": files, **values}


def stanford(to: Recorder, name: str, **metadata) -> None:
    """A folder as Stanford's colbert-ai writes it."""
    folder = to.work / name
    shutil.copytree(to.base, folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors = {k: v for k, v in tensors.items() if k.startswith("bert.")}
    weight = torch.randn(D, H)
    to.arrays[f"{name}/linear.weight"] = weight.numpy()
    safetensors.torch.save_file(
        tensors | {"linear.weight": weight},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["architectures"] = ["HF_ColBERT"]
    path.write_text(json.dumps(values), encoding="utf-8")
    text = json.dumps(metadata)
    (folder / "artifact.metadata").write_text(text, encoding="utf-8")
    to.record_late(name)
    check_published_rules(to, name, metadata)


def check_published_rules(to: Recorder, name: str, metadata: dict) -> None:
    """Compares with colbert-ai's rules, on ids.

    colbert/modeling/tokenization/{query,doc}_tokenization.py, colbert.py.
    """
    folder = to.work / name
    tokenizer = BertTokenizer(str(folder / "vocab.txt"))
    model = BertForMaskedLM.from_pretrained(folder).bert.eval()
    weight = torch.from_numpy(to.arrays[f"{name}/linear.weight"])
    skipped = {
        tokenizer.encode(symbol, add_special_tokens=False)[0]
        for symbol in PUNCTUATION
        if metadata["mask_punctuation"]
    } - {tokenizer.unk_token_id}
    found: dict[str, list[np.ndarray]] = {"query": [], "document": []}
    for text in TEXTS:
        for task, marker, longest in (
            ("query", metadata["query_token_id"], metadata["query_maxlen"]),
            ("document", metadata["doc_token_id"], metadata["doc_maxlen"]),
        ):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            row = [tokenizer.cls_token_id]
            row += tokenizer.convert_tokens_to_ids([marker])
            row += [*ids[: longest - 3], tokenizer.sep_token_id]
            mask = [1] * len(row)
            if task == "query":
                more = longest - len(row)
                row += [tokenizer.mask_token_id] * more
                mask += [int(metadata["attend_to_mask_tokens"])] * more
            with torch.inference_mode():
                hidden = model(
                    torch.tensor([row]), attention_mask=torch.tensor([mask])
                )[0][0]
            vectors = nn.functional.normalize(hidden @ weight.T, dim=-1)
            kept = [task == "query" or each not in skipped for each in row]
            found[task].append(vectors[torch.tensor(kept)].numpy())
    for task, vectors in found.items():
        np.testing.assert_allclose(
            np.concatenate(vectors), to.arrays[f"{name}/{task}"], atol=1e-5
        )


def old_sparse(to: Recorder) -> None:
    """A folder as sentence-transformers 5 writes it."""
    folder = to.work / "old_sparse"
    shutil.copytree(to.base, folder)
    package = "sentence_transformers.sparse_encoder.models."
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": package + kind}
        for i, (path, kind) in enumerate(
            [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
        )
    ]
    (folder / "1_SpladePooling").mkdir()
    for path, values in {
        "modules.json": entries,
        "sentence_bert_config.json": {
            "max_seq_length": 20,
            "do_lower_case": False,
        },
        "1_SpladePooling/config.json": {
            "pooling_strategy": "max",
            "activation_function": "relu",
            "word_embedding_dimension": None,
        },
        "config_sentence_transformers.json": {
            "model_type": "SparseEncoder",
            "prompts": {"query": "", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "dot",
        },
    }.items():
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    to.record_sparse("old_sparse")


def record_all(to: Recorder) -> None:
    to.sparse("splade", SpladePooling())
    to.sparse("splade_sum", SpladePooling("sum"), length=9)
    to.sparse(
        "splade_twice",
        SpladePooling(activation_function="log1p_relu"),
        prompts=PROMPTS,
        default_prompt_name="query",
        max_active_dims=5,
    )
    old_sparse(to)

    def projection(**settings) -> Dense:
        return Dense(H, D, module_input_name="token_embeddings", **settings)

    bare = {"bias": False, "activation_function": nn.Identity()}
    normalised = Normalize("token_embeddings")
    to.late(
        "late_fixed",
        projection(**bare),
        MultiVectorMask(PUNCTUATION),
        normalised,
        settings={"query_expansion": EXPANSION, "document_length": 16},
        prompts=PROMPTS,
    )
    to.late(
        "late_attending",
        projection(**bare),
        MultiVectorMask([*",."], skiplist_tasks=["query", "document"]),
        normalised,
        settings={"query_expansion": EXPANSION | {"attend": True}},
    )
    to.late(
        "late_least",
        projection(),
        MultiVectorMask(keep_only_token_ids=[2, 3, 7, 8]),
        normalised,
        settings={
            "query_expansion": {
                "strategy": "min",
                "length": 10,
                "token": "[unused0]",
            },
            "query_length": 14,
        },
        similarity_fn_name="meanmaxsim",
    )
    to.late("late_plain", MultiVectorMask(), settings={"query_length": 7})
    common = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 12,
        "doc_maxlen": 20,
        "dim": D,
    }
    stanford(
        to,
        "stanford",
        **common,
        attend_to_mask_tokens=False,
        mask_punctuation=True,
    )
    stanford(
        to,
        "stanford_attending",
        **common,
        attend_to_mask_tokens=True,
        mask_punctuation=False,
    )


def main() -> None:
    torch.manual_seed(43)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(pathlib.Path(folder))
        recorder.base.mkdir()
        base_model(recorder.base)
        record_all(recorder)
    np.savez_compressed(HERE / "arrays.npz", **recorder.arrays)
    recorded = {
        "vocabulary": VOCABULARY,
        "texts": TEXTS,
        "cases": recorder.cases,
    }
    text = json.dumps(recorded, ensure_ascii=False)
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
