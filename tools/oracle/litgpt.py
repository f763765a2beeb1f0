"""The GPT of litgpt (October 2023) with LoRA on its fused q, k and v, and its loss in chunks of 128 tokens.

A case with `litgpt` is its Llama: {"layers_of": "llama"}. The step is that of finetune/lora.py with Fabric's precision `bf16-true`, which
returns the logits in f32. `logits` stays a variable until the next micro-batch has its own.
"""
import functools
import types
from unittest import mock

import torch

import packages

USED = ("lit_gpt.model", "lit_gpt.config", "lit_gpt.rmsnorm", "lit_gpt.lora")
CHUNK = 128


@functools.cache
def modules():
    return packages.modules("lit_gpt", USED, "put the folder lit_gpt of litgpt's commit 8641822 on PYTHONPATH")


class Trained:
    """The model of a case with the training loop's forward pass and loss."""

    def __init__(self, model):
        self.model, self.labels, self.logits = model, None, None

    def __call__(self, input_ids, labels):
        # A list of thousands of columns becomes a tensor in each layer, which is slow for fake tensors.
        with mock.patch.object(torch, "tensor", lambda data, device=None: torch.empty(len(data), dtype=torch.int64)):
            logits = self.model(input_ids, lm_head_chunk_size=CHUNK)
        logits = [t.float() for t in logits]  # convert_output() of Fabric
        self.logits = logits
        logits[-1] = logits[-1][..., :-1, :]
        targets = self.labels[..., 1:]
        rows = [t.reshape(-1, t.size(-1)) for t in logits]
        chosen = [t.reshape(-1) for t in targets.split(logits[0].size(1), dim=1)]
        losses = [torch.nn.functional.cross_entropy(r, t, ignore_index=-1, reduction="none")
                  for r, t in zip(rows, chosen)]
        return types.SimpleNamespace(loss=torch.cat(losses).mean())


def build(c):
    lora = modules()[-1]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = lora.GPT(lora.Config(
            block_size=c.sequence + 7, vocab_size=c.vocab, padded_vocab_size=c.vocab, n_layer=c.layers, n_head=c.heads,
            n_query_groups=c.kv_heads, n_embd=c.hidden, rotary_percentage=1.0, parallel_residual=False, bias=False,
            _norm_class="RMSNorm", _mlp_class="LLaMAMLP", intermediate_size=c.intermediate, r=c.lora, alpha=16,
            dropout=c.lora_dropout, to_query=True, to_value=True))
    finally:
        torch.set_default_dtype(before)
    lora.mark_only_lora_as_trainable(model)
    model.max_seq_length = c.sequence
    return Trained(model.train())
