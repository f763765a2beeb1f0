"""Runs two training steps of a case, and returns what they needed as one record."""
import contextlib
import gc

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

import differences
import fsdp
import litgpt
import models
import saved
import titan
import tune
from cases import Case
from memory import Phases

STEPS = 2  # the first allocates the optimizer's state, all others are like the second


def optimizer_of(c: Case, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    if c.optimizer == "sgd":
        make = lambda parameters: torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    else:
        kind = {"adamw-foreach": {"foreach": True}, "adamw-fused": {"fused": True}}[c.optimizer]
        make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, **kind)
    if c.tune and c.tune["in_backward"]:
        return tune.InBackward(model, make)
    return make(trained)


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
        if c.accumulate > 1 and not c.tune:
            loss = loss / c.accumulate
        tracker.begin(name + "backward")
        loss.backward()
        del loss
    tracker.begin(name + "optimizer")
    if c.tune:
        tune.scale_gradients(model.model, c)
    optimizer.step()
    optimizer.zero_grad()  # sets the gradients to None


def measure(c: Case, kernels: str, real: bool) -> dict:
    """The record of a case. `real`: with values, so only for small cases and the kernels of the cpu."""
    mode = contextlib.nullcontext() if real else FakeTensorMode()
    with differences.removed(kernels, real), fsdp.ranks(c) as mesh, mode:
        called = model = tune.build(c) if c.tune else litgpt.build(c) if c.litgpt else models.build(c) if not fsdp.is_titan(c) else titan.build(c, mesh)
        inputs = torch.zeros(c.batch, c.sequence, dtype=torch.long)
        given = [inputs]
        if fsdp.is_titan(c) or c.tune or c.litgpt:
            model = called.model
            called.labels = torch.zeros_like(inputs)
            given.append(called.labels)
            if c.tune:
                called.positions = torch.zeros_like(inputs)
                given.append(called.positions)
        if c.fsdp and not fsdp.is_titan(c):
            fsdp.shard(model, c, mesh)
        optimizer = optimizer_of(c, model)
        notes = saved.Saved(model)
        tracker = Phases()
        tracker.track_external(model, *(optimizer.each.values() if isinstance(optimizer, tune.InBackward) else [optimizer]), *given)
        counts = {"all": sum(p.numel() for p in model.parameters()),
                  "trained": sum(p.numel() for p in model.parameters() if p.requires_grad)}
        gc.disable()  # no tensor is freed at a time that depends on chance
        with tracker, fsdp.counted_as_on_a_device(notes, tracker):
            for i in range(STEPS):
                first = contextlib.nullcontext() if i else notes.recording()
                step(c, called, optimizer, inputs, tracker, f"{i + 1} ", first)
            if c.litgpt:
                called.logits = None
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
