"""Rows whose cases run inside the test programs of the build: with more cases than the tests themselves run."""
import os
import re
import subprocess

# Row: program of build/tests, arguments, variables by tier 1 and 2, and what counts as its cases.
EIGHT_TARGETS = "fuzz/no_reader_violates_a_guarantee/" + ",".join(f"_{n}" for n in range(6, 14))
PROPERTIES = ({"RC_PARAMS": "seed=7 max_success=20000"}, {"RC_PARAMS": "seed=7 max_success=200000"})
PROGRAMS = {
    "F5": [("core_checkpoint_store_test", "checkpoint_power_loss",
            ({"POWER_LOSS_IMAGES": 20000}, {"POWER_LOSS_IMAGES": 200000}), "disk images of each of two programs")],
    # run_file, safetensors, index, checkpoint_manifest, token_file, metrics, tokenizer, model_config
    "F10": [("fuzz_loop_test", EIGHT_TARGETS, ({"FUZZ_LOOP_INPUTS": 5_000_000}, {"FUZZ_LOOP_INPUTS": 40_000_000}),
             "inputs of each of eight targets, without sanitizers")],
    "F11": [("core_checkpoint_safetensors_test", "",
             ({"SAFETENSORS_MUTANTS": 10_000}, {"SAFETENSORS_MUTANTS": 1_000_000}), "mutated files")],
    "F13": [("core_parallel_properties_test", "", PROPERTIES, "random cases of each property"),
            ("plugins_estimators_growth_test", "", PROPERTIES, "")],
    "F21": [("core_plugin_plugin_test", "", ({}, {}), "")],
    "F23": [("plugins_cuda_front_end_front_end_test", "", ({}, {}), ""), ("plugins_cuda_engine_failures_test", "", ({}, {}), "")],
}


def first_number(variables):
    value = next(iter(variables.values()), 0)
    return int(re.search(r"\d+$", str(value)).group())


def run_programs(number):
    def run(c, row):
        if c.tier == 0:
            return row.not_run("a test of its own in CI: " + ", ".join(p[0] for p in PROGRAMS[number]))
        for name, suite, by_tier, unit in PROGRAMS[number]:
            path = os.path.join(c.build, "tests", name)
            if not os.path.exists(path):
                row.not_run(f"{name} is not built")
                continue
            variables = by_tier[c.tier - 1]
            env = dict(os.environ, TRAINHOST_CACHE=os.path.join(c.work, "cache"), FUZZ_LOOP_SEED=str(c.seed),
                       **{k: str(v) for k, v in variables.items()})
            words = [path] + ([f"--run_test={suite}"] if suite else [])
            p = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=c.work,
                               preexec_fn=lambda: os.nice(c.program.nice))
            text = p.stdout.decode("utf-8", "replace")
            ran = re.search(r"Running (\d+) test case", text)
            ok = p.returncode == 0
            command = " ".join([f"{k}='{v}'" for k, v in variables.items()] + words)
            row.case(ok, f"{name}: exit {p.returncode}\n{text[-1500:]}", command)
            if unit:
                row.figure(unit, f"{first_number(variables):,}")
            if ran:
                row.figure(f"{name}, test cases", ran.group(1))
    return run
