"""Random requests for a plan, as the page of the planner makes them: models, devices, frameworks and settings.
  plan_cases.py BUILD [CASES]      prints them, one JSON object per line, for bench_plan (tools/bench/plan_rate.cpp)"""
import json
import pathlib
import random
import subprocess
import sys


def random_case(r, models, devices):
    choose = r.choice
    settings = {"data.seq_len": choose([256, 1000, 2048, 4096, 8192]), "train.micro_batch": choose([1, 2, 3, 8])}
    for key, values in {"train.precision": ["fp32", "bf16"], "train.grad_accum": [1, 4], "parallel.tensor": [2, 4],
                        "train.recompute": ["none", "selective", "full", "auto"], "parallel.pipeline": [2],
                        "optimizer.name": ["adamw", "sgd", "adafactor", "adamw8bit"], "parallel.data": [4],
                        "parallel.zero": [1, 2, 3], "plan.attention": ["flash", "materialised"],
                        "plan.cross_entropy": ["fused", "plain"]}.items():
        if r.random() < 0.35:
            settings[key] = choose(values)
    if "parallel.zero" in settings:
        settings["parallel.data"] = 4  # one rank shards nothing, which is an error
    if r.random() < 0.3:
        settings["lora.rank"] = choose([8, 16])
        if r.random() < 0.5:
            settings["lora.base"] = "nf4"
    return {"model": choose(models), "device": choose(devices), "safe": r.random() < 0.2,
            "for": choose(["", "", "pytorch", "transformers", "fsdp2", "deepspeed", "megatron", "torchtitan"]),
            "set": [f"{k}={v}" for k, v in settings.items()]}


def listed(build, what):
    out = subprocess.run([build / "bin/trainhost", what, "--json"], capture_output=True, text=True, check=True).stdout
    return [x["name"] for x in json.loads(out)[what]]


def random_cases(build, count):
    # Models of a size that both answer in less than a second.
    models = [m for m in listed(build, "models") if not any(w in m for w in ("405b", "671b", "235b", "30b", "236b"))]
    devices = [d for d in listed(build, "devices") if not d.startswith("xeon")]
    r = random.Random(1)
    return [random_case(r, models, devices) for _ in range(count)]


if __name__ == "__main__":
    for case in random_cases(pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 200):
        print(json.dumps(case))
