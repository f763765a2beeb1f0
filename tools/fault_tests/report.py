"""Results of the rows: one table for people, one JSON file for programs."""
import json
import os
import shutil
import time


class Row:
    """One row of the table F1 to F30 while it runs."""

    def __init__(self, number, fault, promise):
        self.number, self.fault, self.promise = number, fault, promise
        self.cases, self.failures, self.figures, self.reason = 0, [], {}, ""
        self.seconds = 0.0
        self.keep_at_most = 5  # folders of failures

    def case(self, ok, what="", repeat="", folder="", kept_in=""):
        """Counts one case. A failure is recorded with the command that repeats it; `folder` is copied to `kept_in`."""
        self.cases += 1
        if ok:
            return True
        kept = ""
        if folder and kept_in and len(self.failures) < self.keep_at_most and os.path.isdir(folder):
            kept = os.path.join(kept_in, f"{self.number}-{len(self.failures) + 1}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept, symlinks=True)
        self.failures.append({"what": what[:2000], "repeat": repeat, "folder": kept})
        return False

    def figure(self, name, value):
        self.figures[name] = value

    def not_run(self, reason):
        self.reason = reason

    def status(self):
        if self.failures:
            return "FAILED"
        return "passed" if self.cases else "not run"

    def as_json(self):
        return {"row": self.number, "fault": self.fault, "promise": self.promise, "status": self.status(),
                "cases": self.cases, "failures": len(self.failures), "figures": self.figures, "reason": self.reason,
                "seconds": round(self.seconds, 1), "first_failures": self.failures[:20]}


def table(rows):
    cells = [("row", "fault", "status", "cases", "failures", "seconds", "figures, or the reason why not run")]
    for r in rows:
        words = [f"{k} {v}" for k, v in r.figures.items()]
        if r.reason:
            words.append(r.reason)
        cells.append((r.number, r.fault, r.status(), f"{r.cases:,}", f"{len(r.failures):,}", f"{r.seconds:.1f}",
                      "; ".join(words)))
    widths = [max(len(c[i]) for c in cells) for i in range(6)]
    lines = []
    for n, c in enumerate(cells):
        columns = [c[i].rjust(widths[i]) if i in (3, 4, 5) and n else c[i].ljust(widths[i]) for i in range(6)]
        lines.append("  ".join([*columns, c[6]]).rstrip())
    lines.insert(1, "-" * min(120, max(len(x) for x in lines)))
    return "\n".join(lines)


def failures(rows):
    lines = []
    for r in rows:
        for f in r.failures[:5]:
            lines.append(f"{r.number}: {f['what']}")
            if f["repeat"]:
                lines.append(f"    repeat: {f['repeat']}")
            if f["folder"]:
                lines.append(f"    folder: {f['folder']}")
        if len(r.failures) > 5:
            lines.append(f"{r.number}: {len(r.failures) - 5} more failures are in the JSON file")
    return "\n".join(lines)


def write_json(path, rows, facts, tier, seed, command, details):
    report = {"schema": "trainhost.faults/1", "command": command, "machine": facts, "tier": tier, "seed": seed,
              "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": [r.as_json() for r in rows], "details": details}
    with open(path + ".part", "w") as f:
        json.dump(report, f, indent=1)
    os.replace(path + ".part", path)
