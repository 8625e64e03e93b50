"""Makes the golden data beside it; see README.md.

Needs torch, transformers and peft, no TensorFlow.
"""

import pathlib
import shutil

import numpy as np
import peft
import torch
import transformers

HERE = pathlib.Path(__file__).parent
SHAPE = dict(
    vocab_size=24,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=8,
    num_labels=3,
    initializer_range=0.5,
)
WAYS = {
    "pissa": dict(init_lora_weights="pissa"),
    "olora": dict(init_lora_weights="olora"),
    "mica": dict(init_lora_weights="mica"),
    "rslora": dict(init_lora_weights="gaussian", use_rslora=True),
}
# On the models of ../NAME/saved: the class of the base, the modules with
# updates, and those that are trained whole.
RELATIVES = {
    "roberta": (
        "RobertaModel",
        ["query", "key", "value", "intermediate.dense", "output.dense"],
        ["classifier"],
    ),
    "albert": (
        "AlbertModel",
        [
            *("query", "key", "value", "attention.dense"),
            *("ffn", "ffn_output"),
        ],
        ["classifier", "pooler"],
    ),
    "modernbert": (
        "ModernBertModel",
        ["Wqkv", "Wo", "Wi"],
        ["classifier", "head"],
    ),
}


def open_base() -> transformers.PreTrainedModel:
    return transformers.BertForSequenceClassification.from_pretrained(
        HERE / "base", num_labels=3
    ).eval()


def main() -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SHAPE)
    model = transformers.BertModel(config)
    shutil.rmtree(HERE / "base", ignore_errors=True)
    model.save_pretrained(HERE / "base")
    random = np.random.default_rng(0)
    ids = random.integers(0, 24, (5, 6))
    recorded = {"input_ids": ids.astype(np.int32)}
    for name, way in WAYS.items():
        lora = peft.LoraConfig(
            task_type="SEQ_CLS",
            r=2,
            lora_alpha=6,
            lora_dropout=0.125,
            target_modules=["query", "value"],
            modules_to_save=["pooler", "classifier"],
            **way,
        )
        adapted = peft.get_peft_model(open_base(), lora)
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    noise = 0.3 * torch.randn_like(parameter)
                    parameter.copy_(parameter + noise)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        adapted.save_pretrained(folder)
        (folder / "README.md").unlink()
        again = peft.PeftModel.from_pretrained(open_base(), folder).eval()
        merged = again.merge_and_unload()
        state = merged.state_dict()
        with torch.no_grad():
            recorded[f"{name}/logits"] = merged(torch.tensor(ids)).logits
        for part in ("query", "value"):
            weight = f"bert.encoder.layer.0.attention.self.{part}.weight"
            recorded[f"{name}/{part}"] = state[weight]
        # The path of this machine.
        path = folder / "adapter_config.json"
        text = path.read_text().replace(str(HERE / "base"), "../base")
        path.write_text(text)
    for name, (kind, targets, whole) in RELATIVES.items():
        base = HERE.parent / name / "saved" / kind

        def opened(base=base) -> transformers.PreTrainedModel:
            return (
                transformers.AutoModelForSequenceClassification.from_pretrained(
                    base, num_labels=3
                ).eval()
            )

        lora = peft.LoraConfig(
            task_type="SEQ_CLS",
            r=2,
            lora_alpha=6,
            target_modules=targets,
            modules_to_save=whole,
        )
        adapted = peft.get_peft_model(opened(), lora)
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.copy_(0.3 * torch.randn_like(parameter))
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        adapted.save_pretrained(folder)
        (folder / "README.md").unlink()
        again = peft.PeftModel.from_pretrained(opened(), folder).eval()
        with torch.no_grad():
            tokens = torch.tensor(5 + ids % 15)
            recorded[f"{name}/logits"] = again(tokens).logits
        path = folder / "adapter_config.json"
        text = path.read_text()
        path.write_text(text.replace(str(base), f"../../{name}/saved/{kind}"))
    arrays = {name: np.asarray(value) for name, value in recorded.items()}
    np.savez_compressed(HERE / "outputs.npz", **arrays)


if __name__ == "__main__":
    main()
