"""One small file per command: parses flags and calls the library once.

`bert-tf NAME` runs a command (`__main__.py`). In a checkout make writes it into
.venv, and `python -m tools.MODULE` is the long form. The wheel has the same
files as `bert_tf.tools`, so they import each other relatively.
"""

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
        "embed": "embed",
        "search": "search",
        "extract-features": "extract_features",
        "rank": "rank",
        "score": "score",
        "evaluate-retrieval": "evaluate_retrieval",
    },
    "Converting, serving and sharing": {
        "convert": "convert_checkpoint",
        "prune": "prune",
        "export": "export_saved_model",
        "serve": "serve",
        "push": "push",
    },
    "In a shell": {"completion": "completion"},
}
COMMANDS = {
    name: module for group in GROUPS.values() for name, module in group.items()
}


def module_of(name: str) -> str | None:
    """Returns the file of a command.

    Args:
      name: its name or that of its file, with dashes or underscores.
    """
    module = name.replace("-", "_")
    if module in COMMANDS.values():
        return module
    return COMMANDS.get(name.replace("_", "-"))
