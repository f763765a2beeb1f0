"""The program under test: how it is started, the small run that most rows repeat, and what a run leaves."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

SHARED = os.path.dirname(os.path.abspath(__file__))

# A run of some milliseconds: 2 layers, 20 tensors, 20 KiB of weights.
TINY = {"model.hidden_size": 16, "model.intermediate_size": 16, "model.num_hidden_layers": 2,
        "model.num_attention_heads": 2, "model.num_key_value_heads": 1, "model.head_dim": 8, "data.seq_len": 8,
        "train.micro_batch": 1, "train.threads": 1, "train.steps": 6, "optimizer.warmup_steps": 1,
        "output.checkpoint_every": 2, "plugins.order": '["cpu"]'}
KNOWN_CODES = (0, 1, 2, 3, 4, 5, 75)
# Seconds until a process counts as hanging. Most need milliseconds; beside other work they wait for a core.
PATIENCE_S = 300


class Outcome:
    """Exit code (negative: the signal that ended the process), stdout, stderr and seconds of one process."""

    def __init__(self, code, out, err, seconds, arguments, environment):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.arguments, self.environment = arguments, environment

    def events(self, kind):
        """Events of that kind on stdout (--json)."""
        found = []
        for line in self.out.splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") == kind:
                found.append(event)
        return found

    def summary(self):
        last = self.err.strip().splitlines()[-1:] or [""]
        return f"exit {self.code}: {last[0][:300]}"


class Program:
    def __init__(self, build, work, nice):
        self.build, self.work, self.nice = os.path.abspath(build), work, nice
        self.launcher = []  # words before the program: mpirun and its options
        self.path = os.path.join(self.build, "bin", "trainhost")
        self.library = os.path.join(self.build, "lib", "fault_injection.so")
        if not os.path.exists(self.library):
            self.library = compile_library(work)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("FAULT_", "TRAINHOST_"))}
        self.environment.update(TRAINHOST_CACHE=os.path.join(work, "cache"), NO_COLOR="1", LC_ALL="C.UTF-8",
                                OPENBLAS_NUM_THREADS="1",
                                TRAINHOST_CPU_PRODUCTS="openblas")  # the library cannot change own products
        self.text = os.path.join(work, "text.txt")
        with open(self.text, "w") as f:
            f.write("a quick brown fox jumps over the lazy dog. " * 40)

    def run(self, arguments, fault=None, environment=None, timeout=PATIENCE_S, directory=None, limits=(), streams=None):
        """Runs `trainhost ARGUMENTS`. `fault`: FAULT_* variables without the prefix. `limits`: (RLIMIT, value) pairs.
        `streams`: arguments of Popen in place of captured stdout and stderr."""
        env = dict(self.environment, **(environment or {}))
        if fault is not None:
            env["LD_PRELOAD"] = self.library
            env.update({"FAULT_" + k: str(v) for k, v in fault.items()})

        def prepare():
            for which, value in limits:
                resource.setrlimit(which, (value, value))
            if self.nice:
                os.nice(self.nice)

        begin = time.monotonic()
        streams = streams or {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        p = subprocess.Popen([*self.launcher, self.path, *arguments], stdin=subprocess.DEVNULL, env=env,
                             cwd=directory or self.work, preexec_fn=prepare if limits or self.nice else None, **streams)
        try:
            out, err = p.communicate(timeout=timeout)
            code = p.returncode
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            code = "timeout"
        words = [x.decode("utf-8", "replace") if x else "" for x in (out, err)]
        return Outcome(code, *words, time.monotonic() - begin, arguments, fault)

    def start(self, arguments, **more):
        """A process whose output is not read; for kills."""
        return subprocess.Popen([self.path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env=self.environment, cwd=self.work, **more)

    def start_paused(self, arguments, fault):
        """Starts a process that sends itself SIGSTOP, and returns once it has stopped."""
        env = dict(self.environment, LD_PRELOAD=self.library, **{"FAULT_" + k: str(v) for k, v in fault.items()})
        p = subprocess.Popen([self.path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=env, cwd=self.work)
        p.arguments, p.fault, p.began = arguments, fault, time.monotonic()
        _, status = os.waitpid(p.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"the process did not stop: {p.stderr.read().decode()[-300:]}")
        return p

    def continue_paused(self, p):
        os.kill(p.pid, signal.SIGCONT)
        out, err = p.communicate(timeout=PATIENCE_S)
        return Outcome(p.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"),
                       time.monotonic() - p.began, p.arguments, p.fault)

    def train(self, folder, sets=None, options=("--json", "-q")):
        """Arguments of the tiny run in `folder`."""
        arguments = ["train", *options]
        values = {**TINY, "data.train": self.text, "output.dir": folder, **(sets or {})}
        for key, value in values.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments

    def command(self, arguments, fault=None):
        """A command line that repeats a run."""
        words = [f"FAULT_{k}={quoted(str(v))}" for k, v in (fault or {}).items()]
        words = words and [*words, f"LD_PRELOAD={self.library}"]
        words += [f"{k}={v}" for k, v in self.environment.items() if k.startswith("TRAINHOST_")]
        return " ".join([*words, self.path, *(quoted(a) for a in arguments)])

    def key_exists(self, key):
        """Whether the run file has this key (TABLE.KEY)."""
        if not hasattr(self, "keys"):
            text = self.run(["init"]).out
            self.keys, table = set(), ""
            for line in text.splitlines():
                word = line.lstrip("# ").split(" ")[0]
                if line.startswith("["):
                    table = line.strip("[]")
                elif "=" in line:
                    self.keys.add(f"{table}.{word}")
        return key in self.keys


def compile_library(work):
    path = os.path.join(work, "fault_injection.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, os.path.join(SHARED, "inject.c"), "-ldl"], check=True)
    return path


def quoted(word):
    plain = word and all(c.isalnum() or c in "-_./=,:+@%" for c in word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def model_bytes(folder):
    """Contents of model/ by file name; {} if there is none."""
    model = os.path.join(folder, "model")
    if not os.path.isdir(model):
        return {}
    return {n: open(os.path.join(model, n), "rb").read() for n in sorted(os.listdir(model))}


def checkpoints(folder):
    """Steps of the published checkpoints."""
    try:
        names = os.listdir(os.path.join(folder, "checkpoints"))
    except FileNotFoundError:
        return []
    return sorted(int(n[5:]) for n in names if n.startswith("step-") and n[5:].isdigit())


def temporary_names(folder):
    return [os.path.join(d, n) for d, dirs, files in os.walk(folder) for n in dirs + files if ".tmp." in n]


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)
    return folder


def finish_run(program, folder, sets=None):
    """Continues an interrupted run to its end as the messages advise: --resume if there is a checkpoint, else a new
    start. Returns (outcome of the last command, steps that were resumed from)."""
    resumed = 0
    if checkpoints(folder):
        arguments = program.train(folder, sets) + ["--resume"]
    elif os.path.isdir(os.path.join(folder, "model")):
        arguments = program.train(folder, sets) + ["--overwrite"]
    else:
        arguments = program.train(folder, sets)
    r = program.run(arguments)
    for e in r.events("start"):
        resumed = e.get("resumed_from", 0)
    return r, resumed


class Reference:
    """The undisturbed tiny run: its model, and the losses of its steps."""

    def __init__(self, program, name="reference", sets=None):
        self.folder, self.sets = empty(os.path.join(program.work, name)), sets or {}
        shutil.rmtree(self.folder)
        r = program.run(program.train(self.folder, self.sets))
        if r.code != 0:
            raise RuntimeError(f"the undisturbed run fails: {r.summary()}")
        self.seconds = r.seconds
        self.model = model_bytes(self.folder)
        self.losses = {e["step"]: e["loss"] for e in r.events("step")}

    def difference(self, folder):
        """Why the run in `folder` did not end with the same model; "" if it did."""
        model = model_bytes(folder)
        if not model:
            return "there is no model"
        return next((f"model/{n} differs" for n in self.model if model.get(n) != self.model[n]), "")


def seeded(seed, *names):
    """A generator of its own for each case, so that a case can be repeated alone."""
    return random.Random("/".join(str(x) for x in (seed, *names)))


def signal_name(number):
    return signal.Signals(number).name


def say(text):
    print(text, file=sys.stderr, flush=True)
