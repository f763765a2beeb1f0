#!/usr/bin/env python3
"""trainhost_gpu_probe for an emulated device: invented rates, and a ballast that the emulated engine and the fake
driver read from the file that EMULATED_CUDA_FREE names. Memory that a run uses is not visible to it, so `free`
reports nothing about it. What needs neither a clock nor free memory is asked of the probe itself."""

import json
import os
import sys

TOTAL = int(os.environ.get("FAKE_CUDA_TOTAL", 4 << 30))
FILE = os.environ.get("EMULATED_CUDA_FREE", "")


def say(**what):
    print(json.dumps(what), flush=True)


def free() -> int:
    return int(open(FILE).read()) if FILE and os.path.exists(FILE) else TOTAL


what, *words = sys.argv[1:]
if what == "free":
    say(free_bytes=free(), total_bytes=TOTAL)
    for _ in sys.stdin:
        say(free_bytes=free(), total_bytes=TOTAL)
elif what == "ballast":
    leave = min(int(words[0]), TOTAL)
    with open(FILE, "w") as f:
        f.write(str(leave))
    say(held_bytes=TOTAL - leave, free_bytes=leave, asked_bytes=int(words[0]))
    sys.stdin.read()
    os.remove(FILE)
elif what == "rates":
    shapes = [tuple(map(int, w.split(","))) for w in words]
    products = [
        dict(precision=p, product=product, m=m, n=n, k=k, flops_per_s=r)
        for p, r in (("bf16", 6e14), ("tf32", 3e14), ("fp32", 5e13))
        for product in ("forward", "dx", "dw")
        for m, n, k in shapes
    ]
    say(device="Emulated GPU", capability="9.0", free_bytes=free(), total_bytes=TOTAL, device_copy_bytes_per_s=4e12,
        h2d_bytes_per_s=5e10, d2h_bytes_per_s=5e10, both_bytes_per_s=8e10, products=products)
elif what in ("tf32", "attention"):
    os.execv(os.environ["EMULATED_PROBE"], ["trainhost_gpu_probe", what, *words])  # the probe itself on the emulation
elif what == "nccl":  # the fake NCCL is part of the emulated engine
    say(version="NCCL 0", right=True)
else:
    sys.exit(2)
