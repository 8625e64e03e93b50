"""One small file per command: parses flags and calls the library once.

In a checkout a command is `python -m tools.NAME`. The wheel has the same files
as `bert_tf.tools`, which `bert-tf` runs (`__main__.py`), so they import each
other relatively.
"""

# The program in a shell.
PROGRAM = "python -m tools" if __name__ == "tools" else "bert-tf"

# The name and the file of each command, in the groups of the help.
GROUPS = {
    "Training": {
        "train-vocab": "train_vocab",
        "create-pretraining-data": "create_pretraining_data",
        "pretrain": "run_pretraining",
        "finetune": "run_finetuning",
        "distill": "distill",
        "experiment": "run_experiment",
        "plan-memory": "plan_memory",
        "demo": "demo",
    },
    "Using a model": {
        "explain": "explain",
        "predict": "predict",
        "fill-mask": "fill_mask",
        "extract-features": "extract_features",
        "score": "score",
    },
    "Converting, serving and sharing": {
        "convert": "convert_checkpoint",
        "prune": "prune",
        "export": "export_saved_model",
        "serve": "serve",
        "push": "push",
    },
}
COMMANDS = {
    name: module for group in GROUPS.values() for name, module in group.items()
}
