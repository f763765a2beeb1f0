"""Memory: planned bytes compared with allocated bytes and with the device's free memory, with enough memory and
without."""
import contextlib
import os
import signal

from models import random_shapes, run_keys, write_tokens
from program import some_steps
from report import mib

RUNTIME_BYTES = 544 << 20   # stated in plugins/cuda/common/device_requirements.hpp: context, code, cuBLAS's handle
RUNTIME_BOUND = 64 << 20    # how far the device's own figure may lie from plan and runtime
SHAPES, LARGEST = 20, 300
RESERVE = 0.01              # of the plan: what a ballast leaves beside plan and runtime, and takes of the plan


def exact(c):
    """Random shapes over all modes and precisions: planned and allocated bytes of each memory tier are equal."""
    count, largest = (3, 24) if c.quick else (SHAPES, LARGEST)
    equal, told = 0, []
    for m, mode, precision, micro, accumulate, recompute in random_shapes(count, largest):
        keys = run_keys(m, write_tokens(c.scratch, m.vocab, 1 << 16), precision, mode, micro, accumulate, 2)
        r = c.program.train({**keys, "train.recompute": recompute})
        tiers = r.tiers()
        wrong = {t: v for t, v in tiers.items() if v[0] != v[1]}
        what = (
            f"{m.name}: {mode}, {precision}, H {m.hidden}, A {m.heads}/{m.kv_heads}, I {m.intermediate}, V {m.vocab}, "
            f"B {micro} x {m.seq}"
        )
        told.append({"shape": what, "code": r.code, "tiers": tiers})
        if r.code != 0 or "device" not in tiers:
            c.report.judge("exact", what, None, False, "planned = taken", r.reason(), always=True)
        elif wrong:
            words = ", ".join(f"{t} {v[1] - v[0]:+,}" for t, v in wrong.items())
            c.report.judge(
                "exact", what, None, False, "planned = taken", f"taken beyond the plan: {words} bytes", always=True
            )
        else:
            equal += 1
    c.report.judge(
        "exact",
        f"{count} random shapes",
        equal,
        equal == count,
        f"= {count}",
        f"{equal} planned to the byte",
        always=True,
        runs=told,
    )


def keys_of_a_large_run(c, steps: int) -> dict:
    m = c.models["350M"]
    return run_keys(
        m, write_tokens(c.scratch, m.vocab, c.token_count), "bf16", "resident", 1 if c.quick else 4, 1, steps
    )


def runtime(c):
    """Free memory of the device during the peak of a run, which lasts from the first step on. The run is stopped
    meanwhile."""
    keys, seen = keys_of_a_large_run(c, 4), {}
    with c.probe.watch() as free:
        before = free()

        def look(event, process):
            if event.get("event") == "step" and event["step"] == 2:
                os.killpg(process.pid, signal.SIGSTOP)
                try:
                    seen["free"] = free()
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGCONT)
        r = c.program.train(keys, on_event=look)
        after = free()
    planned, taken = r.tiers().get("device", (None, None))
    if r.code != 0 or planned is None or "free" not in seen:
        c.report.judge("runtime", "a run to look at", None, False, "", r.reason())
        return
    used = before - seen["free"]
    beside = used - taken
    c.report.note("runtime", "the device's own figure", used, f"{mib(used)}, of which {mib(taken)} are the run's")
    c.report.judge(
        "runtime",
        "beside the plan",
        abs(beside - RUNTIME_BYTES),
        abs(beside - RUNTIME_BYTES) <= RUNTIME_BOUND,
        f"{mib(RUNTIME_BYTES)} +- {mib(RUNTIME_BOUND)}",
        f"{mib(beside)}, {mib(beside - RUNTIME_BYTES)} from what is stated",
    )
    c.report.judge("runtime", "left behind", before - after, before - after <= 2 << 20, "nothing", mib(before - after))


def ballast(c):
    """A device with little free memory: with plan, runtime and 1 % free the run works; with 1 % less than the plan it
    reports it."""
    keys = keys_of_a_large_run(c, 2)
    plan = c.program.plan(keys)
    tiers = plan.get("estimates", [{}])[0].get("tiers", [])
    planned = next((t["total_bytes"] for t in tiers if t["tier"] == "device"), None)
    if planned is None:
        c.report.judge("ballast", "a plan", None, False, "", "plan --json names no device tier")
        return
    room = int(planned * RESERVE)
    with c.probe.ballast(planned + RUNTIME_BYTES + room) as free:
        r = c.program.train(keys, enough=some_steps(0, 2, 2, 0))
        c.report.judge("ballast", "plan + runtime + 1 %", free, r.ended or r.code == 0, "it runs",
                       f"{mib(free)} free: " + ("it runs" if r.ended or r.code == 0 else r.reason()), always=True)
    with c.probe.ballast(planned + RUNTIME_BYTES - room) as free:
        r = c.program.train(keys, enough=some_steps(0, 2, 2, 0))
        clean = r.code == 3 or (r.code == 1 and "memory" in r.err and "missing" in r.err)
        c.report.judge("ballast", "1 % less than the plan", free, clean, "exit 3, or what is missing",
                       f"{mib(free)} free: " + ("it ran" if r.ended or r.code == 0 else r.reason()), always=True)
