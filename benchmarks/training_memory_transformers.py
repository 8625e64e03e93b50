"""The peer of benchmarks/training_memory.py, in an environment of its own.

    python benchmarks/training_memory_transformers.py '{"rows": 8, ...}'

Prints, in JSON, the most resident bytes of two training steps, the seconds of
the second, and the number of parameters. Nothing of bert_tf is imported.
"""

import json
import re
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification


def main():
    """Trains and measures."""
    asked = json.loads(sys.argv[1])
    torch.manual_seed(0)
    config = BertConfig(**asked["config"], num_labels=2)
    model = BertForSequenceClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    shape = asked["rows"], asked["length"]
    ids = np.random.default_rng(0).integers(0, config.vocab_size, shape)
    batch = {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.ones(shape, dtype=torch.long),
        "labels": torch.arange(asked["rows"]) % 2,
    }
    half = asked["precision"] != "float32"
    for _ in range(2):
        begin = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.monotonic() - begin
    with open("/proc/self/status", encoding="utf-8") as status:
        peak = re.search(r"^VmHWM:\s*(\d+) kB", status.read(), re.M)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps([1024 * int(peak[1]), seconds, parameters]))


if __name__ == "__main__":
    main()
