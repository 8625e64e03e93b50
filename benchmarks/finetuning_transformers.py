"""Fine-tunes a sentence classifier with Hugging Face transformers and PyTorch.

The peer of benchmarks/finetuning.py, which starts it with the Python of an
environment made from requirements-peers.txt; nothing of bert_tf is imported.
It is a plain PyTorch loop, without Trainer's callbacks and logging, and takes
the faster of what transformers offers: its Rust tokenizer before training,
scaled-dot-product attention, the fused AdamW. The recipe is the paper's
(Devlin et al. 2019): AdamW with weight decay 0.01 except on biases and layer
normalisation, linear warm-up over a tenth of the steps and linear decay to 0,
gradients clipped to norm 1, dropout 0.1.

    python benchmarks/finetuning_transformers.py --model=FOLDER \
        --data_dir=glue --task=mrpc --seed=1 --output=mrpc.json
"""

import argparse
import json
import os
import pathlib
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
import transformers

WARM_UP_STEPS = 5  # not timed: first calls allocate and choose kernels
EVALUATION_BATCH = 64
MAX_LENGTH = 128

# task: folder, column of the label, columns of the texts, header, labels
# (none for a regression), metric to maximise.
TASKS = {
    "mrpc": ("MRPC", 0, (3, 4), True, ("0", "1"), "f1"),
    "rte": (
        "RTE",
        3,
        (1, 2),
        True,
        ("entailment", "not_entailment"),
        "accuracy",
    ),
    "stsb": ("STS-B", 9, (7, 8), True, (), "spearman"),
    "cola": ("CoLA", 1, (3,), False, ("0", "1"), "matthews"),
    "sst2": ("SST-2", 1, (0,), True, ("0", "1"), "accuracy"),
}


def read_rows(
    data_dir: str, task: str, split: str
) -> tuple[list[tuple[str, ...]], list[float]]:
    """The texts and the label of each row of a GLUE file."""
    folder, label, texts, header, labels, _ = TASKS[task]
    path = pathlib.Path(data_dir, folder, f"{split}.tsv")
    # Quotes are ordinary characters in these files, so csv is not used.
    text = path.read_bytes().decode("utf-8-sig")
    lines = [line for line in text.split("\n") if line][header:]
    rows = [line.rstrip("\r").split("\t") for line in lines]
    values = [
        float(labels.index(row[label]) if labels else row[label])
        for row in rows
    ]
    return [tuple(row[i] for i in texts) for row in rows], values


def encode(
    tokenizer: transformers.PreTrainedTokenizerBase,
    texts: list[tuple[str, ...]],
) -> list[dict[str, list[int]]]:
    """Token ids of each row, cut to 128 and without padding."""
    encoded = tokenizer(
        *[list(column) for column in zip(*texts, strict=True)],
        truncation=True,
        max_length=MAX_LENGTH,
        padding=False,
    )
    return [
        {name: encoded[name][i] for name in encoded} for i in range(len(texts))
    ]


def collate(
    tokenizer: transformers.PreTrainedTokenizerBase,
    rows: list[dict[str, list[int]]],
    padding: str,
    max_length: int = MAX_LENGTH,
) -> dict[str, torch.Tensor]:
    """A batch padded to its longest row, or to the length given."""
    return dict(
        tokenizer.pad(
            rows,
            padding="longest" if padding == "dynamic" else "max_length",
            max_length=None if padding == "dynamic" else max_length,
            return_tensors="pt",
        )
    )


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def score(
    task: str, targets: np.ndarray, logits: np.ndarray
) -> dict[str, float]:
    """The official metrics of the task."""
    if task == "stsb":
        values = logits[:, 0].astype(np.float64)
        return {
            "pearson": pearson(values, targets),
            "spearman": pearson(ranks(values), ranks(targets)),
        }
    answers, right = logits.argmax(-1), targets.astype(np.int64)
    metrics = {"accuracy": float((answers == right).mean())}
    if task == "mrpc":
        both = float(((answers == 1) & (right == 1)).sum())
        either = float((answers == 1).sum() + (right == 1).sum())
        metrics["f1"] = 2 * both / either if either else 0.0
    if task == "cola":
        # Matthews' coefficient is Pearson's of two sets of zeros and ones.
        metrics["matthews"] = pearson(answers, right)
    return metrics


def precision_context(precision: str) -> torch.autocast:
    return torch.autocast(
        "cpu", torch.bfloat16, enabled=precision == "bfloat16"
    )


@torch.no_grad()
def predict(
    model: torch.nn.Module,
    tokenizer: transformers.PreTrainedTokenizerBase,
    rows: list[dict[str, list[int]]],
    precision: str,
) -> np.ndarray:
    """Logits [N, C] of all rows, the longest first."""
    model.eval()
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]["input_ids"]))
    logits: dict[int, np.ndarray] = {}
    for start in range(0, len(order), EVALUATION_BATCH):
        chosen = order[start : start + EVALUATION_BATCH]
        batch = collate(tokenizer, [rows[i] for i in chosen], "dynamic")
        with precision_context(precision):
            outputs = model(**batch).logits.float().numpy()
        logits.update(zip(chosen, outputs, strict=True))
    model.train()
    return np.stack([logits[i] for i in range(len(rows))])


def build_optimizer(
    model: torch.nn.Module, learning_rate: float, total_steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW and its schedule."""
    decayed, plain = [], []
    for name, weight in model.named_parameters():
        bare = name.endswith("bias") or "LayerNorm" in name
        (plain if bare else decayed).append(weight)
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=(0.9, 0.999),
        eps=1e-6,
        fused=True,
    )
    schedule = transformers.get_linear_schedule_with_warmup(
        optimizer, int(total_steps * 0.1), total_steps
    )
    return optimizer, schedule


def update(
    model: torch.nn.Module,
    batch: dict[str, torch.Tensor],
    precision: str,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> torch.Tensor:
    """One step of the optimizer; returns the loss."""
    with precision_context(precision):
        loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return loss


def rate(seconds: list[float], counts: list[int]) -> float:
    """Examples a second, without the first steps."""
    return sum(counts[WARM_UP_STEPS:]) / sum(seconds[WARM_UP_STEPS:])


def train(
    options: argparse.Namespace,
    model: torch.nn.Module,
    tokenizer: transformers.PreTrainedTokenizerBase,
    data: dict[str, tuple[list, np.ndarray]],
) -> tuple[list[float], list[int], list[dict[str, float]]]:
    """Seconds and examples of each step, dev metrics after each epoch."""
    rows, targets = data["train"]
    labels = torch.tensor(
        targets, dtype=torch.long if TASKS[options.task][4] else torch.float
    )
    per_epoch = -(-len(rows) // options.batch_size)
    total = round(per_epoch * options.epochs)
    optimizer, schedule = build_optimizer(model, options.learning_rate, total)
    order = torch.Generator().manual_seed(options.seed)
    seconds, examples, metrics = [], [], []
    chosen: list[list[int]] = []
    model.train()
    start = time.perf_counter()
    while len(seconds) < min(total, options.max_steps or total):
        if not chosen:
            shuffled = torch.randperm(len(rows), generator=order).tolist()
            chosen = [
                shuffled[i : i + options.batch_size]
                for i in range(0, len(rows), options.batch_size)
            ]
        indices = chosen.pop(0)
        batch = collate(tokenizer, [rows[i] for i in indices], options.padding)
        batch["labels"] = labels[indices]
        update(model, batch, options.precision, optimizer, schedule)
        now = time.perf_counter()
        seconds.append(now - start)
        examples.append(len(indices))
        if not options.max_steps and (not chosen or len(seconds) == total):
            logits = predict(
                model, tokenizer, data["dev"][0], options.precision
            )
            metrics.append(score(options.task, data["dev"][1], logits))
            print(f"step {len(seconds)} of {total}: {metrics[-1]}", flush=True)
        start = time.perf_counter()
    return seconds, examples, metrics


def save_outputs(
    path: str,
    model: torch.nn.Module,
    tokenizer: transformers.PreTrainedTokenizerBase,
    rows: list[dict[str, list[int]]],
) -> None:
    """Saves a batch and what the encoder makes of it, before training."""
    batch = collate(tokenizer, rows, "dynamic")
    model.eval()
    with torch.no_grad():
        outputs = model.bert(**batch)
    np.savez(
        path,
        input_ids=batch["input_ids"].numpy(),
        input_mask=batch["attention_mask"].numpy(),
        segment_ids=batch["token_type_ids"].numpy(),
        sequence_output=outputs.last_hidden_state.numpy(),
        pooled_output=outputs.pooler_output.numpy(),
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="a transformers folder")
    parser.add_argument("--data_dir", required=True, help="GLUE's folder")
    parser.add_argument("--task", required=True, choices=sorted(TASKS))
    parser.add_argument("--output", required=True, help="results as JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument(
        "--padding", choices=("dynamic", "128"), default="dynamic"
    )
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32"
    )
    parser.add_argument(
        "--max_steps", type=int, default=0, help="0 trains to the end"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--save_outputs", default="", help="encoder outputs, .npz"
    )
    return parser.parse_args()


def results(
    options: argparse.Namespace,
    seconds: list[float],
    examples: list[int],
    metrics: list[dict[str, float]],
) -> dict[str, object]:
    """What --output gets; speeds leave the first steps and dev out."""
    return {
        "task": options.task,
        "main_metric": TASKS[options.task][5],
        "seed": options.seed,
        "learning_rate": options.learning_rate,
        "epochs": options.epochs,
        "padding": options.padding,
        "precision": options.precision,
        "steps": len(seconds),
        "dev_by_epoch": metrics,
        "examples_per_second": rate(seconds, examples),
        "train_seconds": sum(seconds),
        "threads": options.threads,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }


def main() -> None:
    options = parse_options()
    if 0 < options.max_steps <= WARM_UP_STEPS:
        raise SystemExit(
            f"--max_steps={options.max_steps}: must be 0 or above"
            f" {WARM_UP_STEPS}, the steps that are not timed."
        )
    torch.set_num_threads(options.threads)
    transformers.set_seed(options.seed)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    labels = TASKS[options.task][4]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=len(labels) or 1, dtype=torch.float32
    )
    data = {}
    for split in ("train", "dev"):
        texts, targets = read_rows(options.data_dir, options.task, split)
        data[split] = (encode(tokenizer, texts), np.array(targets))
    if options.save_outputs:
        save_outputs(
            options.save_outputs,
            model,
            tokenizer,
            data["dev"][0][: options.batch_size],
        )
    found = results(options, *train(options, model, tokenizer, data))
    pathlib.Path(options.output).write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
