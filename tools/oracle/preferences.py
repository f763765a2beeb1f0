"""The losses of DPO: that of DPOTrainer of TRL 1.10, and that of the trainer of LLaMA-Factory 0.9.5.

The `dpo` of a case: "trainer": trl or factory; "reference": computed in the step, or before the training. The batch of the
case counts pairs: the rows are the chosen sequences and then the rejected ones, without padding. The methods of both trainers
are written out, because they need data sets and a whole Trainer; what they read with .item() is left out, and every token is one
of the completion. accelerate converts what a model returns under autocast to f32.
"""
import contextlib
import dataclasses

import torch
import torch.nn.functional as F

import flat
import fsdp
import zero

BETA = 0.1


def reference_of(c, build):
    """The second model: none where adapters are switched off. LLaMA-Factory leaves it in the type of its checkpoint."""
    if not c.dpo["reference"] or c.lora:
        return None
    mixed = c.precision == "autocast" or (c.fsdp and c.fsdp["param"])
    narrow = {"precision": "bf16"} if mixed and c.dpo["trainer"] == "factory" else {}
    model = build(dataclasses.replace(c, checkpoint=False, **narrow))
    for p in model.parameters():
        p.requires_grad = False
    return model


def prepared(model, c, mesh):
    """The second model where weights are sharded: by prepare_fsdp() and prepare_deepspeed() of TRL, under FSDP2 in LLaMA-Factory by
    accelerate."""
    if c.zero:
        return zero.reference_engine(c, model)
    if flat.is_flat(c):
        return flat.reference(model, c)
    if c.fsdp and c.dpo["trainer"] == "trl":
        fsdp.shard_model_alone(model, c, mesh)
    elif c.fsdp:
        fsdp.shard_by_accelerate(model, c, mesh)
    return model


def output(model, inputs, autocast):
    with autocast():
        result = model(input_ids=inputs, use_cache=False)
    if not isinstance(autocast(), contextlib.nullcontext):
        result.logits = result.logits.float()
    return result


@contextlib.contextmanager
def as_reference(model, reference):
    """The model whose log-probabilities are those of the reference."""
    if reference is not None:
        yield reference
        return
    layers = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    for layer in layers:
        layer.gradient_checkpointing = False
    with getattr(model, "module", model).disable_adapter():  # of DeepSpeed's engine, and of FSDP1
        yield model
    for layer in layers:
        layer.gradient_checkpointing = True


def selective_log_softmax(logits, labels):
    labels = labels.unsqueeze(-1)
    if logits.dtype == torch.float32:
        chosen = torch.gather(logits, dim=-1, index=labels)
        sums = torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
        return (chosen - sums.unsqueeze(-1)).squeeze(-1)
    rows = []
    for row, of_row in zip(logits, labels):
        each = F.log_softmax(row, dim=-1)
        rows.append(each.gather(dim=-1, index=of_row))
    return torch.stack(rows).squeeze(-1)


def entropy(logits):
    flat = logits.reshape(-1, logits.shape[-1])
    parts = []
    for chunk in flat.split(128, dim=0):
        logps = F.log_softmax(chunk, dim=-1)
        parts.append(-(torch.exp(logps) * logps).sum(-1))
    return torch.cat(parts, dim=0)


def selected(logits, places):
    """logits[mask] where all tokens are chosen."""
    return logits[places[0], places[1]]


def fused_loss(c, model, reference, inputs, autocast):
    """DPOTrainer._compute_loss() of TRL 1.15 and newer, whose model returns log-probabilities."""
    def called(of):
        with autocast():
            return of(input_ids=inputs, labels=labels, use_cache=False, fused_lm_head=True)

    completion = torch.ones_like(inputs)
    shifted_completion = completion[..., 1:]
    labels = inputs.masked_fill(completion == 0, -100)
    outputs = called(model)
    per_token = outputs.log_probs[:, -shifted_completion.size(1):]
    chosen, rejected = per_token.sum(dim=1).chunk(2, dim=0)
    if c.dpo["reference"]:
        with torch.no_grad(), as_reference(model, reference) as other:
            ref_outputs = called(other)
        ref_per_token = ref_outputs.log_probs[:, -shifted_completion.size(1):]
        ref_chosen, ref_rejected = ref_per_token.sum(dim=1).chunk(2, dim=0)
    else:
        ref_chosen = ref_rejected = torch.zeros(inputs.shape[0] // 2)
    delta = (chosen - ref_chosen) - (rejected - ref_rejected)
    loss = (-F.logsigmoid(BETA * delta)).mean()
    for metric in (outputs.entropy, outputs.mean_logits, outputs.is_top1):
        metric.sum()
    return loss


def trl_loss(c, model, reference, inputs, autocast):
    outputs = output(model, inputs, autocast)
    shifted, labels = outputs.logits[..., :-1, :], inputs[..., 1:]
    logps = selective_log_softmax(shifted, labels).sum(dim=1)
    chosen, rejected = logps.chunk(2, dim=0)
    if c.dpo["reference"]:
        with torch.no_grad(), as_reference(model, reference) as other:
            ref_outputs = output(other, inputs, autocast)
            ref_logps = selective_log_softmax(ref_outputs.logits[..., :-1, :], labels).sum(dim=1)
            ref_chosen, ref_rejected = ref_logps.chunk(2, dim=0)
    else:
        ref_chosen = ref_rejected = torch.zeros(inputs.shape[0] // 2)
    delta = (chosen - ref_chosen) - (rejected - ref_rejected)
    loss = (-F.logsigmoid(BETA * delta)).mean()
    entropy(shifted.detach())
    halves = shifted.detach().chunk(2, dim=0)
    pairs, tokens = halves[0].shape[:2]
    places = torch.empty(pairs * tokens, dtype=torch.long), torch.empty(pairs * tokens, dtype=torch.long)
    for half in halves:
        selected(half, places).mean(-1).sum()
    return loss


def factory_loss(c, model, reference, inputs, autocast):
    def concatenated(of):
        batch, labels = inputs.clone(), inputs.clone()
        logits = output(of, batch, autocast).logits.to(torch.float32)
        shifted_labels = labels[:, 1:].clone()
        shifted = logits[:, :-1, :]
        per_token = torch.gather(shifted.log_softmax(-1), dim=2, index=shifted_labels.unsqueeze(2)).squeeze(2)
        logps = (per_token * (shifted_labels != -100)).sum(-1)
        return logps.split(inputs.shape[0] // 2, dim=0) + logits.split(inputs.shape[0] // 2, dim=0)

    def of_reference():
        with torch.no_grad(), as_reference(model, reference) as other:
            result = concatenated(other)
            return result[0], result[1]

    policy = concatenated(model)
    ref_chosen, ref_rejected = of_reference() if c.dpo["reference"] else (0.0, 0.0)
    delta = (policy[0] - ref_chosen) - (policy[1] - ref_rejected)
    return (-F.logsigmoid(BETA * delta)).mean()


def loss_of(c, model, reference, inputs, autocast):
    of_trl = fused_loss if c.fused else trl_loss
    return (of_trl if c.dpo["trainer"] == "trl" else factory_loss)(c, model, reference, inputs, autocast)
