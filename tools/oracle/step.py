"""Runs two training steps of a case, and returns what they needed as one record."""
import contextlib
import gc
import importlib.metadata
import sys

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import differences
import flat
import fsdp
import int8
import liger
import cut
import lit
import models
import offload
import experts
import fused_head
import preferences
import quantized
import saved
import titan
import tune
import zero
from cases import Case
from memory import Phases

STEPS = 2  # the first allocates the optimizer's state, all others are like the second


def optimizer_of(c: Case, model):
    trained = zero.groups_of(c, model) if c.zero else [p for p in model.parameters() if p.requires_grad]
    if c.optimizer == "adamw-cpu":
        return offload.cpu_adam(trained)
    if c.optimizer == "adamw-8bit":
        return quantized.adamw_8bit(trained, model)
    if c.optimizer == "sgd":
        make = lambda parameters: torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    else:
        kind = {"adamw-foreach": {"foreach": True}, "adamw-fused": {"fused": True}}[c.optimizer]
        make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, **kind)
    if c.tune and c.tune["in_backward"]:
        return tune.InBackward(model, make)
    return make(trained)


def mixed(c: Case):
    """The context of the forward pass; that of litgpt does not hold its loss."""
    if (c.precision == "autocast" and c.litgpt is None) or (c.quantized and c.quantized["autocast"]) or c.axolotl is not None:
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def factory_loss(model, inputs, weights):
    """The loss of BaseTrainer and SFTTrainer in llamafactory.v1: that of the tokens from the logits of the model, which
    computes its own loss too, because the labels are among its arguments."""
    def log_probabilities():
        result = model(input_ids=inputs, labels=inputs)
        logits = result.logits.float()
        labels = inputs[..., 1:].contiguous().view(-1)
        rows = logits[..., :-1, :].contiguous().view(labels.size(0), -1)
        return -torch.nn.functional.cross_entropy(rows, labels, reduction="none").view(inputs.shape[0], -1)

    of_tokens = log_probabilities()
    kept = weights[..., 1:]
    return (-of_tokens * kept).sum() / (kept.sum() + 1e-6)


def step(c: Case, model, optimizer, inputs, tracker, name: str, record):
    """One optimizer step. `record`: a context for the forward pass of the first micro-batch."""
    for i in range(c.accumulate):
        tracker.begin(name + "forward")
        fsdp.before_micro_batch(model, c, i)
        with record if i == 0 else contextlib.nullcontext(), contextlib.nullcontext() if c.dpo else mixed(c):
            if c.dpo:
                loss = preferences.loss_of(c, model, tracker.reference, inputs, lambda: mixed(c))
            elif c.factory:
                loss = factory_loss(model, inputs, tracker.loss_weights) * 1 * 1 / 1
            elif c.fused:
                loss = fused_head.loss_of(model, inputs)
            else:
                loss = model(input_ids=inputs, labels=inputs).loss
        if c.zero:
            tracker.begin(name + "backward")
            model.backward(loss)
            del loss
            if i + 1 == c.accumulate:
                tracker.begin(name + "optimizer")
            model.step()
            continue
        if c.accumulate > 1 and not c.tune and not c.factory and not c.fused:
            loss = loss / c.accumulate
        tracker.begin(name + "backward")
        loss.backward()
        del loss
    if c.zero:
        return
    tracker.begin(name + "optimizer")
    if c.tune:
        tune.scale_gradients(model.model, c)
    optimizer.step()
    optimizer.zero_grad()  # sets the gradients to None


def measure(c: Case, kernels: str, real: bool) -> dict:
    """The record of a case. `real`: with values, so only for small cases and the kernels of the cpu."""
    if not transformers.__version__.startswith((c.release or "5") + "."):
        raise RuntimeError(f"the case is one of transformers {c.release or 5}, and {transformers.__version__} is installed")
    mode = contextlib.nullcontext() if real else FakeTensorMode()
    with differences.removed(kernels, real), quantized.as_on_cuda(c), liger.without_kernels(c), cut.without_kernels(c), fused_head.without_kernels(c), experts.equal_shares(c), (zero if c.zero else fsdp).ranks(c) as mesh, mode:
        called = model = tune.build(c) if c.tune else lit.build(c) if c.litgpt is not None else titan.build(c, mesh) if fsdp.is_titan(c) \
            else models.build(c)
        inputs = torch.zeros(c.batch * (2 if c.dpo else 1), c.sequence, dtype=torch.long)
        given = [inputs]
        reference = preferences.reference_of(c, models.build) if c.dpo else None
        if fsdp.is_titan(c) or c.tune or c.litgpt is not None:
            model = called.model
            called.labels = torch.zeros_like(inputs)
            given.append(called.labels)
            if c.tune:
                called.positions = torch.zeros_like(inputs)
                given.append(called.positions)
        if c.quantized:
            given += quantized.tensors_of(model, c)
        if flat.is_flat(c) and c.litgpt is not None:
            called.model = model = lit.prepared(model, c)
        elif flat.is_flat(c) and c.tune:
            called.model = model = tune.prepared(model, c)
        elif c.fsdp and c.litgpt is not None:
            lit.shard(model, mesh)
        elif c.fsdp and not fsdp.is_titan(c):
            model = fsdp.sharded(model, c, mesh)
            if not c.tune:  # there the loss is part of what is called
                called = model
        if reference is not None and c.fsdp:
            reference = preferences.prepared(reference, c, mesh)
        if c.zero:
            zero.cast(c, model)
        optimizer = optimizer_of(c, model)
        counts = {"all": sum(p.numel() for p in model.parameters()),
                  "trained": sum(p.numel() for p in model.parameters() if p.requires_grad)}
        tracker = Phases()
        tracker.reference = reference
        if c.factory:
            tracker.loss_weights = torch.ones(c.batch, c.sequence)
            given.append(tracker.loss_weights)
        if c.zero:
            with tracker:
                called = zero.engine(c, model, optimizer)
                if reference is not None:
                    tracker.reference = reference = preferences.prepared(reference, c, mesh)
        notes = saved.Saved(model, detaches=bool(c.factory))
        optimizers = optimizer.each.values() if isinstance(optimizer, tune.InBackward) else [optimizer]
        tracker.track_external(*(m for m in (model, reference) if m is not None), *optimizers, *given)
        gc.disable()  # no tensor is freed at a time that depends on chance
        parallel = titan.loss_of(c) if fsdp.is_titan(c) else contextlib.nullcontext()
        counted = flat.counted(notes, tracker) if flat.is_flat(c) else fsdp.counted_as_on_a_device(notes, tracker)
        with tracker, counted, parallel:
            for i in range(STEPS):
                # Hooks on saved tensors would keep the gathered weights of stage 3.
                first = contextlib.nullcontext() if i or (c.zero or {}).get("stage") == 3 else notes.recording()
                step(c, called, optimizer, inputs, tracker, f"{i + 1} ", first)
            if c.litgpt is not None or c.tune:
                called.logits = None
            left = tracker.current()
        notes.release()
        gc.enable()
    kept = sum(left.get(kind, 0) for kind in ("parameters", "buffers", "optimizer", "inputs"))
    if int8.is_int8(c):
        kept += int8.kept_between_steps(model)
    # f32 weights of DeepSpeed are no parameters, FSDP1 frees sharded gradients when the next step begins, and the last unit of a
    # reference stays gathered.
    if kept != left["total"] and not c.zero and not flat.is_flat(c) and reference is None:
        raise RuntimeError(f"{left['total'] - kept} bytes of a step are still allocated after it: {left}")
    result = {"parameters": counts, "peaks": tracker.peaks, "left": left, "saved": notes.records}
    if c.zero and offload.of(c):
        result["host"] = tracker.on_host() - offload.shapes_only(called)
    del model, reference, called, optimizer, tracker, inputs, given
    gc.collect()
    return result


def versions() -> dict:
    import peft

    known = {"torch": torch, "transformers": transformers, "peft": peft, "deepspeed": sys.modules.get("deepspeed"),
             "bitsandbytes": sys.modules.get("bitsandbytes")}
    found = {name: module.__version__ for name, module in known.items() if module}
    if "liger_kernel" in sys.modules:
        found["liger-kernel"] = importlib.metadata.version("liger-kernel")
    if "trl" in sys.modules:
        found["trl"] = importlib.metadata.version("trl")
    if "cut_cross_entropy" in sys.modules:
        found["cut-cross-entropy"] = "fork of axolotl, commit 5f0c7a7"
    return found
