"""The machine, the date and the commit, for the report."""
import datetime
import os
import platform
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


def cpu_facts() -> dict:
    """First processor of /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo") as f:
            text = f.read()
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+?)\s*:[ \t]*(.*)$", text.split("\n\n")[0], re.M))


def flags() -> set:
    return set(cpu_facts().get("flags", "").split())


def openblas_core() -> str:
    """OPENBLAS_CORETYPE for this CPU, chosen as plugins/cpu does: OpenBLAS uses its oldest kernels on a newer CPU."""
    return "SkylakeX" if AVX512 <= flags() else "Haswell" if {"avx2", "fma"} <= flags() else "Nehalem"


def multiplies_bf16() -> bool:
    """Whether this CPU has instructions for products in bf16; without them torch needs minutes per step."""
    return bool(flags() & {"avx512_bf16", "amx_bf16"})


def cores() -> int:
    return len(os.sched_getaffinity(0))


def load() -> float:
    return round(os.getloadavg()[0], 2)


def git(*words: str) -> str:
    try:
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit() -> str:
    """Commit of this source tree, with "+ changes" if it has uncommitted changes."""
    h = git("rev-parse", "--short=12", "HEAD")
    return (h + (" + changes" if git("status", "--porcelain") else "")) if h else "no git here"


def operating_system() -> str:
    try:
        with open("/etc/os-release") as f:
            name = re.search(r'^PRETTY_NAME="?(.*?)"?$', f.read(), re.M)
    except OSError:
        name = None
    return name[1] if name else platform.system()


def describe() -> dict:
    cpu = cpu_facts()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wide = "AVX-512" if AVX512 <= flags() else "AVX2" if "avx2" in flags() else "neither AVX2 nor AVX-512"
    more = [f for f in ("avx512_bf16", "amx_bf16") if f in flags()]
    return {
        "cpu": cpu.get("model name", platform.machine()), "family": cpu.get("cpu family"), "model": cpu.get("model"),
        "instructions": ", ".join([wide] + more), "cores": cores(), "memory_bytes": memory,
        "system": operating_system(), "kernel": platform.release(), "load_before": load(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": commit(),
    }
