"""The GPT of litgpt (June 2026), with LoRA or in full training, and its loss in chunks of 128 tokens: of the head with LoRA,
of the finished logits in full training.

The `litgpt` of a case is empty. The step is that of finetune/lora.py and finetune/full.py with Fabric's precision `bf16-true`,
`bf16-mixed` (autocast) or `32-true`, which returns the logits in f32. `logits` stays a variable until the next micro-batch has its own. litgpt never ties the head to
the embedding. All elements of a head are rotated; fewer would change no tensor that is saved.

A case with its key "flat" in `fsdp` is prepared by the FSDPStrategy of Lightning Fabric, as finetune/full.py does on several
devices, with the precision bf16-true, bf16-mixed or 32-true. On one device these are autocast and f32.
"""
import contextlib
import functools
import types
from unittest import mock

import torch
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

import flat
import models
import packages

USED = ("litgpt.config", "litgpt.model", "litgpt.lora")
CHUNK = 128


@functools.cache
def modules():
    return packages.modules("litgpt", USED, "put litgpt's folder (commit 26857050) on PYTHONPATH")


class Trained:
    """The model of a case with the training loop's forward pass and loss. `mixed`: Fabric's precision bf16-mixed."""

    def __init__(self, model, adapters, mixed):
        self.model, self.adapters, self.mixed, self.labels, self.logits = model, adapters, mixed, None, None

    def children(self):  # FSDP1 searches its units from here
        return [self.model]

    def set_requires_gradient_sync(self, reduces):
        self.model.set_requires_gradient_sync(reduces)

    def __call__(self, input_ids, labels):
        targets = self.labels[..., 1:]
        rows, chosen = (self.chunks if self.adapters else self.chunks_of_all)(input_ids, targets)
        losses = [torch.nn.functional.cross_entropy(r, t, ignore_index=-100, reduction="none")
                  for r, t in zip(rows, chosen)]
        count = (targets != -100).sum()
        return types.SimpleNamespace(loss=torch.cat(losses).sum() / count.maximum(torch.ones_like(count)))

    def chunks(self, input_ids, targets):
        """finetune_lora: the head computes chunks of tokens."""
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.mixed else contextlib.nullcontext():
            logits = self.model(input_ids, lm_head_chunk_size=CHUNK)
        logits = [t.float() for t in logits]  # convert_output() of Fabric
        self.logits = logits
        logits[-1] = logits[-1][..., :-1, :]
        return ([t.reshape(-1, t.size(-1)) for t in logits],
                [t.reshape(-1) for t in targets.split(logits[0].size(1), dim=1)])

    def chunks_of_all(self, input_ids, targets):
        """finetune_full: the loss divides the logits of all tokens."""
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.mixed else contextlib.nullcontext():
            logits = self.model(input_ids)
        self.logits = logits.float()
        del logits
        logits = self.logits[..., :-1, :].reshape(-1, self.logits.size(-1))
        return logits.split(CHUNK), targets.reshape(-1).split(CHUNK)


def config(c):
    kinds, _, mlp = c.lora_targets.partition("+")
    neox, phi = c.family in ("gpt_neox", "phi"), c.family == "phi"
    return dict(
        block_size=c.sequence + 7, vocab_size=c.vocab, padded_vocab_size=c.vocab, n_layer=c.layers, n_head=c.heads,
        head_size=c.head_dim, n_query_groups=c.kv_heads, n_embd=c.hidden, rotary_percentage=1.0, parallel_residual=neox,
        shared_attention_norm=phi, lm_head_bias=phi, bias=neox, attn_bias=c.family == "qwen2", norm_qk=c.family == "qwen3", norm_class_name="LayerNorm" if neox else "RMSNorm",
        mlp_class_name="GptNeoxMLP" if neox else "LLaMAMLP", intermediate_size=c.intermediate, lora_r=c.lora, lora_alpha=16,
        lora_dropout=c.lora_dropout, lora_query="q" in kinds, lora_key="k" in kinds, lora_value="v" in kinds,
        lora_projection="o" in kinds, lora_mlp=bool(mlp))


def build(c):
    _, plain, lora = modules()
    before = torch.get_default_dtype()
    torch.set_default_dtype(models.DTYPES[c.precision])
    try:
        settings = config(c)
        if c.lora:
            model = lora.GPT(lora.Config(**settings))
        else:
            base = {k: v for k, v in settings.items() if not k.startswith("lora_")}
            model = plain.GPT(modules()[0].Config(**base))
    finally:
        torch.set_default_dtype(before)
    if c.lora:
        lora.mark_only_lora_as_trainable(model)
        for module in model.modules():
            if isinstance(module, lora.LoRAQKVLinear) and any(module.enable_lora) and not all(module.enable_lora):
                module.lora_ind  # a buffer that the first forward pass makes, in the check before training
    model.max_seq_length = c.sequence
    if c.checkpoint and not flat.is_flat(c):
        model.transformer.h = torch.nn.ModuleList(
            checkpoint_wrapper(layer, preserve_rng_state=False) for layer in model.transformer.h)
    return Trained(model.train(), bool(c.lora), c.precision == "autocast" or flat.is_flat(c) and bool(c.fsdp["param"]))


def shard(model, mesh):
    """What finetune_lora does on several devices: the layers inside their checkpoint wrappers, the wrappers, the model."""
    for module in reversed(list(model.modules())):
        if isinstance(module, (CheckpointWrapper, modules()[1].Block)):
            fully_shard(module, mesh=mesh["shards"])
    fully_shard(model, mesh=mesh["shards"])


def prepared(model, c):
    """What Fabric's setup() does on several devices in finetune_full: units of flat parameters, checkpoint wrappers inside."""
    from lightning.fabric.plugins.precision.fsdp import FSDPPrecision
    from lightning.fabric.strategies import fsdp as strategies
    from lightning.fabric.strategies.fsdp import FSDPStrategy

    block = modules()[1].Block
    precision = "bf16-mixed" if c.fsdp["param"] else {"bf16": "bf16-true", "fp32": "32-true"}[c.precision]
    strategy = FSDPStrategy(
        parallel_devices=[torch.device("cpu")], precision=FSDPPrecision(precision), auto_wrap_policy={block},
        activation_checkpointing_policy={block}, state_dict_type="full", limit_all_gathers=True, cpu_offload=False)
    # The state of the random numbers, which the wrappers keep for each layer, is in host memory.
    wrapper = functools.partial(checkpoint_wrapper, preserve_rng_state=False)
    device = types.SimpleNamespace(index=torch.device("cpu"))
    with (mock.patch.object(FSDPStrategy, "root_device", device), flat.replaced(),
          mock.patch.object(strategies, "_move_torchmetrics_to_device"),
          mock.patch.object(wrappers, "checkpoint_wrapper", wrapper)):
        return strategy.setup_module(model)
