"""F7: allocations that fail."""
import json
import os
import shutil

from program import empty


LARGE_PLAN = ["plan", "--model=llama-3-8b", "--device=h100-80gb", "--estimator=all", "--json"]


def commands(c, folder):
    """Six commands: what plans, lists, checks and loads."""
    load = c.program.train(folder, {"train.steps": 1, "output.checkpoint_every": 0})
    return [("plan", ["plan", "--backend=cpu"]), ("plan of a preset by all estimators", LARGE_PLAN), ("init", ["init"]),
            ("data info", ["data", "info", c.program.text]), ("plugins list", ["plugins", "list"]), ("train", load)]


def estimators(plan):
    """Those that a plan has an estimate or an error of."""
    j = json.loads(plan.out)
    return {e["estimator"] for e in j["estimates"] + j["failed_estimators"]}


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
                r = c.program.run(arguments, fault)
                ok, why = r.code in (0, 1, 2, 3, 4), r.summary()
                if ok and arguments is LARGE_PLAN and r.out:  # by the estimators that had memory
                    went_on += 1
                    ok, why = estimators(r) == estimators(undisturbed), "an estimator is missing, without an error"
                elif ok and r.code:
                    # 3 and 4: a plugin states that it has no memory, or cannot be loaded.
                    ok = "trainhost:" in r.err or "memory" in r.err.lower() or "allocat" in r.err.lower()
                    if ok and "a bug in the plugin" in r.err:
                        ok, why = False, "a plugin is blamed"
                    with_message += 1
                elif ok:
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
