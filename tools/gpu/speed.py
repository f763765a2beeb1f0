"""Speed: throughput compared with the roofline, hybrid and streamed compared with resident, and time by operation."""
import os

from model import Rates, hybrid as hybrid_model, roofline
from models import run_keys, write_tokens
from program import NotMeasured, OutOfTime, rate_of, some_steps
from report import median, mib

WARM_UP = 3
MODEL_BOUND = 0.85                                # of the roofline
GAIN = 1.01                                       # less than this from twice the micro-batch ends the search
FIRST_MICRO_BATCH = {"350M": 8, "1.1B": 4}
UTILIZATION = {"tf32": 0.90, "bf16": 0.70}        # of hybrid, and its throughput against resident
EXPOSED = 0.05                                    # of compute time
STREAMED_BOUND, STATE_OVER_BUDGET = 0.30, 3
STREAMED_MICRO_BATCH, STREAMED_ACCUMULATE = 8, 8
ATTENTION_SHAPES = [(8, 2048, 16, 16, 64), (8, 2048, 32, 4, 64), (4, 2048, 32, 8, 128)]
ATTENTION_APART = 4e-3                            # |difference| / |result|, of numbers with 8 bits


def rates(c):
    """Rates of the device, the basis of every roofline."""
    rows = 64 if c.quick else 16384
    shapes = sorted({(rows, n, k) for m in c.models.values() for n, k in m.products})
    if not c.quick:
        shapes.append((8192, 8192, 8192))
    measured = c.probe.rates(shapes)
    c.measured_rates = measured
    c.gpu.update({k: v for k, v in measured.items() if k != "products"})
    c.report.note("rates", "copies inside the device", measured["device_copy_bytes_per_s"],
                  f"{measured['device_copy_bytes_per_s'] / 1e9:,.0f} GB/s read and written")
    c.report.note(
        "rates",
        "bus: up, down, both",
        measured["both_bytes_per_s"],
        ", ".join(f"{measured[k] / 1e9:.1f}" for k in ("h2d_bytes_per_s", "d2h_bytes_per_s", "both_bytes_per_s"))
        + " GB/s pinned",
    )
    r = Rates.of(measured)
    for m in c.models.values():
        for precision in ("bf16", "tf32", "fp32"):
            rate = r.of_model(m, precision)
            c.report.note("rates", f"products of {m.name}, {precision}", rate, f"{rate / 1e12:,.0f} TFLOP/s")


def attention(c):
    """The kernels of attention in bf16, each kind alone. Kinds compute the same sums: their results may only differ in
    rounding."""
    shapes = [(1, 40, 2, 1, 64), (1, 40, 1, 1, 128)] if c.quick else ATTENTION_SHAPES
    for r in c.probe.attention(shapes, 1 if c.quick else 2000):
        what = f"{r['kernels']}, {r['heads']}/{r['kv_heads']} heads of {r['d']}"
        c.report.note("attention", what, r["forward_flops_per_s"],
                      f"forward {1e3 * r['forward_s']:.3f} ms, {r['forward_flops_per_s'] / 1e12:,.0f} TFLOP/s, backward "
                      f"{1e3 * r['backward_s']:.3f} ms, {r['backward_flops_per_s'] / 1e12:,.0f}", **r)
        if r["kernels"] != "mma":
            apart = max(r["distance"], r["gradient_distance"])
            c.report.at_most("attention", f"{what}: apart from mma", apart, ATTENTION_APART, f"{apart:.1e}", always=True)


def measure(
    c, m, precision, mode, micro_batch, accumulate, more=None, seconds=3.0, done=False, warm_up=WARM_UP, least=5
):
    """(run, number of steps that do not count). `done`: run to the end, for the figures of the event done; else until
    there are enough steps."""
    steps = 4 if c.quick else warm_up + (12 if done else 60)
    keys = {
        **run_keys(m, write_tokens(c.scratch, m.vocab, c.token_count), precision, mode, micro_batch, accumulate, steps),
        **(more or {}),
    }
    if c.quick:
        warm_up, least = 1, 2
    return c.program.train(keys, enough=None if done else some_steps(warm_up, least, 40, seconds)), warm_up


def search(c, m, precision) -> tuple:
    """(tokens per second, micro-batch) of the best of doubling micro-batches in mode resident; failures are reported.
    If the time is over, the best so far; the steps that the last run had taken count if they are enough."""
    micro, late = 1 if c.quick else FIRST_MICRO_BATCH[m.name], False
    best, tried = (0.0, 0), {}
    c.tried[f"{m.name}, {precision}"] = tried
    while micro <= (2 if c.quick else 256) and not late:
        try:
            r, warm_up = measure(c, m, precision, "resident", micro, 1)
        except OutOfTime as e:
            late, r, warm_up = True, e.run, WARM_UP
            if r is None or len(r.step_ms()) < warm_up + 2:
                tried[micro] = "its time was over"
                break
        if not late and not r.ended and r.code != 0:
            tried[micro] = r.reason()
            if best[0] == 0 and micro > 1 and r.code == 3:  # the first does not fit: a smaller one may
                micro //= 2
                continue
            break
        tried[micro] = rate_of(r, warm_up)
        gained = tried[micro] >= GAIN * best[0]
        best = max(best, (tried[micro], micro))
        c.say(f"{m.name}, {precision}: micro-batch {micro}: {tried[micro]:,.0f} tokens/s")
        if not gained or micro * 2 in tried:
            break
        micro *= 2
    if not best[1]:
        if late:
            raise OutOfTime()
        raise NotMeasured(f"{m.name} in {precision}: " + "; ".join(map(str, tried.values())))
    c.best[m.name, precision] = best
    return best


def best_of(c, m, precision) -> tuple:
    return c.best.get((m.name, precision)) or search(c, m, precision)


def throughput(c):
    compare_with_roofline(c, c.models.values())


def throughput_of_one(c):
    """350M in each precision of the tensor cores."""
    compare_with_roofline(c, [c.models["350M"]])


def compare_with_roofline(c, compared):
    for precision in ("bf16", "tf32"):
        for m in compared:
            try:
                rate, micro = search(c, m, precision)
            except NotMeasured as e:
                c.report.judge("throughput", f"{m.name}, {precision}", None, False, "", str(e), always=True)
                continue
            text = f"{rate:,.0f} tokens/s at micro-batch {micro}"
            if precision in m.aims:
                c.report.aim("throughput", f"{m.name}, {precision}", rate, m.aims[precision], text)
            else:
                c.report.note("throughput", f"{m.name}, {precision}", rate, text)
            line = roofline(m, precision, micro * m.seq, Rates.of(c.measured_rates)) if c.measured_rates else None
            if line is None:
                c.report.note(
                    "throughput", f"{m.name}, {precision} / roofline", None, "no rates: the step `rates` gives them"
                )
            else:
                ratio = rate / line.tokens_per_s
                c.report.at_least("throughput", f"{m.name}, {precision} / roofline", ratio, MODEL_BOUND,
                                  f"{ratio:.2f} of {line.tokens_per_s:,.0f} tokens/s", roofline=line.kernels())


def profile(c):
    """The 350M step in bf16 by kind of operation. Timing every operation takes time itself: the shares are meaningful,
    the sum is not."""
    m = c.models["350M"]
    trace = os.path.join(c.scratch, "trace.json")
    keys = run_keys(
        m,
        write_tokens(c.scratch, m.vocab, c.token_count),
        "bf16",
        "resident",
        1 if c.quick else 8,
        1,
        3 if c.quick else 6,
    )
    r = c.program.train(keys, words=["--profile", trace])
    found = r.one("done").get("profile")
    if not found:
        raise NotMeasured("no profile: " + r.reason())
    c.report.note("profile", "350M, bf16, a step", found["step_ms"], f"{found['step_ms']:.1f} ms", profile=found)
    for kind in sorted(found["kinds"], key=lambda k: -k["ms"])[:12]:
        rate = f"{kind['gflops_per_s'] / 1e3:,.0f} TFLOP/s" if kind["flops"] else f"{kind['gb_per_s']:,.0f} GB/s"
        c.report.note("profile", kind["kind"], kind["share"], f"{kind['share']:.1%}, {kind['ms']:.2f} ms, {rate}")


def kernel_time(c, m, precision, micro) -> float:
    """Milliseconds of a hybrid step in which kernels run, from a profiled run: the times of its operations on the device
    without their waits for other queues. Gaps between operations, in which the device has nothing to do, do not count;
    the time between two waits contains them."""
    keys = run_keys(m, write_tokens(c.scratch, m.vocab, c.token_count), precision, "hybrid", micro, 4, 6)
    r = c.program.train(keys, words=["--profile", os.path.join(c.scratch, "trace.json")])
    done = r.one("done")
    if "profile" not in done:
        raise NotMeasured("no profile: " + r.reason())
    waits_ms = done["transfers"].get("exposed_ms", 0.0) / len(r.step_ms())
    return sum(kind["ms"] for kind in done["profile"]["kinds"]) - waits_ms


def hybrid(c):
    """350M, four micro-batches per update, compared with resident at the same size."""
    m = c.models["350M"]
    for precision in ("bf16", "tf32"):
        what, least = f"350M, {precision}", UTILIZATION[precision]
        micro = 1 if c.quick else 4
        both = {}
        for mode in ("hybrid", "resident"):
            r, warm_up = measure(c, m, precision, mode, micro, 4, done=mode == "hybrid")
            if not r.ended and r.code != 0:
                c.report.judge("hybrid", f"{what}, {mode}", None, False, "", r.reason(), always=True)
                break
            both[mode] = (r, rate_of(r, warm_up))
        if len(both) < 2:
            continue
        done, step_ms = both["hybrid"][0].one("done"), both["hybrid"][0].step_ms()
        transfers = done["transfers"]
        kernel_ms = kernel_time(c, m, precision, micro)
        u = kernel_ms / median(step_ms)
        c.report.at_least("hybrid", f"{what}: utilization", u, least,
                          f"{u:.3f}, kernels {kernel_ms:.1f} ms a step (between waits: {done['utilization']:.3f})")
        ratio = both["hybrid"][1] / both["resident"][1]
        c.report.at_least(
            "hybrid",
            f"{what}: / resident",
            ratio,
            least,
            f"{ratio:.2f} ({both['hybrid'][1]:,.0f} and {both['resident'][1]:,.0f} tokens/s, micro-batch {micro} x 4)",
        )
        micro_batches = 4 * len(step_ms)
        each = (transfers["h2d"] + transfers["d2h"]) / micro_batches
        c.report.judge(
            "hybrid",
            f"{what}: transfers a micro-batch",
            each,
            each == 3,
            "= 3",
            f"{each:g}",
            always=True,
            transfers=transfers,
        )
        if "exposed_ms" in transfers and u > 0:
            exposed = transfers["exposed_ms"] / (u * sum(step_ms))
            c.report.at_most("hybrid", f"{what}: exposed", exposed, EXPOSED, f"{exposed:.1%} of compute time")
        model = hybrid_model(m, precision, 4, micro, max(1, transfers["chunks"] // max(1, 2 * micro_batches)),
                             Rates.of(c.measured_rates), os.cpu_count() or 1) if c.measured_rates else None
        if model:
            c.report.note(
                "hybrid", f"{what}: schedule model", model[0], f"utilization {model[0]:.3f}, {model[1]:,.0f} tokens/s"
            )


def streamed(c):
    """A model whose state is three times the budget, compared with the same model in mode resident."""
    m = c.models["1.1B"]
    micro, accumulate = (1, 2) if c.quick else (STREAMED_MICRO_BATCH, STREAMED_ACCUMULATE)
    budget = m.state_bytes("bf16") // STATE_OVER_BUDGET
    more = {"train.recompute": "auto"}
    if not c.quick:  # tiny models hold more in work space than in state
        more["memory.budget"] = f"{budget}B"
    r, warm_up = measure(c, m, "bf16", "streamed", micro, accumulate, more, seconds=8, warm_up=1, least=3)
    if not r.ended and r.code != 0:
        c.report.judge("streamed", "1.1B, bf16", None, False, "", r.reason(), always=True)
        return
    rate = rate_of(r, warm_up)
    how = f"micro-batch {micro} x {accumulate}, {mib(m.state_bytes('bf16'))} of state, budget {mib(budget)}"
    c.report.note("streamed", "1.1B, bf16", rate, f"{rate:,.0f} tokens/s, {how}")
    there = sorted(
        {
            t["tier"]: t["total_bytes"]
            for t in r.one("start").get("plan", {}).get("estimates", [{}])[0].get("tiers", [])
        }.items()
    )
    c.report.note("streamed", "planned", None, ", ".join(f"{tier} {mib(n)}" for tier, n in there))
    whole, warm_up = measure(c, m, "bf16", "resident", micro, accumulate, warm_up=1, least=3)
    if not whole.ended and whole.code != 0:
        c.report.judge("streamed", "/ resident", None, False, "", whole.reason(), always=True)
        return
    ratio = rate / rate_of(whole, warm_up)
    c.report.at_least(
        "streamed", "/ resident", ratio, STREAMED_BOUND, f"{ratio:.2f} of {rate_of(whole, warm_up):,.0f} tokens/s"
    )
