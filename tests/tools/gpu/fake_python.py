#!/usr/bin/env python3
"""Replaces a Python with torch, to test tools/gpu/accept --peer: reports a version, and steps of invented duration."""

import json
import sys

if sys.argv[1] == "-c":
    print("0.fake")
else:
    a = json.loads(sys.argv[2])
    kv, h = a["kv_heads"] * a["hidden"] // a["heads"], a["hidden"]
    layer = 2 * h * h + 2 * h * kv + 3 * h * a["intermediate"] + 2 * h
    parameters = a["layers"] * layer + h + a["vocab"] * h * (1 if a["tied"] else 2)
    for batch in a["batches"]:
        if batch == max(a["batches"]):
            print(json.dumps({"batch": batch, "error": "CUDA out of memory"}), flush=True)
        else:
            print(
                json.dumps(
                    {
                        "batch": batch,
                        "parameters": parameters,
                        "tokens": batch * a["seq"],
                        "step_ms": [9e3, 8e3, 7e3],
                        "peak_bytes": 1 << 40,
                        "reserved_bytes": 1 << 40,
                    }
                ),
                flush=True,
            )
