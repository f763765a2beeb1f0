"""F24: signals at every stage of a run, closed and failing streams, limits, locales, clock, terminal."""
import os
import pty
import resource
import signal
import subprocess

from program import PATIENCE_S, checkpoints, empty, finish_run, signal_name

STOP = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU]
# Text of an event and what comes after it: the first step, a step, a checkpoint, the evaluation, the model.
STAGES = [("start", '"event":"start"'), ("step 1", '"event":"step","step":1,'), ("step 5", '"event":"step","step":5,'),
          ("checkpoint", '"event":"checkpoint","step":2'), ("last step", '"event":"step","step":6,'),
          ("last checkpoint", '"event":"checkpoint","step":6'), ("end", '"event":"done"')]


def fresh(folder):
    empty(folder)
    os.rmdir(folder)
    return folder


def one_signal(c, row, base, number, stage, trigger):
    folder = fresh(os.path.join(c.work, "F24"))
    fault = {"TRIGGER": trigger, "SIGNALS": int(number)}
    r = c.program.run(c.program.train(folder), fault)
    name = f"{signal_name(number)} at {stage}"
    if stage == "end":  # the model is complete: nothing is left to stop
        return row.case(r.code == 0 and not base.difference(folder), f"{name}: {r.summary()}", folder=folder,
                        kept_in=c.kept)
    ok = r.code == 75 and "stopping with a checkpoint" in r.err and checkpoints(folder)
    row.case(ok, f"{name}: {r.summary()}", c.program.command(c.program.train(folder), fault), folder, c.kept)
    if ok:
        again, _ = finish_run(c.program, folder)
        why = again.summary() if again.code else base.difference(folder)
        row.case(not why, f"{name}, resumed: {why}", folder=folder, kept_in=c.kept)


def two_signals(c, row, base, first, second):
    folder = fresh(os.path.join(c.work, "F24"))
    fault = {"TRIGGER": '"event":"step","step":5,', "SIGNALS": f"{int(first)},{int(second)}"}
    r = c.program.run(c.program.train(folder), fault)
    ok = r.code == -int(second) and " lost" in r.err
    row.case(ok, f"{signal_name(first)}, then {signal_name(second)}: {r.summary()}",
             c.program.command(c.program.train(folder), fault), folder, c.kept)
    again, _ = finish_run(c.program, folder)
    row.case(again.code == 0 and not base.difference(folder), f"resumed after two signals: {again.summary()}",
             folder=folder, kept_in=c.kept)


def by_shell(c, row, base, label, redirection, codes=(0,), prefix="", model=True):
    """The run by /bin/sh, with its streams redirected."""
    folder = fresh(os.path.join(c.work, "F24"))
    words = " ".join("'" + a.replace("'", "'\\''") + "'" for a in [c.program.path, *c.program.train(folder)])
    p = subprocess.run(["/bin/sh", "-c", f"{prefix} {words} {redirection}"], env=c.program.environment, cwd=c.work,
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ok = p.returncode in codes and (not model or not base.difference(folder))
    row.case(ok, f"{label}: exit {p.returncode}: {p.stderr.decode('utf-8', 'replace')[-200:]}", folder=folder,
             kept_in=c.kept)


def lost_terminal(c, row, base):
    """The terminal of the run is closed: writes to it fail from then on, and SIGHUP may come."""
    folder = fresh(os.path.join(c.work, "F24"))
    master, slave = pty.openpty()
    env = dict(c.program.environment, TERM="xterm")
    p = subprocess.Popen([c.program.path, *c.program.train(folder, {"train.steps": 2000}, options=[])],
                         stdin=slave, stdout=slave, stderr=slave, env=env, cwd=c.work, start_new_session=True)
    os.close(slave)
    os.read(master, 100)
    os.close(master)
    try:
        code = p.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        p.kill()
        code = "timeout"
    row.case(code in (0, 75), f"the terminal vanishes: exit {code}", folder=folder, kept_in=c.kept)


def signals(c, row):
    base = c.reference()
    cases = [(one_signal, (n, stage, trigger)) for n in STOP for stage, trigger in STAGES]
    cases += [(two_signals, pair) for pair in [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM),
                                               (signal.SIGTERM, signal.SIGHUP), (signal.SIGUSR1, signal.SIGINT)]]
    for label, redirection in [("stdout closed", ">&-"), ("stderr closed", "2>&-"), ("both closed", ">&- 2>&-"),
                               ("all closed", "<&- >&- 2>&-"), ("stdin closed", "<&-"), ("stderr full", "2>/dev/full"),
                               ("stdout a file", ">/dev/null")]:
        cases.append((by_shell, (label, redirection, (0, 1) if ">&-" in redirection else (0,))))
    # The last result cannot be printed, which is a failure of the command; the model is written.
    cases.append((by_shell, ("stdout full", ">/dev/full", (1,))))
    cases.append((by_shell, ("both full", ">/dev/full 2>&1", (1,))))
    cases.append((by_shell, ("reader of a pipe ends", "| head -c 10", (0,))))
    cases.append((by_shell, ("nohup", "", (0,), "nohup")))
    cases.append((by_shell, ("SIGPIPE ignored", "| true", (0,), "trap '' PIPE;")))
    cases.append((by_shell, ("16 descriptors", "", (0, 1), "ulimit -n 16;", False)))
    cases.append((by_shell, ("8 descriptors", "", (0, 1, 127), "ulimit -n 8;", False)))
    for locale in ("C", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8", "en_US.ISO-8859-1", "no_SUCH"):
        cases.append((by_shell, (f"locale {locale}", "", (0,), f"LC_ALL={locale}; export LC_ALL;")))
    cases.append((lost_terminal, ()))
    for seconds in (-10**9, -3600, 3600, 10**9):
        cases.append((clock_jump, (seconds,)))
    cases.append((processor_limit, ()))
    for function, arguments in c.sample(cases, 5, "F24"):
        function(c, row, base, *arguments)
    row.figure("situations", len(cases))


def clock_jump(c, row, base, seconds):
    folder = fresh(os.path.join(c.work, "F24"))
    fault = {"TRIGGER": '"event":"step","step":3,', "CLOCK": seconds}
    r = c.program.run(c.program.train(folder), fault)
    row.case(r.code == 0 and not base.difference(folder), f"clock jumps by {seconds} s: {r.summary()}", folder=folder,
             kept_in=c.kept)


def processor_limit(c, row, base):
    """SIGXCPU of a soft limit ends the run with a checkpoint."""
    folder = fresh(os.path.join(c.work, "F24"))
    env = dict(c.program.environment)
    p = subprocess.run([c.program.path, *c.program.train(folder, {"train.steps": 10**7, "output.checkpoint_every": 0})],
                       env=env, cwd=c.work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 30)))
    row.case(p.returncode == 75 and bool(checkpoints(folder)), f"processor time limit: exit {p.returncode}")
