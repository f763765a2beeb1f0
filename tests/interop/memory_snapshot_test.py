"""Reads `plan --memory-snapshot` with Python's pickle, checks that it is consistent and that its memory is that of the
plan; draws it with PyTorch's own functions where torch is installed."""
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1])
KEYS = {"model.preset": "llama-3.2-1b", "data.seq_len": 256, "train.micro_batch": 2, "train.recompute": "selective"}


def check(snapshot, plan):
    estimate = plan["estimates"][0]
    (segment,), (trace,) = snapshot["segments"], snapshot["device_traces"]
    base, total = segment["address"], segment["total_size"]
    device = next(t for t in estimate["tiers"] if t["tier"] == "device")
    assert total == device["total_bytes"], (total, device)
    assert trace[0]["action"] == "segment_alloc" and trace[0]["size"] == total
    live, peak, now, names = {}, 0, 0, set()
    for i, event in enumerate(trace[1:], 1):
        assert event["time_us"] == i and base <= event["addr"] <= event["addr"] + event["size"] <= base + total, event
        names.add(event["frames"][0]["name"])
        if event["action"] == "alloc":
            assert event["addr"] not in live, event
            live[event["addr"]] = event["size"]
            now += event["size"]
            peak = max(peak, now)
        elif event["action"] == "free_completed":
            assert trace[i - 1]["action"] == "free_requested" and trace[i - 1]["addr"] == event["addr"]
            now -= live.pop(event["addr"])
    # No two buffers that are live at the same time overlap.
    begun = []
    for event in trace[1:]:
        if event["action"] == "alloc":
            begin, end = event["addr"], event["addr"] + event["size"]
            assert all(end <= b or e <= begin for b, e in begun), event
            begun.append((begin, end))
        elif event["action"] == "free_completed":
            begun.remove((event["addr"], event["addr"] + event["size"]))
    # What is live at the end is what the segment has.
    blocks = segment["blocks"]
    assert sum(b["size"] for b in blocks) == total
    assert {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"} == live
    assert {"layers.3.qkv", "grad.embed", "w.embed"} <= names, sorted(names)[:50]
    gaps = next(c["bytes"] for c in device["components"] if c["name"] == "fragmentation")
    assert peak + gaps == total, (peak, gaps, total)


with tempfile.TemporaryDirectory() as tmp:
    file = pathlib.Path(tmp) / "step.pickle"
    sets = [w for k, v in KEYS.items() for w in ("--set", f"{k}={v}")]
    command = [BUILD / "bin/trainhost", "plan", "--device=h100-80gb", "--json", *sets]
    out = subprocess.run([*command, "--memory-snapshot", file], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    snapshot = pickle.loads(file.read_bytes())
    check(snapshot, json.loads(out.stdout))
    # train writes that of the run which it trains: as much memory as it predicts.
    train = subprocess.run([BUILD / "bin/trainhost", "train", "-q", "--backend=cpu", "--steps=1", "--memory-snapshot",
                            "run.pickle", "--set", f"output.dir={tmp}/run"], capture_output=True, text=True, cwd=tmp)
    assert train.returncode == 0, train.stderr
    (segment,) = pickle.loads((file.parent / "run.pickle").read_bytes())["segments"]
    summary = json.loads((file.parent / "run/summary.json").read_text())
    assert segment["total_size"] == summary["memory"]["predicted_bytes"], (segment["total_size"], summary["memory"])
    framework = subprocess.run([*command, "--for=pytorch", "--memory-snapshot", file], capture_output=True, text=True)
    assert framework.returncode == 2 and "--memory-snapshot" in framework.stderr, framework.stderr
    try:
        from torch.cuda import _memory_viz
    except ImportError:
        print("ok; not drawn by PyTorch: torch is missing")
    else:
        assert "segment" in _memory_viz.segsum(snapshot)
        assert "alloc" in _memory_viz.trace(snapshot)
        assert _memory_viz.trace_plot(snapshot)
        print("ok")
