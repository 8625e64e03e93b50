"""Makes the golden data beside it; see README.md.

With the argument `questions` it adds the answers of the pipeline of questions,
which transformers 5 has no more; with `zero_shot` it makes only those of the
pipeline zero-shot-classification.
"""

import json
import pathlib
import sys
import tempfile
import unittest.mock

import transformers
from safetensors.numpy import load_file

from tests.fine_tuned_models import (
    GOLDEN,
    NLI_LABELS,
    NLI_MODEL,
    TAGS,
    TEXTS,
    TOKENS,
    answers,
    recorded,
    write_folder,
)

SIZES = {"vocab_size": len(TOKENS), "max_position_embeddings": 60}
OF_BERT = {
    **SIZES,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
OF_DISTILBERT = {
    **SIZES,
    "dim": 16,
    "n_layers": 1,
    "n_heads": 2,
    "hidden_dim": 24,
}
CONFIGS = {
    "Bert": ("bert", OF_BERT),
    "DistilBert": ("distilbert", OF_DISTILBERT),
    "Electra": ("electra", {**OF_BERT, "embedding_size": 12}),
}
# What each class is configured with, by its architecture.
HEADS = {
    "SequenceClassification": {
        "Bert": {"id2label": {0: "bad", 1: "fair", 2: "good"}},
        "DistilBert": {
            "id2label": {0: "toxic", 1: "rude", 2: "fine"},
            "problem_type": "multi_label_classification",
        },
        "Electra": {"num_labels": 1},
    },
    "TokenClassification": {
        "Bert": {"id2label": dict(enumerate(TAGS))},
        "DistilBert": {"id2label": dict(enumerate(TAGS[::-1]))},
        "Electra": {"id2label": {0: "ADJ", 1: "NOUN", 2: "VERB"}},
    },
    "QuestionAnswering": {},
    "MultipleChoice": {},
    "MaskedLM": {},
}
QUESTIONS = [
    {"question": "who is good ?", "context": text}
    for text in TEXTS
    if " " in text
]
CHOICES = [
    {"text": TEXTS[0], "choices": ["it is good", "anna lives", "bad"]},
    {"text": TEXTS[1], "choices": ["in paris", "the film"]},
]
LABELS = ["film", "the city of paris", "bad", "goodly, 1 of 9"]
ZERO_SHOT = [
    {"template": template, "multi_label": multi_label, "labels": labels}
    for template, labels in (
        ("This text is about {}.", LABELS),
        ("{} is good", LABELS),
        ("It was {}", LABELS[:1]),
    )
    for multi_label in (False, True)
]
MASKED = ["the [MASK] was good .", "anna [MASK] in [MASK]"]


def make_folders() -> dict:
    """Configurations and shapes as transformers saves them."""
    found = {}
    for head, by_architecture in HEADS.items():
        for kind, (model_type, sizes) in CONFIGS.items():
            name = f"{kind}For{head}"
            config = transformers.AutoConfig.for_model(
                model_type, **sizes, **by_architecture.get(kind, {})
            )
            with tempfile.TemporaryDirectory() as made:
                folder = pathlib.Path(made)
                getattr(transformers, name)(config).save_pretrained(folder)
                (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
                getattr(transformers, f"{kind}Tokenizer").from_pretrained(
                    folder, model_max_length=50
                ).save_pretrained(folder)
                weights = load_file(folder / "model.safetensors")
                found[name] = {
                    "config": json.loads((folder / "config.json").read_text()),
                    "tokenizer_config": json.loads(
                        (folder / "tokenizer_config.json").read_text()
                    ),
                    "shapes": {k: v.shape for k, v in weights.items()},
                }
    return found


def scores(found: list) -> dict[str, float]:
    return {each["label"]: each["score"] for each in found}


def ask(name: str, folder: pathlib.Path) -> list:
    """What pipelines answer, or of choices what the model scores."""
    import torch

    kind, _, head = name.partition("For")
    if head == "SequenceClassification":
        pipe = transformers.pipeline("text-classification", str(folder))
        # Of one output a pipeline takes the sigmoid.
        plain = {"function_to_apply": "none"} if kind == "Electra" else {}
        asked = [{"text": text} for text in TEXTS]
        asked += [{"text": TEXTS[0], "text_b": text} for text in TEXTS]
        return [
            {
                **row,
                "scores": scores(
                    pipe(
                        {"text": row["text"], "text_pair": row["text_b"]}
                        if "text_b" in row
                        else row["text"],
                        top_k=None,
                        **plain,
                    )
                ),
            }
            for row in asked
        ]
    if head == "TokenClassification":
        pipe = transformers.pipeline(
            "token-classification", str(folder), aggregation_strategy="first"
        )
        return [
            {
                "text": text,
                "entities": [
                    {
                        "text": text[each["start"] : each["end"]],
                        "label": each["entity_group"],
                        "start": each["start"],
                        "end": each["end"],
                        "score": float(each["score"]),
                    }
                    for each in pipe(text)
                ],
            }
            for text in TEXTS
        ]
    if head == "MaskedLM":
        pipe = transformers.pipeline("fill-mask", str(folder))
        found = []
        for text in MASKED:
            masks = pipe(text)
            masks = masks if isinstance(masks[0], list) else [masks]
            best = [
                [[each["token_str"], each["score"]] for each in mask]
                for mask in masks
            ]
            found.append({"text": text, "masks": best})
        return found
    if head == "MultipleChoice":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = getattr(transformers, name).from_pretrained(folder).eval()
        found = []
        for row in CHOICES:
            texts = [row["text"]] * len(row["choices"])
            inputs = tokenizer(
                texts, row["choices"], padding=True, return_tensors="pt"
            )
            with torch.no_grad():
                logits = model(**{k: v[None] for k, v in inputs.items()}).logits
            shares = torch.softmax(logits[0].double(), -1).tolist()
            found.append({**row, "probabilities": shares})
        return found
    return []


def ask_questions(name: str, folder: pathlib.Path) -> list:
    """What the pipeline of transformers 4 answers, on TensorFlow."""
    # Without torch the pipelines ask it all the same whether it is distributed.
    transformers.pipelines.base.torch = unittest.mock.MagicMock(
        **{"distributed.is_initialized.return_value": False}
    )
    model = getattr(transformers, f"TF{name}").from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipe = transformers.pipeline(
        "question-answering", model=model, tokenizer=tokenizer
    )
    return [
        row
        | {
            key: value
            for key, value in pipe(
                **row, max_answer_len=30, align_to_words=False
            ).items()
            if key != "score"
        }
        for row in QUESTIONS
    ]


def ask_zero_shot(order: str) -> list:
    """What the pipeline answers to the texts, and to one of 48 more words."""
    found = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        write_folder(folder, NLI_MODEL, NLI_LABELS[order])
        pipe = transformers.pipeline("zero-shot-classification", str(folder))
        texts = [*TEXTS, " ".join([TEXTS[1], *["film"] * 48])]
        for asked in ZERO_SHOT:
            answers = pipe(
                texts,
                asked["labels"],
                hypothesis_template=asked["template"],
                multi_label=asked["multi_label"],
            )
            scores = [
                dict(zip(each["labels"], each["scores"], strict=True))
                for each in answers
            ]
            row = {"order": order, "texts": texts, **asked, "scores": scores}
            found.append(row)
    return found


def main() -> None:
    transformers.logging.set_verbosity_error()
    if sys.argv[1:] == ["zero_shot"]:
        found = [row for order in NLI_LABELS for row in ask_zero_shot(order)]
        (GOLDEN / "zero_shot.json").write_text(json.dumps(found) + "\n")
        return
    questions = sys.argv[1:] == ["questions"]
    if questions:
        found = answers()
    else:
        found = {}
        (GOLDEN / "folders.json").write_text(json.dumps(make_folders()) + "\n")
    for name in recorded():
        with tempfile.TemporaryDirectory() as made:
            folder = write_folder(pathlib.Path(made), name)
            is_question = name.endswith("QuestionAnswering")
            if questions and is_question:
                found[name] = ask_questions(name, folder)
            elif not questions:
                found[name] = ask(name, folder)
    text = json.dumps(found)
    (GOLDEN / "answers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
