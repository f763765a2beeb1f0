"""Headless Chromium by its debugging pipe, for the tests of pages: no driver and no package is needed.

  with Browser(chromium) as page: page.open(url); page.evaluate("1 + 1"); page.screenshot(360, "page.png")
"""

import base64, json, os, select, shutil, subprocess, tempfile, time


def find_chromium():
    names = [
        os.environ.get("TRAINHOST_CHROMIUM"),
        "chromium",
        "chromium-headless-shell",
        "chromium-browser",
        "google-chrome",
        "chrome",
    ]
    return next((p for p in (shutil.which(n) for n in names if n) if p), None)


class Browser:
    """One page. `console`: what it has logged, as text. `requests`: the addresses that it has asked for."""

    def __init__(self, chromium):
        self.profile = tempfile.mkdtemp()
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def descriptors():
            # The browser reads 3 and writes 4. First to numbers that neither of the two has.
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--user-data-dir=" + self.profile,
                "--remote-debugging-pipe",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "about:blank",
            ],
            close_fds=False,
            preexec_fn=descriptors,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.console, self.requests = [], []
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in target if t["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, limit):
        """The next message of the browser; None after `limit` seconds."""
        end = time.monotonic() + limit
        while b"\0" not in self.buffer:
            if not select.select([self.into], [], [], max(0, end - time.monotonic()))[0]:
                return None
            part = os.read(self.into, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        m = json.loads(text)
        if m.get("method") == "Runtime.exceptionThrown":
            d = m["params"]["exceptionDetails"]
            self.console.append(d["text"] + " " + d.get("exception", {}).get("description", ""))
        elif m.get("method") == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(a.get("value")) for a in m["params"]["args"]))
        elif m.get("method") == "Log.entryAdded":
            self.console.append(m["params"]["entry"]["text"])
        elif m.get("method") == "Network.requestWillBeSent":
            self.requests.append(m["params"]["request"]["url"])
        return m

    def call(self, method, limit=30, **parameters):
        self.number += 1
        m = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.out, json.dumps(m).encode() + b"\0")
        end = time.monotonic() + limit
        while time.monotonic() < end:
            r = self.message(end - time.monotonic())
            if r and r.get("id") == m["id"]:
                if "error" in r:
                    raise RuntimeError(f"{method}: {r['error']['message']}")
                return r["result"]
        raise RuntimeError(f"{method}: no answer within {limit} s")

    def open(self, url):
        self.console.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement && document.documentElement.getAttribute('data-ready') === '1'")

    def evaluate(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def wait(self, expression, limit=30):
        """Waits until the expression is true."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.evaluate(expression):
                return True
            time.sleep(0.1)
        return False

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "ArrowRight": 39, "Enter": 13}[key])

    def resize(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 500)
        time.sleep(0.2)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if on else "light"}])

    def screenshot(self, file, whole=False):
        kind = {"format": "webp", "quality": 70} if file.endswith(".webp") else {"format": "png"}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **kind)["data"]
        with open(file, "wb") as f:
            f.write(base64.b64decode(data))
