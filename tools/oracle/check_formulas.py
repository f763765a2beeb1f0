#!/usr/bin/env python3
"""Compares the replay with facts that the oracle wrote. Needs only Python.

  tools/oracle/check_formulas.py FOLDER                   all cases of the folder
  tools/oracle/check_formulas.py FOLDER --only 17,18      each quantity of these cases
"""
import argparse
import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import facts
import replay_models
from cases import Case

SAVED_BOUND, PEAK_BOUND = 0.001, 0.01


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", metavar="FOLDER", help="where oracle --out wrote its facts")
    p.add_argument("--only", default="", metavar="NUMBERS", help="these cases, with commas, in full")
    p.add_argument("--json", default="", metavar="FILE", help="write every deviation there")
    return p.parse_args()


def peak(peaks: dict) -> int:
    """Largest bytes of a record's phases; of the facts or of the replay."""
    return max(v["total"] if isinstance(v, dict) else v for v in peaks.values())


def deviations(record) -> dict:
    """{quantity: (replayed, measured)}; {} for a model that has no replay."""
    c = Case.from_json(record["case"])
    model = replay_models.of(c)
    if model is None:
        return {}
    for i in (1, 2):
        model.step(f"{i} ")
    saved = {}
    for place, _, size in model.memory.saved:
        saved[place] = saved.get(place, 0) + size
    result = {"saved, last layer": (saved.get(f"layer {c.layers - 1}", 0), record["layers"][-1]),
              "saved, outside": (saved.get("", 0), record["outside"])}
    for phase, measured in record["peaks"].items():
        result[phase] = (model.memory.peaks.get(phase, 0), measured["total"])
    result["peak"] = (peak(model.memory.peaks), peak(record["peaks"]))
    return result


def relative(pair) -> float:
    return (pair[0] - pair[1]) / max(1, pair[1])


def main():
    o = options()
    asked = {int(x) for x in o.only.split(",")} if o.only else None
    rows, missing = {}, 0
    records = facts.read(o.folder)
    if not records:
        sys.exit(f"{o.folder}: no facts; write some with tools/oracle/oracle --cases N --out {o.folder}")
    for record in records:
        if asked and record["n"] not in asked:
            continue
        found = deviations(record)
        missing += not found
        if asked:
            print(json.dumps(record["case"]))
            for name, pair in found.items():
                print(f"  {name:20} {pair[0]:>14,} {pair[1]:>14,} {100 * relative(pair):+9.3f} %")
        if found:
            rows[record["n"]] = (record["case"], {k: relative(v) for k, v in found.items()})
    if not asked:
        report(rows, missing)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({n: d for n, (_, d) in rows.items()}, f)


def report(rows, missing):
    """Per quantity: cases within the bound, the range of the deviations, the worst case."""
    families = sorted({c["family"] for c, _ in rows.values()})
    for family in families:
        mine = {n: d for n, (c, d) in rows.items() if c["family"] == family}
        for name in ("saved, last layer", "saved, outside", "peak"):
            bound = PEAK_BOUND if name == "peak" else SAVED_BOUND
            inside = sum(abs(d[name]) <= bound for d in mine.values())
            worst = max(mine, key=lambda n: abs(mine[n][name]))
            print(f"{family:10} {name:18} {inside:4} of {len(mine):4} within {100 * bound:.1f} %, "
                  f"worst {100 * mine[worst][name]:+8.3f} % (case {worst})")
    print(f"{missing} cases without a replay")


if __name__ == "__main__":
    main()
