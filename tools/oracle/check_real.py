#!/usr/bin/env python3
"""Runs tiny cases with values and with fake tensors, on the kernels of the CPU, and compares every stored quantity. Prints
too how much the peak of the memory allocator, which knows nothing of MemTracker, is above that of the facts: kernels
allocate memory of their own, and each checkpointed layer keeps 5,056 bytes of state of the random generator, which is in
host memory also with CUDA.

  tools/oracle/check_real.py [N]        the first N random cases, made small [36]
"""
import contextlib
import dataclasses
import os
import sys
import warnings

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cases


def small(c):
    """The case with sizes that take milliseconds. The code paths stay."""
    kv = min(c.kv_heads, 2)
    heads = kv if c.heads == c.kv_heads else 2 * kv
    return dataclasses.replace(c, heads=heads, kv_heads=kv, head_dim=16, hidden=16 * heads, intermediate=96, vocab=320,
                               window=min(c.window, 24), sequence=40, batch=min(c.batch, 2))


def quantities(line) -> dict:
    found = {"layers": line["layers"], "outside": line["outside"], "left": line["left"]["total"]}
    return found | {phase: peak["total"] for phase, peak in line["peaks"].items()}


class NoTracker:
    def begin(self, name):
        pass


def allocator_peak(c) -> int:
    """Largest sum of the bytes that the CPU's allocator reports during two steps."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    import differences
    import models
    import step

    with differences.removed("cpu", True):
        model, ids = models.build(c), torch.zeros(c.batch, c.sequence, dtype=torch.long)
        optimizer = step.optimizer_of(c, model)
        now = sum(t.nbytes for t in [*model.parameters(), *model.buffers(), ids])
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            for i in range(step.STEPS):
                step.step(c, model, optimizer, ids, NoTracker(), f"{i} ", contextlib.nullcontext())
        events = sorted((e.start_ns(), e.nbytes()) for e in p.profiler.kineto_results.events() if e.name() == "[memory]")
    peak = 0
    for _, change in events:
        now += change
        peak = max(peak, now)
    return peak


def main():
    warnings.filterwarnings("ignore")
    import facts
    import step

    differ = 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 36
    for n in range(count):
        c = small(cases.draw(1, n))
        fake, real = (quantities(facts.line(n, c, step.measure(c, "cpu", real), False)) for real in (False, True))
        wrong = {k: (fake[k], real[k]) for k in real if fake[k] != real[k]}
        peak = max(v for k, v in real.items() if k[0] in "12")
        extra = allocator_peak(c) - peak
        differ += bool(wrong)
        print(n, c.family, c.attention, c.precision, "checkpoint" if c.checkpoint else "", f"lora {c.lora}",
              wrong or "equal,", f"allocator {extra:+} of {peak} bytes", flush=True)
    print(f"{count - differ} of {count} equal")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
