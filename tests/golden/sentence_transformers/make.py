"""Makes the golden data beside it; see README.md.

Needs torch, transformers, sentence-transformers and safetensors, no TensorFlow.
"""

import json
import pathlib
import shutil
import tempfile

import numpy as np
import safetensors.numpy
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
)

HERE = pathlib.Path(__file__).parent
H = 16
VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat a dog ran query passage "
    ": ##s cafe café The ! i am for search ing ##ing 我 们"
).split()
TEXTS = [
    "the cat sat on the mat",
    "a dog ran",
    "",
    "The Café!",
    "the cats ran for the dog on the mat : a cat sat on a mat for a dog " * 3,
    "query : i am search ing [SEP] 我们",
    "dog dog dog dog dog dog dog",
]
# Of two texts that are both too long, Google's rule cuts other tokens.
PAIRS = [
    ["the cat", "on the mat"],
    ["a dog", "the cats ran for the dog on the mat for a dog " * 3],
]
OLD = "sentence_transformers.models."
OLD_MODES = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"]
IDENTITY = "torch.nn.modules.linear.Identity"
NAMED = "torch.nn.modules.activation."
NAMED_BEFORE = "sbert_ce_default_activation_function"
PROMPTS = {"query": "query : ", "passage": "passage: the "}


def base_models(folder: pathlib.Path) -> None:
    """A BERT, a DistilBERT and a cased BERT, each with a tokenizer."""
    sizes = {"vocab_size": len(VOCABULARY), "max_position_embeddings": 24}
    bert = BertConfig(
        **sizes,
        hidden_size=H,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        initializer_range=0.4,
    )
    distilbert = DistilBertConfig(
        **sizes,
        dim=H,
        n_layers=2,
        n_heads=2,
        hidden_dim=24,
        initializer_range=0.4,
    )
    vocab = folder / "vocab.txt"
    vocab.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    for name, model in (
        ("bert", BertModel(bert)),
        ("distilbert", DistilBertModel(distilbert)),
    ):
        with torch.no_grad():
            for each in model.parameters():
                if each.ndim == 1:
                    each.add_(torch.randn_like(each) * 0.2)
        model.eval().save_pretrained(folder / name)
        BertTokenizer(str(vocab)).save_pretrained(folder / name)
        (HERE / name).mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(folder / name / file, HERE / name / file)
    shutil.copytree(folder / "bert", folder / "cased")
    (folder / "cased" / "tokenizer.json").unlink()
    BertTokenizer(str(vocab), do_lower_case=False).save_pretrained(
        folder / "cased"
    )


class Recorder:
    """Writes folders, records their JSON files and what encode gives."""

    def __init__(self, work: pathlib.Path):
        self.work = work
        self.cases: dict[str, dict] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.vectors: dict[str, np.ndarray] = {}
        self.cross_encoders: dict[str, dict] = {}

    def transformer(self, base: str = "bert", **settings) -> Transformer:
        return Transformer(str(self.work / base), **settings)

    def saved(self, name: str, *modules, base: str = "bert", **options) -> None:
        """A folder as this release saves it."""
        if not isinstance(modules[0], Transformer):
            modules = (self.transformer(base), *modules)
        model = SentenceTransformer(
            modules=list(modules), device="cpu", **options
        )
        folder = self.work / name
        model.save(str(folder), create_model_card=False)
        self.record(name, folder, base)

    def written(
        self, name: str, files: dict, base: str = "bert", inner: str = ""
    ) -> None:
        """A folder of JSON files as an older release wrote them."""
        folder = self.work / name
        shutil.copytree(self.work / base, folder / inner)
        for path, values in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(json.dumps(values), encoding="utf-8")
        self.record(name, folder, base, inner)

    def record(
        self, name: str, folder: pathlib.Path, base: str, inner: str = ""
    ) -> None:
        files = {}
        for path in sorted(folder.rglob("*.json")):
            relative = path.relative_to(folder).as_posix()
            if path.name != "config.json" or path.parent not in (
                folder,
                folder / inner,
            ):
                files[relative] = json.loads(path.read_text(encoding="utf-8"))
        for relative in [f for f in files if f.endswith("tokenizer.json")]:
            if files[relative]["normalizer"]["type"] != "Sequence":
                # It says what vocab.txt and tokenizer_config.json say.
                del files[relative]
        weights = {}
        for path in sorted(folder.rglob("model.safetensors")):
            relative = path.parent.relative_to(folder).as_posix()
            if path.parent in (folder, folder / inner):
                continue
            weights[relative] = {}
            for key, array in safetensors.numpy.load_file(path).items():
                stored = f"{name}/{relative}/{key}"
                weights[relative][key] = stored
                self.arrays[stored] = array
        model = SentenceTransformer(str(folder), device="cpu")
        prompts = [key for key, prompt in model.prompts.items() if prompt]
        found = [model.encode(TEXTS)]
        found += [model.encode(TEXTS, prompt_name=key) for key in prompts]
        # transformers gives pairs of its generic class no segments.
        if name != "generic":
            found.append(model.encode([tuple(pair) for pair in PAIRS]))
        self.vectors[name] = np.concatenate(found)
        self.cases[name] = {
            "base": "distilbert" if base == "distilbert" else "bert",
            "inner": inner,
            "files": files,
            "weights": weights,
            "prompts": prompts,
        }


def old_modules(*kinds: str, first: str = "") -> list[dict]:
    paths = [first, *(f"{i}_{k}" for i, k in enumerate(kinds, start=1))]
    return [
        {"idx": i, "name": str(i), "path": path, "type": OLD + kind}
        for i, (path, kind) in enumerate(
            zip(paths, ("Transformer", *kinds), strict=True)
        )
    ]


def old_pooling(*modes: str) -> dict:
    return {
        "word_embedding_dimension": H,
        **{f"pooling_mode_{m}": m in modes for m in OLD_MODES},
    }


def record_all(to: Recorder) -> None:
    for mode in Pooling.POOLING_MODES:
        to.saved(mode, Pooling(H, mode))
    to.saved("joined", Pooling(H, ("mean", "weightedmean", "cls")))
    to.saved("normalized", Pooling(H, "mean"), Normalize())
    to.saved("dense", Pooling(H, "cls"), Dense(H, 8), Normalize())
    to.saved(
        "dense_without_bias",
        Pooling(H, "mean"),
        Dense(H, 8, bias=False, activation_function=nn.Identity()),
    )
    to.saved(
        "dense_residual",
        Pooling(H, "mean"),
        Dense(H, H, activation_function=nn.ReLU(), use_residual=True),
    )
    to.saved(
        "two_dense",
        Pooling(H, ("max", "cls")),
        Dense(2 * H, 8, activation_function=nn.GELU(), use_residual=True),
        Dense(8, 12, activation_function=nn.SiLU()),
    )
    to.saved(
        "default_prompt",
        Pooling(H, "mean"),
        prompts=PROMPTS,
        default_prompt_name="query",
    )
    to.saved(
        "prompt_left_out",
        Pooling(H, "mean", include_prompt=False),
        Normalize(),
        prompts=PROMPTS,
    )
    to.saved(
        "prompt_left_out_joined",
        Pooling(
            H, ("cls", "weightedmean", "lasttoken", "max"), include_prompt=False
        ),
        prompts=PROMPTS,
        default_prompt_name="passage",
    )
    to.saved(
        "tokenizer_length", to.transformer(max_seq_length=9), Pooling(H, "mean")
    )
    to.saved("truncated", Pooling(H, "mean"), Normalize(), truncate_dim=6)
    to.saved(
        "distilbert",
        Pooling(H, "cls"),
        Dense(H, 8),
        Normalize(),
        base="distilbert",
    )
    bert_config = "sentence_bert_config.json"
    to.written(
        "old_joined_length",
        {
            "modules.json": old_modules("Pooling", "Normalize"),
            bert_config: {"max_seq_length": 8, "do_lower_case": False},
            "1_Pooling/config.json": old_pooling(
                "max_tokens", "cls_token", "mean_sqrt_len_tokens"
            ),
            "config_sentence_transformers.json": {
                "__version__": {"sentence_transformers": "2.0.0"}
            },
        },
    )
    to.written(
        "old_layout",
        {
            "modules.json": old_modules("Pooling", first="0_Transformer"),
            f"0_Transformer/{bert_config}": {"max_seq_length": 12},
            "1_Pooling/config.json": old_pooling("cls_token"),
        },
        inner="0_Transformer",
    )
    to.written(
        "old_without_mode",
        {
            "modules.json": old_modules("Pooling"),
            "1_Pooling/config.json": old_pooling(),
        },
    )
    to.written(
        "lower_case",
        {
            "modules.json": old_modules("Pooling"),
            bert_config: {"max_seq_length": 20, "do_lower_case": True},
            "1_Pooling/config.json": old_pooling("mean_tokens"),
        },
        base="cased",
    )
    # BertTokenizer does not read the Lowercase of tokenizer.json back.
    to.saved(
        "lower_case_saved",
        to.transformer("cased", do_lower_case=True),
        Pooling(H, "mean"),
        base="cased",
    )
    shutil.copytree(to.work / "lower_case_saved", to.work / "generic")
    path = to.work / "generic" / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config), encoding="utf-8")
    to.record("generic", to.work / "generic", "cased")


def record_cross_encoders(to: Recorder) -> None:
    """Classifiers on the BERT, as files of three releases name activations."""
    config = BertConfig.from_pretrained(to.work / "bert")
    for labels in (1, 3):
        config.num_labels = labels
        model = BertForSequenceClassification(config).eval()
        model.bert = BertModel.from_pretrained(to.work / "bert")
        folder = to.work / f"classifier_{labels}"
        model.save_pretrained(folder)
        shutil.copy(to.work / "vocab.txt", folder)
        for part in ("weight", "bias"):
            array = getattr(model.classifier, part).detach().numpy()
            to.arrays[f"classifier_{labels}/{part}"] = array
    for name, labels, stated in (
        ("plain", 1, {"sentence_transformers": {"version": "4.1.0"}}),
        ("identity", 1, {"sentence_transformers": {"activation_fn": IDENTITY}}),
        ("old", 1, {NAMED_BEFORE: NAMED + "Sigmoid"}),
        ("several", 3, {NAMED_BEFORE: IDENTITY}),
        (
            "several_sigmoid",
            3,
            {"sentence_transformers": {"activation_fn": NAMED + "Sigmoid"}},
        ),
    ):
        folder = to.work / f"classifier_{labels}"
        values = json.loads((folder / "config.json").read_text("utf-8"))
        for key in ("sentence_transformers", NAMED_BEFORE):
            values.pop(key, None)
        values |= stated
        (folder / "config.json").write_text(json.dumps(values), "utf-8")
        model = CrossEncoder(str(folder), device="cpu")
        to.vectors[f"cross_encoder/{name}"] = model.predict(
            [tuple(pair) for pair in PAIRS]
        )
        to.cross_encoders[name] = {"labels": labels, "config.json": values}


def main() -> None:
    torch.manual_seed(41)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        base_models(work)
        recorder = Recorder(work)
        record_all(recorder)
        record_cross_encoders(recorder)
    np.savez_compressed(HERE / "vectors.npz", **recorder.vectors)
    np.savez_compressed(HERE / "dense.npz", **recorder.arrays)
    recorded = {
        "vocabulary": VOCABULARY,
        "texts": TEXTS,
        "pairs": PAIRS,
        "cases": recorder.cases,
        "cross_encoders": recorder.cross_encoders,
    }
    text = json.dumps(recorded, ensure_ascii=False)
    (HERE / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
