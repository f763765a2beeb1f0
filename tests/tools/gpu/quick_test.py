#!/usr/bin/env python3
"""Runs tools/gpu/accept from its command line to its JSON, every part, on the emulated device. Arguments: ACCEPT and
its files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ACCEPT, *WORDS = sys.argv[1:]
HERE = os.path.dirname(os.path.abspath(__file__))


class Quick(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.folder.name, "out.json")
        self.environment = {**os.environ, "EMULATED_CUDA_FREE": os.path.join(self.folder.name, "free")}

    def tearDown(self):
        self.folder.cleanup()

    def words(self, *more):
        return [sys.executable, "-B", ACCEPT, *WORDS, "--out", self.out, "--scratch", self.folder.name, *more]

    def accept(self, *more):
        r = subprocess.run(self.words(*more), capture_output=True, text=True, env=self.environment)
        return r, self.told() if os.path.exists(self.out) else None

    def told(self):
        with open(self.out) as f:
            return json.load(f)

    def statuses(self, told, step):
        return {f["what"]: f["status"] for f in told["figures"] if f["step"] == step}

    def test_every_step_of_the_first_part_ends_with_figures(self):
        r, told = self.accept()
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        self.assertEqual(told["schema"], "trainhost.gpu/1")
        steps = subprocess.run(self.words("--list"), capture_output=True, text=True).stdout.split()
        self.assertEqual(set(told["step_seconds"]), set(steps))
        self.assertEqual({f["step"] for f in told["figures"]}, set(steps))
        self.assertEqual(set(self.statuses(told, "ballast").values()), {"held"})
        for step in ("exact", "optimizers", "adapters"):
            self.assertEqual(set(self.statuses(told, step).values()), {"held"})
        self.assertEqual(self.statuses(told, "verify")["GPU-003"], "held")
        self.assertEqual(self.statuses(told, "ranks")["NCCL, one rank"], "held")
        if shutil.which("mpirun"):
            self.assertEqual(self.statuses(told, "ranks")["two ranks on one GPU"], "held")
        self.assertEqual(self.statuses(told, "tensor"), {"the whole step": "skipped"})
        self.assertTrue(
            all(run["words"] for run in told["runs"]) and any(len(run["step_ms"]) > 1 for run in told["runs"])
        )
        table = [line for line in r.stdout.splitlines() if line.startswith("|")]
        self.assertEqual(len({len(line) for line in table}), 1)
        self.assertEqual(len(table), 2 + len(told["figures"]))
        self.assertFalse([f for f in os.listdir(self.folder.name) if f != "out.json"])  # nothing is left behind

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_ranks_on_several_gpus_are_compared_with_one(self):
        self.environment["FAKE_CUDA_DEVICES"] = "4"
        r, told = self.accept("--only", "tensor")
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        found = self.statuses(told, "tensor")
        self.assertEqual(set(found.values()), {"held"})
        self.assertIn("2 x 2 ranks, ZeRO 3", found)
        self.assertEqual(len(found), 7)

    def test_every_step_of_the_first_minutes_ends_with_figures(self):
        r, told = self.accept("--first", "--sanitizer", os.path.join(HERE, "fake_sanitizer.sh"))
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        steps = subprocess.run(self.words("--first", "--list"), capture_output=True, text=True).stdout.split()
        self.assertEqual({f["step"] for f in told["figures"]}, set(steps))
        self.assertEqual(set(self.statuses(told, "vocabulary").values()), {"held"})
        self.assertEqual(self.statuses(told, "tf32"), {"rounding of operands": "held"})
        self.assertEqual(self.statuses(told, "racecheck"), {"the whole step": "skipped"})
        self.assertIn("not measured: racecheck refuses", told["figures"][-1]["text"])

    def test_the_json_is_there_after_the_first_step(self):
        p = subprocess.Popen(self.words("--only", "rates,golden"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True, env=self.environment, start_new_session=True)
        for line in p.stderr:
            if line.startswith("golden"):
                break
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        p.stderr.close()
        self.assertEqual(list(self.told()["step_seconds"]), ["rates"])

    def test_torch_is_compared_and_a_python_without_it_is_skipped_by_name(self):
        r, told = self.accept("--peer", "--python", os.path.join(HERE, "fake_python.py"), "--only", "1.1B-bf16")
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        found = {f["what"]: f for f in told["figures"]}
        self.assertIn("micro-batch 8", found["torch"]["text"])  # the larger one did not fit
        self.assertGreater(found["ours / torch"]["value"], 0)
        self.assertNotIn("the same model", found)
        r, told = self.accept("--peer", "--python", "/bin/false", "--only", "1.1B-bf16")
        self.assertEqual(r.returncode, 0)
        self.assertIn("has no torch", told["figures"][0]["text"])

    def test_a_tool_that_refuses_or_is_missing_is_skipped_by_name(self):
        r, told = self.accept("--sanitize", "--sanitizer", os.path.join(HERE, "fake_sanitizer.sh"))
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        self.assertEqual(list(self.statuses(told, "memcheck").values()), ["held", "held"])
        self.assertEqual(list(self.statuses(told, "racecheck").values()), ["skipped"])
        self.assertIn("racecheck refuses: Error: the device is not supported", told["figures"][-1]["text"])
        r, told = self.accept("--sanitize", "--sanitizer", "/nowhere")
        self.assertEqual([f["status"] for f in told["figures"]], ["skipped", "skipped"])

    def test_what_there_is_no_time_for_is_named(self):
        r, told = self.accept("--minutes", "0.03", "--only", "curves,verify")
        self.assertEqual(r.returncode, 1)
        self.assertEqual(told["figures"][-1]["status"], "LEFT OUT")
        self.assertIn("--only verify", r.stdout)

    def test_ctrl_c_prints_what_was_measured(self):
        p = subprocess.Popen(
            self.words("--only", "rates,golden,curves"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        while "golden" not in p.stderr.readline():
            pass
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1)
        self.assertIn("copies inside the device", out)
        self.assertIn("stopped before its end", out)
        self.assertEqual(self.told()["figures"][-1]["status"], "LEFT OUT")

    def test_without_a_device_the_reason_is_said_once(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = ""
        r, told = self.accept()
        self.assertEqual((r.returncode, told), (1, None))
        self.assertIn('CUDA_VISIBLE_DEVICES="" hides the only device', r.stderr)

    def test_a_wrong_word_is_exit_2_with_the_right_ones(self):
        r, _ = self.accept("--only", "golde")
        self.assertEqual(r.returncode, 2)
        self.assertIn("golden", r.stderr)
        self.assertEqual(self.accept("--program", "/nowhere")[0].returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
