"""F29 and F30 at tier 0: two modules of the build are compiled again, and their tests linked with the new objects.

That takes seconds where a build of its own takes minutes. Higher tiers: source_checks.py. The slow cases of the tests
are left out, so that a removed check which only they notice is not judged here.
"""
import os
import re
import shlex
import subprocess

import source_checks
from source_checks import MUTANT_HEADER, numbered, reaching_cases, taken_branches, test_cases

MODULES = ("base", "checkpoint")
TESTS = ("core_base_base_test", "core_checkpoint_safetensors_test", "core_checkpoint_store_test")
SLOW_CASES = {
    "a_header_above_the_limit_of_the_reader_is_not_written",
    "random_files_of_all_types_and_odd_sizes_round_trip_exactly",
    "mutated_files_are_rejected_or_read_within_bounds", "every_16_bit_float_is_converted_exactly",
    "when_a_system_call_fails_the_earlier_checkpoint_remains", "every_single_flipped_bit_is_detected",
    "after_a_kill_at_every_system_call_a_verified_checkpoint_exists",
    "in_a_thousand_races_exactly_one_process_gets_the_lock", "without_syncs_a_power_loss_loses_checkpoints",
    "after_a_kill_at_any_time_a_verified_checkpoint_exists", "a_failed_device_keeps_the_published_checkpoints",
    "a_full_disk_loses_no_checkpoint_and_saving_recovers", "after_a_power_loss_the_promised_checkpoint_verifies",
    "after_a_power_loss_a_model_directory_and_its_other_files_are_complete",
    "every_truncation_and_every_extension_is_detected", "at_least_800_files_violated_a_rule"}
REMOVED = 60  # checks; all that the fast cases reach take 10 s more
# Percent of the branches of readers and of the checkpoint protocol that the fast cases take, less a margin of 3 for
# other compilers.
LEAST_TAKEN = {
    "core/base/json_reader.cpp": 92, "core/base/json_value.cpp": 87, "core/base/text.cpp": 89,
    "core/checkpoint/durable_read.cpp": 91, "core/checkpoint/newest.cpp": 86, "core/checkpoint/other_formats.cpp": 93,
    "core/checkpoint/require.cpp": 88, "core/checkpoint/safetensors_file.cpp": 93,
    "core/checkpoint/safetensors_header.cpp": 93, "core/checkpoint/shard_index.cpp": 92,
    "core/checkpoint/store.cpp": 87, "core/checkpoint/tensor_files.cpp": 90,
    "core/checkpoint/verify_checkpoint.cpp": 90, "core/checkpoint/weight_source.cpp": 91}


class NoBuild(Exception):
    """Why the build cannot be compiled again in part."""


def commands(build, target):
    try:
        r = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True)
    except OSError:
        raise NoBuild("there is no ninja")
    lines = [x for x in r.stdout.splitlines() if not x.startswith("ninja: ")]
    if r.returncode or not lines:
        raise NoBuild(f"{target} is not built by ninja")
    return lines


def run(command, build):
    r = subprocess.run(["/bin/sh", "-c", command], cwd=build, capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"{command[:300]}\n{r.stderr[-2000:]}")


def compiled_again(c, module, folder, flags, source_of):
    """Compiles the sources of a module with more flags into a library. Returns (library of the build, the new one)."""
    library, objects = f"core/{module}/libtrainhost_{module}.a", []
    for command in commands(c.build, library):
        m = re.search(rf" -MD .* -o core/{module}/\S+ -c (\S+)$", command)
        if not m:
            continue
        if "--coverage" in flags and "clang" in command.split()[0]:
            raise NoBuild("gcov reads no coverage of clang")
        source = m.group(1)
        if source_of:
            text = f'#include "{source}"\n'
            if "/Unity/" in source:
                with open(source) as f:
                    text = f.read()
            text = re.sub(rf'#include ".*/(core/{module}/\w+\.cpp)"', lambda x: source_of(x.group(1)), text)
            source = os.path.join(folder, f"{module}{len(objects)}.cpp")
            with open(source, "w") as f:
                f.write(text)
        objects.append(os.path.join(folder, f"{module}{len(objects)}.o"))
        run(f"{command[:m.start()]} {flags} -o {objects[-1]} -c {source}", c.build)
    again = os.path.join(folder, f"{module}.a")
    run(f"ar qcs {again} {' '.join(objects)}", c.build)
    return library, again


def linked_again(c, folder, flags, source_of=None):
    """Links the tests with the modules compiled again. Returns their paths.

    `source_of`: gives the text that is compiled in place of a file core/MODULE/NAME.cpp."""
    if shlex.quote(folder) != folder:
        raise NoBuild(f"{folder} has characters that a shell interprets")
    for name in TESTS:
        if not os.path.exists(os.path.join(c.build, "tests", name)):
            raise NoBuild(f"{name} is not built")
    os.makedirs(folder)
    libraries = [compiled_again(c, module, folder, flags, source_of) for module in MODULES]
    programs = []
    for name in TESTS:
        programs.append(os.path.join(folder, name))
        link = commands(c.build, f"tests/{name}")[-1].replace(f" -o tests/{name} ", f" {flags} -o {programs[-1]} ")
        for as_built, again in libraries:
            link = link.replace(f" {as_built} ", f" {again} ")
        run(link, c.build)
    return programs


def fast_cases(row, programs):
    jobs = [(p, x) for p in programs for x in test_cases(p)]
    names = {x.split("/")[-1] for _, x in jobs}
    row.case(SLOW_CASES <= names, f"no test cases {', '.join(sorted(SLOW_CASES - names))}: correct quick_checks.py")
    return [(p, x) for p, x in jobs if x.split("/")[-1] not in SLOW_CASES]


def mutation(c, row):
    if c.tier:
        return source_checks.mutation(c, row)
    folder, checks = os.path.join(c.work, "F30"), []

    def source_of(file):
        return f'#include "{MUTANT_HEADER}"\n#line 1 "{file}"\n' + numbered(c.root, file, checks) + "\n"

    try:
        programs = linked_again(c, folder, "-Og", source_of)
    except NoBuild as e:
        return row.not_run(str(e))
    cases = reaching_cases(c, fast_cases(row, programs), checks)
    reached = [x for x in checks if cases[x["number"]]]
    row.figure("reached by the fast cases", len(reached))
    source_checks.remove_checks(c, row, c.sample_of(reached, c.mutants or REMOVED, "F30"), cases)


def coverage(c, row):
    if c.tier:
        return source_checks.coverage(c, row)
    folder = os.path.join(c.work, "F29")
    try:
        programs = linked_again(c, folder, "-Og --coverage")
    except NoBuild as e:
        return row.not_run(str(e))
    cases = fast_cases(row, programs)
    for program in programs:
        why = source_checks.first_error(c, program, [x for p, x in cases if p == program], 300)
        row.case(not why, f"{os.path.basename(program)}: {why}")
    figures, _ = taken_branches(c.root, folder)
    c.details["F29"] = {f: {"taken": t, "branches": n} for f, (t, n) in sorted(figures.items())}
    for file, least in LEAST_TAKEN.items():
        taken, branches = figures.get(file, (0, 1))
        row.case(100 * taken >= least * branches, f"{file}: {100 * taken / branches:.1f} % of {branches} branches are "
                 f"taken by its tests, less than {least} %")
    row.figure("files", len(LEAST_TAKEN))
    row.figure("taken", source_checks.share([v for f, v in figures.items() if f in LEAST_TAKEN]))
