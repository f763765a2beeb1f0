"""F9: run files that are valid or invalid TOML."""
import os
import re

import toml_cases
from program import empty


def cases_of_toml_test(folder):
    """Cases of an unpacked toml-test, as (valid, name, bytes)."""
    with open(os.path.join(folder, "tests", "files-toml-1.0.0")) as f:
        names = [n.strip() for n in f if n.strip().endswith(".toml")]
    return [(n.startswith("valid/"), n, open(os.path.join(folder, "tests", n), "rb").read()) for n in names]


def own_cases():
    found = []
    for valid, table in ((True, toml_cases.VALID), (False, toml_cases.INVALID)):
        for category, texts in table.items():
            found += [(valid, f"{category} {i}", text) for i, text in enumerate(texts)]
    return found


def run_files(c, row):
    """Every case is read by `plan`: an invalid one is refused with its line, a valid one is never called invalid."""
    folder = empty(os.path.join(c.work, "F9"))
    path = os.path.join(folder, "case.toml")
    cases = own_cases()
    row.figure("own cases", f"{len(cases):,}")
    if c.toml_test:
        more = cases_of_toml_test(c.toml_test)
        row.figure("cases of toml-test", f"{len(more):,}")
        cases += more
    for valid, name, text in c.sample(cases, 60, "F9"):
        with open(path, "wb") as f:
            f.write(text)
        r = c.program.run(["plan", path, "-q"])
        invalid = "not valid TOML" in r.err or "not valid UTF-8" in r.err or "only ASCII is allowed" in r.err
        if valid:
            # Its keys are not those of a run file, so it may be refused for them.
            row.case(r.code in (0, 2, 3) and not invalid, f"valid {name}: {text!r}: {r.summary()}")
        else:
            where = re.search(r"case\.toml:\d+", r.err)
            row.case(r.code == 2 and bool(where), f"invalid {name}: {text!r}: {r.summary()}")
