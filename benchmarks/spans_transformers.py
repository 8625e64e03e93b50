"""Fine-tunes on SQuAD 1.1 with Hugging Face transformers and PyTorch.

The peer of benchmarks/spans.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
Windows, labels and answers are made as in transformers' own example for
question answering (examples/pytorch/question-answering): 384 tokens, an
overlap of 128, 20 best positions, 30 tokens at most. The loop and its recipe
are those of benchmarks/finetuning_transformers.py. --batches says how rows
become batches:

    padded   all rows to 384 tokens, in any order: what that example does
    random   each batch to its longest row; dev sorted by length
    grouped  the same, and training rows of like lengths together, as the
             Trainer's group_by_length does: the fastest, and other batches

    python benchmarks/spans_transformers.py --model=FOLDER \
        --train=train.json --dev=dev.json --output=peer.json
"""

import argparse
import json
import pathlib
import time
from typing import Any

import finetuning_transformers as sentences
import numpy as np
import torch
import transformers

MAX_LENGTH, OVERLAP, N_BEST, MAX_ANSWER = 384, 128, 20, 30
EVALUATION_BATCH = 64

# Batches of training rows that are sorted together, as the Trainer does.
GROUPED_BATCHES = 50

Rows = list[dict[str, Any]]


def collate(
    tokenizer: transformers.PreTrainedTokenizerBase, rows: Rows, batches: str
) -> dict[str, torch.Tensor]:
    """A batch padded to its longest row, or to the longest of all."""
    padding = "padded" if batches == "padded" else "dynamic"
    return sentences.collate(tokenizer, rows, padding, MAX_LENGTH)


def row_order(
    rows: Rows, batches: str, size: int, generator: torch.Generator
) -> list[int]:
    """Rows in the order of an epoch."""
    mixed = torch.randperm(len(rows), generator=generator).tolist()
    if batches != "grouped":
        return mixed
    together = GROUPED_BATCHES * size
    return [
        row
        for i in range(0, len(mixed), together)
        for row in sorted(
            mixed[i : i + together],
            key=lambda row: -len(rows[row]["input_ids"]),
        )
    ]


def read_questions(path: str) -> list[dict[str, Any]]:
    """Question, context, first answer and its start of each question."""
    found = []
    for article in json.loads(pathlib.Path(path).read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                found.append(
                    {
                        "id": entry["id"],
                        "question": entry["question"].lstrip(),
                        "context": paragraph["context"],
                        "answer": entry["answers"][0]["text"],
                        "start": entry["answers"][0]["answer_start"],
                    }
                )
    return found


def encode(
    tokenizer: transformers.PreTrainedTokenizerBase,
    questions: list[dict[str, Any]],
) -> tuple[Rows, list[int], list[list[tuple[int, int]]], list[list[int]]]:
    """Windows without padding, their questions, offsets and sequences."""
    encoded = tokenizer(
        [question["question"] for question in questions],
        [question["context"] for question in questions],
        truncation="only_second",
        max_length=MAX_LENGTH,
        stride=OVERLAP,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=False,
    )
    names = ("input_ids", "attention_mask", "token_type_ids")
    count = len(encoded["input_ids"])
    rows = [{name: encoded[name][i] for name in names} for i in range(count)]
    sequences = [encoded.sequence_ids(i) for i in range(count)]
    return (
        rows,
        encoded["overflow_to_sample_mapping"],
        encoded["offset_mapping"],
        sequences,
    )


def positions(
    questions: list[dict[str, Any]],
    of_row: list[int],
    offsets: list[list[tuple[int, int]]],
    sequences: list[list[int]],
) -> np.ndarray:
    """First and last token of the answer in each window, [CLS] elsewhere."""
    found = np.zeros((len(of_row), 2), np.int64)
    for row, number in enumerate(of_row):
        question = questions[number]
        begin = question["start"]
        end = begin + len(question["answer"])
        context = [i for i, s in enumerate(sequences[row]) if s == 1]
        first, last = context[0], context[-1]
        if offsets[row][first][0] > begin or offsets[row][last][1] < end:
            continue
        while first < len(offsets[row]) and offsets[row][first][0] <= begin:
            first += 1
        while offsets[row][last][1] >= end:
            last -= 1
        found[row] = first - 1, last + 1
    return found


@torch.no_grad()
def predict(
    model: torch.nn.Module,
    tokenizer: transformers.PreTrainedTokenizerBase,
    rows: Rows,
    precision: str,
    batches: str,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Start and end logits of all rows, the longest first unless padded."""
    model.eval()
    order = list(range(len(rows)))
    if batches != "padded":
        order.sort(key=lambda i: -len(rows[i]["input_ids"]))
    starts: list[Any] = [None] * len(rows)
    ends: list[Any] = [None] * len(rows)
    for begin in range(0, len(order), EVALUATION_BATCH):
        chosen = order[begin : begin + EVALUATION_BATCH]
        batch = collate(tokenizer, [rows[i] for i in chosen], batches)
        with sentences.precision_context(precision):
            outputs = model(**batch)
        for place, row in enumerate(chosen):
            length = len(rows[row]["input_ids"])
            starts[row] = outputs.start_logits[place, :length].float().numpy()
            ends[row] = outputs.end_logits[place, :length].float().numpy()
    model.train()
    return starts, ends


def answers(
    questions: list[dict[str, Any]],
    of_row: list[int],
    offsets: list[list[tuple[int, int]]],
    sequences: list[list[int]],
    starts: list[np.ndarray],
    ends: list[np.ndarray],
) -> dict[str, str]:
    """The best answer to each question, as postprocess_qa_predictions."""
    best: dict[int, tuple[float, str]] = {}
    for row, number in enumerate(of_row):
        for first in np.argsort(-starts[row])[:N_BEST]:
            for last in np.argsort(-ends[row])[:N_BEST]:
                if sequences[row][first] != 1 or sequences[row][last] != 1:
                    continue
                if last < first or last - first + 1 > MAX_ANSWER:
                    continue
                score = starts[row][first] + ends[row][last]
                if number not in best or score > best[number][0]:
                    begin, end = offsets[row][first][0], offsets[row][last][1]
                    text = questions[number]["context"][begin:end]
                    best[number] = float(score), text
    return {
        question["id"]: best.get(number, (0.0, ""))[1]
        for number, question in enumerate(questions)
    }


def train(
    options: argparse.Namespace,
    model: torch.nn.Module,
    tokenizer: transformers.PreTrainedTokenizerBase,
    rows: Rows,
    labels: np.ndarray,
) -> tuple[list[float], list[int]]:
    """Seconds and windows of each step."""
    size = options.batch_size
    total = round(-(-len(rows) // size) * options.epochs)
    total = min(total, options.max_steps or total)
    optimizer, schedule = sentences.build_optimizer(
        model, options.learning_rate, total
    )
    order = torch.Generator().manual_seed(options.seed)
    targets = torch.tensor(labels)
    seconds, counts = [], []
    chosen: list[list[int]] = []
    model.train()
    begin = time.perf_counter()
    while len(seconds) < total:
        if not chosen:
            mixed = row_order(rows, options.batches, size, order)
            chosen = [mixed[i : i + size] for i in range(0, len(mixed), size)]
        indices = chosen.pop(0)
        batch = collate(tokenizer, [rows[i] for i in indices], options.batches)
        batch["start_positions"] = targets[indices, 0]
        batch["end_positions"] = targets[indices, 1]
        loss = sentences.update(
            model, batch, options.precision, optimizer, schedule
        )
        now = time.perf_counter()
        seconds.append(now - begin)
        counts.append(len(indices))
        if len(seconds) % 50 == 0:
            print(f"step {len(seconds)} of {total}: {loss:.3f}", flush=True)
        begin = time.perf_counter()
    return seconds, counts


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="a transformers folder")
    parser.add_argument("--train", required=True, help="questions, JSON")
    parser.add_argument("--dev", required=True, help="questions, JSON")
    parser.add_argument("--output", required=True, help="results as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_steps", type=int, default=0)
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32"
    )
    parser.add_argument(
        "--batches", choices=("padded", "random", "grouped"), default="random"
    )
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    transformers.set_seed(options.seed)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        options.model, dtype=torch.float32
    )
    questions = read_questions(options.train)
    rows, *places = encode(tokenizer, questions)
    labels = positions(questions, *places)
    seconds, counts = train(options, model, tokenizer, rows, labels)
    # Questions a second: windows beyond the first are no questions.
    share = len(questions) / len(rows)
    dev = read_questions(options.dev)
    begin = time.perf_counter()
    rows, *places = encode(tokenizer, dev)
    logits = predict(model, tokenizer, rows, options.precision, options.batches)
    found = answers(dev, *places, *logits)
    elapsed = time.perf_counter() - begin
    results = {
        "predictions": found,
        "train_questions": len(questions),
        "train_questions_per_second": share * sentences.rate(seconds, counts),
        "dev_questions_per_second": len(dev) / elapsed,
        "steps": len(seconds),
        "learning_rate": options.learning_rate,
        "epochs": options.epochs,
    }
    pathlib.Path(options.output).write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
