"""F7 and F8: allocations that fail, and the least memory limit under which a run ends."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal

from program import TINY, empty

MIB = 1 << 20


def commands(c, folder):
    """Six commands: what plans, lists, checks and loads."""
    plan = ["plan", "--backend=cpu"]
    large = ["plan", "--model=llama-3-8b", "--device=h100-80gb", "--estimator=all", "--json"]
    load = c.program.train(folder, {"train.steps": 1, "output.checkpoint_every": 0})
    return [("plan", plan), ("plan of a preset by all estimators", large), ("init", ["init"]),
            ("data info", ["data", "info", c.program.text]), ("plugins list", ["plugins", "list"]), ("train", load)]


def failing_allocations(c, row):
    """The n-th allocation of each command fails, and then every one from the n-th on."""
    folder, log, total = os.path.join(c.work, "F7"), os.path.join(c.work, "calls.log"), 0
    with_message = went_on = 0
    kinds = c.details.setdefault("F7 kinds of failures", {})
    for name, arguments in commands(c, folder):
        empty(folder)
        os.rmdir(folder)
        undisturbed = c.program.run(arguments, {"KIND": "memory", "LOG": log})
        with open(log) as f:
            count = int(f.read())
        total += count
        points = range(1, count + 1) if c.tier == 2 else \
            c.sample_of(list(range(1, count + 1)), c.count(2, 1500, 0), "F7" + name)
        for n in points:
            for every in (0, 1):
                shutil.rmtree(folder, ignore_errors=True)
                fault = {"KIND": "memory", "CALL": n, "FROM": every}
                r = c.program.run(arguments, fault, timeout=30)
                ok, why = r.code in (0, 1, 2, 3, 4), r.summary()
                if ok and r.code:
                    # 3 and 4: a plugin states that it has no memory, or cannot be loaded.
                    ok = "trainhost:" in r.err or "memory" in r.err.lower() or "allocat" in r.err.lower()
                    with_message += 1
                if ok and r.code == 0:
                    went_on += 1
                    # A plugin that had no memory is listed with this reason; free memory is part of a plan.
                    same = r.out == undisturbed.out or name in ("train", "plan") or "memory" in (r.out + r.err).lower()
                    ok, why = same, "the output differs although the command succeeded"
                label = "every allocation from" if every else "allocation"
                if not ok:
                    kind = f"{name}, {label} N: {why}"
                    kinds[kind] = kinds.get(kind, 0) + 1
                row.case(ok, f"{name}, {label} {n} of {count} fails: {why}", c.program.command(arguments, fault))
                if c.out_of_time():
                    break
            if c.out_of_time():
                break
    row.figure("allocations of the six commands", f"{total:,}")
    row.figure("ended with a message", f"{with_message:,}")
    row.figure("not needed", f"{went_on:,}")


def budget_check(root):
    """tools/budget_check as a module; it has no ending."""
    path = os.path.join(root, "tools", "budget_check")
    loader = importlib.machinery.SourceFileLoader("budget_check", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("budget_check", loader))
    loader.exec_module(module)
    return module


def shapes(count):
    """Configurations of 20 to 600 MiB, of different models, optimizers and thread counts."""
    found = []
    for i in range(count):
        family = ["llama", "mistral", "qwen2", "qwen3"][i % 4]
        optimizer = ["adamw", "sgd-momentum", "sgd", "adamw"][i // 4 % 4]
        found.append((1 + i % 2, {
            "model.model_type": family, "optimizer.name": optimizer, "model.hidden_size": 128 + 64 * (i % 3),
            "model.intermediate_size": 344 + 64 * (i % 5), "model.num_attention_heads": 4, "model.head_dim": 32,
            "model.num_key_value_heads": [4, 2, 1][i % 3], "model.num_hidden_layers": 2 + i % 5,
            "data.seq_len": [128, 256, 512][i % 3], "train.micro_batch": 8 + 4 * (i % 4), "train.steps": 2,
            "train.recompute": ["none", "selective", "full"][i // 2 % 3], "output.checkpoint_every": 0}))
    return found


def least_limit(c, row):
    """Bisects the memory limit of a cgroup for each configuration."""
    check = budget_check(c.root)
    try:
        group = check.Cgroup(c.cgroup)
    except check.Skip as e:
        return row.not_run(f"{e}; run as root, or give --cgroup")
    folder, worst_over, worst_under = os.path.join(c.work, "F8"), 0.0, 9.0
    text = pathlib.Path(c.work) / "F8 text.txt"
    text.write_text("a quick brown fox jumps over the lazy dog. " * 12000)
    try:
        for i, (threads, sets) in enumerate(shapes(c.count(0, 20, 20))):
            values = dict(TINY, **sets, **{"train.threads": threads, "data.train": text, "output.dir": folder})
            sets_of = [w for k, v in values.items() for w in ("--set", f"{k}={v}")]
            plan = json.loads(c.program.run(["plan", "--json", "--backend=cpu", *sets_of]).out)
            predicted = plan["estimates"][0]["total_bytes"]
            bound = (64 + 40 * threads) * MIB

            def survives(limit):
                group.limit(limit)
                shutil.rmtree(folder, ignore_errors=True)
                code, _, _ = group.run([c.program.path, "train", "--backend=cpu", "-q", *sets_of])
                return code == 0 if code in (0, -signal.SIGKILL) else None

            low, high = int(0.8 * predicted), predicted + bound
            answer = survives(high)
            row.case(answer is True, f"configuration {i}: ends under {high / MIB:.0f} MiB, the plan of "
                     f"{predicted / MIB:.1f} MiB and the runtime bound: {answer}")
            while answer is not None and high - low > max(MIB, predicted // 200):
                middle = (low + high) // 2
                if survives(middle):
                    high = middle
                else:
                    low = middle
            worst_over = max(worst_over, (high - predicted) / MIB)
            worst_under = min(worst_under, high / predicted)
            within = 0.98 * predicted <= high <= 1.02 * (predicted + bound)
            row.case(within, f"configuration {i}: the least limit is {high / MIB:.1f} MiB, planned "
                     f"{predicted / MIB:.1f} MiB")
            c.details.setdefault("F8", []).append({"threads": threads, "sets": {k: str(v) for k, v in sets.items()},
                                                   "predicted_bytes": predicted, "least_limit_bytes": high})
            if c.out_of_time():
                break
    finally:
        group.remove()
    if worst_over:
        row.figure("least limit over the plan", f"{worst_under:.3f} to +{worst_over:.0f} MiB")
