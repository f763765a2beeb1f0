"""Runs two training steps of a case, and returns what they needed as one record."""
import contextlib
import gc

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import differences
import fsdp
import models
import titan
import saved
from cases import Case
from memory import Phases

STEPS = 2  # the first allocates the optimizer's state, all others are like the second


def optimizer_of(c: Case, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    if c.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=1e-3, foreach=True)
    kind = {"adamw-foreach": {"foreach": True}, "adamw-fused": {"fused": True}}[c.optimizer]
    return torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01, **kind)


def mixed(c: Case):
    """The context of the forward pass."""
    if c.precision == "autocast":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def step(c: Case, model, optimizer, inputs, tracker, name: str, record):
    """One optimizer step. `record`: a context for the forward pass of the first micro-batch."""
    for i in range(c.accumulate):
        tracker.begin(name + "forward")
        fsdp.before_micro_batch(model, c, i)
        with record if i == 0 else contextlib.nullcontext(), mixed(c):
            loss = model(input_ids=inputs, labels=inputs).loss
        if c.accumulate > 1:
            loss = loss / c.accumulate
        tracker.begin(name + "backward")
        loss.backward()
        del loss
    tracker.begin(name + "optimizer")
    optimizer.step()
    optimizer.zero_grad()  # sets the gradients to None


def measure(c: Case, kernels: str, real: bool) -> dict:
    """The record of a case. `real`: with values, so only for small cases and the kernels of the cpu."""
    mode = contextlib.nullcontext() if real else FakeTensorMode()
    with differences.removed(kernels, real), fsdp.ranks(c) as mesh, mode:
        called = model = models.build(c) if not fsdp.is_titan(c) else titan.build(c, mesh)
        inputs = torch.zeros(c.batch, c.sequence, dtype=torch.long)
        given = [inputs]
        if fsdp.is_titan(c):
            model = called.model
            called.labels = torch.zeros_like(inputs)
            given.append(called.labels)
        elif c.fsdp:
            fsdp.shard(model, c, mesh)
        optimizer = optimizer_of(c, model)
        notes = saved.Saved(model)
        tracker = Phases()
        tracker.track_external(model, optimizer, *given)
        counts = {"all": sum(p.numel() for p in model.parameters()),
                  "trained": sum(p.numel() for p in model.parameters() if p.requires_grad)}
        gc.disable()  # no tensor is freed at a time that depends on chance
        parallel = titan.loss_of(c) if fsdp.is_titan(c) else contextlib.nullcontext()
        with tracker, fsdp.counted_as_on_a_device(notes, tracker), parallel:
            for i in range(STEPS):
                first = contextlib.nullcontext() if i else notes.recording()
                step(c, called, optimizer, inputs, tracker, f"{i + 1} ", first)
            left = tracker.current()
        notes.release()
        gc.enable()
    kept = sum(left.get(kind, 0) for kind in ("parameters", "buffers", "optimizer", "inputs"))
    if kept != left["total"]:
        raise RuntimeError(f"{left['total'] - kept} bytes of a step are still allocated after it: {left}")
    result = {"parameters": counts, "peaks": tracker.peaks, "left": left, "saved": notes.records}
    del model, called, optimizer, tracker, inputs, given
    gc.collect()
    return result


def versions() -> dict:
    import peft

    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
