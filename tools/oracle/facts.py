"""The stored facts: JSON Lines, a header per file and one line per case."""
import json
import os

PER_FILE = 100


def line(number: int, case, measured: dict, full: bool) -> dict:
    """The compact record of a case. Saved tensors: bytes per layer, and by operator of two layers and outside."""
    import saved  # needs torch, which a reader of facts does not

    records = measured["saved"]
    sums = saved.by_layer(records)
    result = {
        "n": number,
        "case": case.as_json(),
        "parameters": measured["parameters"],
        "peaks": measured["peaks"],
        "left": measured["left"],
        **({"host": measured["host"]} if "host" in measured else {}),
        "layers": [sums.get(i, 0) for i in range(case.layers)],
        "outside": sums.get(-1, 0),
    }
    if full:
        return result | {"saved": records}
    places = {"first": 0, "last": case.layers - 1, "rest": -1}
    return result | {name: saved.by_operator(records, layer) for name, layer in places.items()}


def path_of(folder: str, number: int) -> str:
    return os.path.join(folder, f"cases-{number // PER_FILE * PER_FILE:03}.json")


def read(folder: str) -> list:
    """All records of a folder, in order, without headers."""
    records = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith("cases-"):
            with open(os.path.join(folder, name)) as f:
                records += [r for r in map(json.loads, f) if "n" in r]
    return records


def numbers_in(folder: str) -> set:
    return {r["n"] for r in read(folder)}


def append(folder: str, number: int, record: dict, versions: dict, o):
    path = path_of(folder, number)
    os.makedirs(folder, exist_ok=True)
    new = not os.path.exists(path)
    with open(path, "a") as f:
        if new:
            header = {"command": f"tools/oracle/oracle{'' if o.kind == 'device' else ' --kind ' + o.kind} --seed {o.seed} --kernels {o.kernels} --cases {o.cases} --out {folder}"}
            f.write(json.dumps(header | versions, separators=(",", ":")) + "\n")
        f.write(json.dumps(record, separators=(",", ":")) + "\n")
