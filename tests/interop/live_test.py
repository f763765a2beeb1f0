#!/usr/bin/env python3
"""The pages of runs: `train --live` and `watch` by HTTP, and with report.html and `compare --html` in headless Chromium.

  live_test.py BUILD_DIR SOURCE_DIR [SCREENSHOTS]

By HTTP: addresses, refused requests, readers that misbehave, a port in use; training goes on. In the browser: curves
appear and grow, the page ends with the run, no error is logged, nothing else is requested, no element is wider than a
screen of 360, 800 or 1400 pixels, keys read a chart, files are saved, and checks of accessibility in both colour
schemes. Without Chromium the second part is skipped (exit code 77). SCREENSHOTS: a folder that gets pictures.
"""

import http.client, json, os, re, signal, socket, subprocess, sys, tempfile, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser, find_chromium
from page_checks import faults

build, pictures = os.path.abspath(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else None
program = build + "/bin/trainhost"
failures = []
small = ["optimizer.warmup_steps=1", "train.eval_every=20", "model.hidden_size=32", "model.intermediate_size=32",
         "model.num_attention_heads=2", "model.num_key_value_heads=2", "model.head_dim=16", "data.seq_len=32"]


def check(what, ok):
    if not ok:
        failures.append(what)
        print("FAILED:", what, flush=True)


def settings(folder, steps, more=()):
    words = ["train", f"--set=output.dir={folder}", f"--set=train.steps={steps}"]
    return words + [f"--set={s}" for s in [*small, *more]]


class Process:
    """A command whose messages are read as they come."""

    def __init__(self, *words):
        self.process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.err = ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.err += line

    def port(self):
        for _ in range(600):
            m = re.search(r"http://127\.0\.0\.1:(\d+)/", self.err)
            if m:
                return int(m.group(1))
            time.sleep(0.05)
        raise RuntimeError("no address: " + self.err)

    def wait(self):
        code = self.process.wait(timeout=120)
        self.reader.join()
        return code

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait()


def get(port, path="/", method="GET", host=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request(method, path, headers={"Host": host} if host else {})
    r = c.getresponse()
    return r.status, r.read().decode()


def by_http(d):
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    wanted = taken.getsockname()[1]
    run = Process(*settings(d + "/a", 1500), f"--live={wanted}")
    port = run.port()
    check("a port in use is named, and another one taken", f"port {wanted} is in use" in run.err and port != wanted)
    taken.close()
    status, page = get(port)
    check(f"the page: {status}", status == 200 and "data-live" in page and "connect-src 'self'" in page)
    check("another host is refused", get(port, host="evil.example")[0] == 403)
    check("and one that begins with this one", get(port, host="127.0.0.1.evil.example")[0] == 403)
    check("a forwarded port is not", get(port, host="localhost:9999")[0] == 200)
    check("no other path", get(port, "/../../etc/passwd")[0] == 404)
    check("nothing is changed", get(port, method="POST")[0] == 405)
    # Readers that send nothing, send nonsense, or never read.
    silent = socket.create_connection(("127.0.0.1", port))
    for nonsense in (b"\0\xff" * 4000, b"GET / HTTP/1.1\r\nX: " + b"a" * 20000, b"\r\n\r\n"):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(nonsense)
        s.close()
    lazy = socket.create_connection(("127.0.0.1", port))
    lazy.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    events = socket.create_connection(("127.0.0.1", port))
    events.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    events.settimeout(60)
    text = b""
    while True:
        part = events.recv(1 << 16)
        if not part:
            break
        text += part
    messages = [json.loads(m[6:]) for m in text.decode().split("\n\n") if m.startswith("data: ")]
    check(f"messages arrive: {len(messages)}", len(messages) >= 1)
    check("the last one is of the ended run", bool(messages) and messages[-1]["ended"])
    check(f"and training has ended well: {run.err}", run.wait() == 0)
    silent.close()
    lazy.close()
    check("the port is closed", socket.socket().connect_ex(("127.0.0.1", port)) != 0)

    os.mkdir(d + "/other")
    for folder, reason in ((d + "/other", "has no metrics.jsonl"), (d + "/none", "does not exist")):
        w = Process("watch", folder)
        code = w.wait()
        check(f"watch of {folder}: {w.err}", code == 2 and reason in w.err)
    with open(d + "/a/metrics.jsonl", "a") as f:
        f.write('{"event":"step","step":99999,"los')
    w = Process("watch", d + "/a", "--port=0")
    status, page = get(w.port())
    check("a torn line is no step", status == 200 and "step 1500 of 1500" in page)
    check("watch ends with a signal", w.stop() == 0)


# Elements without a name, unlabelled fields, headings that skip a level, ids that occur twice, text without contrast.
def inspect(page, name):
    found = faults(page, pictures, name)
    check(f"{name}: {found}", not found)


def in_browser(d):
    curve = "(document.querySelector('[data-chart=loss] path.curve') || {getAttribute() { return ''; }}).getAttribute('d')"
    with Browser(find_chromium()) as page:
        run = Process(*settings(d + "/b", 2500), "--live=0")
        port = run.port()
        page.open(f"http://127.0.0.1:{port}/")
        check("curves appear", page.wait(f"{curve}.length > 40"))
        before = page.evaluate(curve)
        check("curves grow", page.wait(f"{curve} !== {json.dumps(before)}"))
        check("training ends: " + run.err, run.wait() == 0)
        check("the page ends with the run",
              page.wait("document.getElementById('answer').textContent.includes('Finished')"))
        own = [r for r in page.requests if not r.startswith((f"http://127.0.0.1:{port}/", "data:", "blob:"))]
        check(f"nothing else is requested: {own}", not own)
        inspect(page, "live")

        page.open(f"file://{d}/b/report.html")
        inspect(page, "report")
        # Keys read a chart; a chart and a table are saved.
        page.evaluate("document.querySelector('[data-chart=loss] svg').focus()")
        page.press("ArrowRight")
        tip = page.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
        check(f"a key reads the first values: {tip!r}", tip.startswith("step ") and "training: " in tip)
        page.evaluate("window.saved = []; URL.createObjectURL = function (b) { b.text().then(t => saved.push(t)); "
                      "return 'data:,'; }; document.querySelectorAll('[data-chart=loss] .tools button').forEach("
                      "b => b.click()); document.querySelector('#numbers .tools button').click()")
        check("four files are saved", page.wait("saved.length === 4"))
        saved = sorted(page.evaluate("saved"), key=len)
        csv = next((t for t in saved if t.startswith("step,training")), "")
        check(f"the curve as CSV: {csv[:60]!r}", len(csv.splitlines()) > 100)
        check("the table as CSV", any(t.startswith("run,state,steps") for t in saved))
        check("the chart as SVG", any(t.startswith("<svg") and "2000/svg" in t for t in saved))
        check("the chart as PNG", page.wait("(document.documentElement.getAttribute('data-saved') || '').startsWith('png')"))

        page.open(f"file://{d}/compare.html")
        inspect(page, "compare")
        names = page.evaluate("[...document.querySelectorAll('[data-chart=loss] .legend li')].map(l => l.textContent)")
        check(f"both runs are in a chart: {names}", names == ["a", "b"])


with tempfile.TemporaryDirectory() as d:
    by_http(d)
    if not find_chromium():
        print("skipped: no Chromium here (TRAINHOST_CHROMIUM names one); the tests by HTTP were run")
        sys.exit(1 if failures else 77)
    subprocess.run([program, *settings(d + "/b", 60), "-q"], check=True)
    subprocess.run([program, "compare", d + "/a", d + "/b", "--html", d + "/compare.html"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-r", d + "/b"], check=True)
    in_browser(d)
sys.exit(1 if failures else 0)
