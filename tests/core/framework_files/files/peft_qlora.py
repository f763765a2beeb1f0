# QLoRA with the Trainer of transformers, as examples of PEFT have it.
import argparse
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, DataCollatorForLanguageModeling, Trainer,
    TrainingArguments)

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


def train(base_model: str, cutoff_len: int, batch_size: int = 4, quantize=True):
    """Trains adapters; {braces} and 'quotes' mean nothing here."""
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    options = {"torch_dtype": torch.bfloat16, "device_map": {"": 0}}
    if quantize:
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, "bfloat16"))
    model = AutoModelForCausalLM.from_pretrained(base_model, **options)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = prepare_model_for_kbit_training(model)
    model = get_peft_model(model, LoraConfig(
        r=2 * 8, lora_alpha=32, target_modules="q_proj,v_proj".split(","), lora_dropout=.05, bias="none",
        task_type="CAUSAL_LM"))

    def tokenize(row):
        return tokenizer(row["text"], truncation=True, max_length=cutoff_len)

    data = load_dataset("imdb").map(tokenize)
    trainer = Trainer(
        model=model,
        train_dataset=data["train"],
        args=TrainingArguments(
            "out", per_device_train_batch_size=batch_size, gradient_accumulation_steps=4, learning_rate=2e-4,
            bf16=True, optim="paged_adamw_8bit", max_steps=1_000, logging_dir=os.path.join("out", "log")),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-model", type=str, default="huggyllama/llama-7b", help="its name")
    parser.add_argument("--cutoff_len", type=int, default=512)
    args = parser.parse_args()
    train(base_model=args.base_model, cutoff_len=args.cutoff_len)
