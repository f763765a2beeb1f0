"""The probe that runs at the same time as the program (ballast.cpp): rates of the device, its free memory, a ballast.
"""
import contextlib
import json
import os
import select
import signal
import subprocess

from program import NotMeasured, OutOfTime


def child(words: list) -> subprocess.Popen:
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def one_line(process, seconds: float) -> dict:
    """The next line of a running process, as an object."""
    if not select.select([process.stdout], [], [], max(0.0, seconds))[0]:
        raise OutOfTime()
    line = process.stdout.readline()
    if not line:
        raise NotMeasured("the probe failed: " + process.stderr.read().decode("utf-8", "replace").strip()[:200])
    return json.loads(line)


def end(process):
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            pipe.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Probe:
    def __init__(self, path: str, left):
        self.path, self.left = path, left

    def start(self, *words) -> subprocess.Popen:
        if not os.access(self.path, os.X_OK):
            raise NotMeasured(
                f"there is no {self.path}: it is built where the CUDA toolkit is (target trainhost_gpu_probe)"
            )
        return child([self.path, *map(str, words)])

    def rates(self, shapes: list) -> dict:
        """`shapes`: (rows, columns, sum) of the products."""
        return self.answer("rates", *(f"{m},{n},{k}" for m, n, k in shapes))

    def tf32(self) -> str:
        """How a TF32 product rounds its operands: "nearest, ties away from zero", "nearest, ties to even", "toward zero"
        or "unknown"."""
        return self.answer("tf32")["rounding"]

    def attention(self, shapes: list, most_calls: int = 2000) -> list:
        """`shapes`: (sequences, tokens, query heads, key heads, head size). One dict per shape and kind of kernel."""
        return self.answer("attention", most_calls, *(",".join(map(str, s)) for s in shapes))["attention"]

    def nccl(self) -> dict:
        """Version of NCCL, and whether its operations are right in a communicator of one rank."""
        return self.answer("nccl")

    def answer(self, *words) -> dict:
        process = self.start(*words)
        try:
            return one_line(process, self.left())
        finally:
            end(process)

    @contextlib.contextmanager
    def watch(self):
        """A function that returns the free bytes of the device. The same process measures every time, so its own
        context cancels out."""
        process = self.start("free")
        try:
            one_line(process, self.left())

            def free() -> int:
                process.stdin.write(b"\n")
                process.stdin.flush()
                return one_line(process, self.left())["free_bytes"]
            yield free
        finally:
            end(process)

    @contextlib.contextmanager
    def ballast(self, leave: int):
        """Context manager: meanwhile the device has at most about `leave` bytes free; yields the bytes that are free.
        """
        process = self.start("ballast", leave)
        try:
            yield one_line(process, self.left())["free_bytes"]
        finally:
            end(process)
