#!/usr/bin/env python3
"""The pages of plan, sweep and search in headless Chromium: the rendered numbers equal the JSON, and no error is
logged.

  pages_test.py BUILD_DIR SOURCE_DIR

Opens each page from a file without network access, runs its script, reads the numbers from the DOM and compares them
with the JSON of the same result: sample results (interop_sample_pages) and a run of the program itself. Also tests that
the content security policy names the hash of the script and allows no other script. Exit code 77 (skipped, with the
reason) without Chromium; TRAINHOST_CHROMIUM names one, else the usual names are tried.
"""

import base64, hashlib, html.parser, json, os, re, subprocess, sys, tempfile

from browser import find_chromium

build, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
failures = []


def check(what, ok):
    if not ok:
        failures.append(what)
        print("seen:" if what.startswith("(on purpose)") else "FAILED:", what)


class Dom(html.parser.HTMLParser):
    """Tables by their data- attributes, rows with their attributes and the values of their <data> cells, and every
    attribute of <html>."""

    def __init__(self, text):
        super().__init__()
        self.root, self.tables, self.crossovers, self.moments, self.answer = {}, [], [], 0, ""
        self.row = self.value = None
        self.in_answer = self.in_crossovers = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag == "html":
            self.root = a
        elif tag == "table":
            self.tables.append(({k[5:]: v for k, v in a.items() if k.startswith("data-")}, []))
        elif tag == "tr" and self.tables:
            self.row = ({k[5:]: v for k, v in a.items() if k.startswith("data-")}, [])
            self.tables[-1][1].append(self.row)
        elif tag == "data":
            self.value = [a["value"], ""]
        elif tag == "ol":
            self.in_crossovers = a.get("data-of") == "crossovers"
        elif tag == "p" and "answer" in (a.get("class") or "").split():
            self.in_answer = True

    def handle_data(self, text):
        if self.value:
            self.value[1] += text
        if self.in_answer:
            self.answer += text

    def handle_endtag(self, tag):
        if tag == "data":
            if self.in_crossovers:
                self.crossovers.append(self.value[0])
            elif self.row:
                self.row[1].append(tuple(self.value))
            self.value = None
        elif tag == "p":
            self.in_answer = False
        elif tag == "ol":
            self.in_crossovers = False

    def rows(self, **marks):
        for m, rows in self.tables:
            if all(m.get(k) == v for k, v in marks.items()):
                return [r for r in rows if r[1]]
        return []


def browse(page, *more):
    """The DOM after the script ran, and the output of the console."""
    with tempfile.TemporaryDirectory() as profile:
        words = [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--user-data-dir=" + profile,
            "--enable-logging=stderr",
            "--v=0",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=2000",
            *more,
            "file://" + page,
        ]
        r = subprocess.run(words, capture_output=True, text=True, timeout=100)
    return r.stdout, [l for l in r.stderr.splitlines() if "CONSOLE" in l]


def short(n):
    """A size in the form that is printed; written from the definition of the units, independently of the program."""
    value, unit = float(n), 0
    while value >= 1023.5 and unit < 6:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} " + ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]


def compare_plan(name, dom, j):
    seen = 0
    for e in j["estimates"]:
        for t in e["tiers"]:
            rows = {m["component"]: v for m, v in dom.rows(estimator=e["estimator"], tier=t["tier"])}
            want = {c["name"]: c["bytes"] for c in t["components"] if c["bytes"]}
            want["total"] = t["total_bytes"]
            check(
                f"{name}: components of {e['estimator']} on {t['tier']}: {sorted(rows)} for {sorted(want)}",
                sorted(rows) == sorted(want),
            )
            for c, n in want.items():
                cells = rows.get(c, [("", ""), ("", "")])
                check(f"{name}: {e['estimator']} {t['tier']} {c}: {cells} for {n}",
                      cells[0] == (str(n), short(n)) and cells[1] == (str(n), f"{n:,}"))
                seen += 1
    check(
        f"{name}: the answer says whether it fits: {dom.answer}",
        dom.answer.startswith("Fits" if j["estimates"][0]["fits"] else "Does not fit")
        or j["estimates"][0]["budget_bytes"] is None,
    )
    timeline = [t["bytes"] if isinstance(t, dict) else t for t in j.get("timeline", [])]
    shown = [int(r[1][0][0]) for r in dom.rows(of="timeline")]
    if timeline:
        check(f"{name}: the peak of the timeline", max(shown, default=0) == max(timeline))
        check(f"{name}: moments are the plan's", set(shown) <= set(timeline))
    return seen


def compare_sweep(name, dom, j):
    seen = 0
    for estimator, points in j.items():
        rows = {m["x"]: [int(v[0]) for v in values] for m, values in dom.rows(estimator=estimator)}
        want = {x: [n for n in v if n] for x, v in points.items() if v}
        check(f"{name}: {estimator}: {rows} for {want}", rows == want)
        seen += len(want)
    check(f"{name}: crossovers {dom.crossovers}", dom.crossovers == ["2127", "4254", "1408"])
    return seen


def compare_search(name, dom, j):
    for of in ("best", "pareto"):
        rows = [(float(v[1][0]), int(v[4][0])) for _, v in dom.rows(of=of)]
        check(f"{name}: {of}", rows and rows == [tuple(r) for r in j[of]][: len(rows)])
    return len(j["best"])


def script_hash():
    js = re.search(r'R"js\((.*?)\)js"', open(os.path.join(source, "core/report/html_script.cpp")).read(), re.S).group(1)
    return base64.b64encode(hashlib.sha256(js.encode()).digest()).decode()


chromium = find_chromium()
with tempfile.TemporaryDirectory() as d:
    subprocess.run([f"{build}/tests/interop_sample_pages", d], check=True)
    page = open(os.path.join(d, "plan.html")).read()
    check(
        f"the page's policy names its script: kScriptHash should be {script_hash()}",
        f"script-src 'sha256-{script_hash()}'" in page,
    )
    if not chromium:
        print("skipped: no Chromium here (TRAINHOST_CHROMIUM names one)")
        sys.exit(1 if failures else 77)

    r = subprocess.run(
        [
            f"{build}/bin/trainhost",
            "plan",
            "--model=llama-3-8b",
            "--device=a100-40gb",
            "--json",
            "--html",
            os.path.join(d, "run.html"),
        ],
        capture_output=True,
        text=True,
    )
    check("trainhost plan --html: " + r.stderr, r.returncode in (0, 3))
    open(os.path.join(d, "run.json"), "w").write(r.stdout)

    for name, compare in [
        ("plan", compare_plan),
        ("plan_too_much", compare_plan),
        ("run", compare_plan),
        ("sweep", compare_sweep),
        ("search", compare_search),
    ]:
        text, said = browse(os.path.join(d, name + ".html"), "--dump-dom")
        dom = Dom(text)
        check(f"{name}: the script ran to its end", dom.root.get("data-ready") == "1")
        check(f"{name}: the console is silent: {said}", not said)
        seen = compare(name, dom, json.load(open(os.path.join(d, name + ".json"))))
        check(f"{name}: numbers were compared", seen > 0)
        print(f"{name}: {seen} rows equal")

    # The functions of the script: exact bytes, sorting, tooltips, collapsed parts opened for printing. The content
    # security policy is removed so that a second script can press the buttons.
    press = """<script>
      document.getElementById('exact').click();
      document.querySelector('table[data-of=best] th:nth-child(6)').click();
      var mark = document.querySelector('svg .hit');
      mark.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: 100, clientY: 100}));
      var tip = document.getElementById('tip');
      document.documentElement.setAttribute('data-tip', tip.hidden ? '' : tip.textContent);
      window.dispatchEvent(new Event('beforeprint'));
    </script>"""
    text = open(os.path.join(d, "search.html")).read()
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", press + "</body>")
    pressed = os.path.join(d, "pressed.html")
    open(pressed, "w").write(text)
    text, said = browse(pressed, "--dump-dom")
    device = [r[1][4] for r in Dom(text).rows(of="best")]
    check(f"a heading sorts: {device[:3]}", device == sorted(device, key=lambda v: int(v[0])) and len(device) > 10)
    check("exact bytes are shown on demand", all(v[1] == f"{int(v[0]):,}" for v in device))
    tip = Dom(text).root.get("data-tip") or ""
    check(f"a mark has a tooltip of several lines: {tip!r}", " per step\n" in tip and "\\x" not in tip)
    check(f"the console is silent when buttons are pressed: {said}", not said)

    # What the checks above are worth: a wrong number, a script that throws and one that was smuggled in are all seen.
    j = json.load(open(os.path.join(d, "plan.json")))
    j["estimates"][0]["tiers"][0]["components"][0]["bytes"] += 1
    text, _ = browse(os.path.join(d, "plan.html"), "--dump-dom")
    before = len(failures)
    compare_plan("(on purpose) a wrong number", Dom(text), j)
    check("a wrong number is seen", len(failures) == before + 1)
    failures = [f for f in failures if "(on purpose)" not in f]
    forged = os.path.join(d, "forged.html")
    open(forged, "w").write(
        page.replace("</main>", "<script>document.documentElement.setAttribute('data-forged', '1')</script></main>")
    )
    text, said = browse(forged, "--dump-dom")
    check(
        "a smuggled script does not run",
        "data-forged" not in Dom(text).root and Dom(text).root.get("data-ready") == "1",
    )
    check("and the console says so", any("Content Security Policy" in l for l in said))

sys.exit(1 if failures else 0)
