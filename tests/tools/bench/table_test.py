#!/usr/bin/env python3
"""Tests tools/bench without measuring: arithmetic of the table, check for equal work, clean environment."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/bench"))
import child
import machine
import ours
import table
from rows import QUICK, ROWS, steps_of
from sample import Sample

TINY = ROWS["byte-tiny"]


def sample(column, step_ms, peak=1 << 20, parameters=TINY.parameters, tokens=TINY.tokens, loss=5.6, row=TINY):
    return Sample(row.name, column, 0, tokens, step_ms, peak, parameters, ["x"], {}, loss)


def cells(**rates):
    """One sample per column, with the given tokens per second."""
    return {
        (TINY.name, c.replace("_", " ")): table.Cell([sample(c, [TINY.tokens / r * 1e3])]) for c, r in rates.items()
    }


def line(t, label):
    return next((l[1] for l in t.lines if l[0] == label), None)


class TheMachine(unittest.TestCase):
    def test_bf16_needs_instructions_for_its_products(self):
        before = machine.flags
        try:
            for flags, want in (({"avx2", "fma"}, False), ({"avx512f", "avx512_bf16"}, True), ({"amx_bf16"}, True)):
                machine.flags = lambda flags=flags: flags
                self.assertEqual(machine.multiplies_bf16(), want)
        finally:
            machine.flags = before


class TheTable(unittest.TestCase):
    def test_the_best_step_of_the_best_round_counts(self):
        c = table.Cell([sample("ours fp32", [200, 100, 400]), sample("ours fp32", [50, 800])])
        self.assertAlmostEqual(c.rate("best"), 2048 / 0.050)
        self.assertAlmostEqual(c.spread("best"), 0.5)

    def test_the_median_is_a_measured_step_and_the_slower_of_two(self):
        self.assertAlmostEqual(sample("x", [100, 300, 200]).tokens_per_s("median"), 2048 / 0.2)
        self.assertAlmostEqual(sample("x", [100, 200]).tokens_per_s("median"), 2048 / 0.2)

    def test_the_peak_is_the_largest_of_all_rounds(self):
        self.assertEqual(table.Cell([sample("x", [1], peak=5), sample("x", [1], peak=7)]).peak_bytes(), 7)

    def test_ratios_state_their_target_and_whether_it_is_met(self):
        peers = [("torch 1.13 fp32", "fp32", True)]
        t = table.build(
            [TINY], cells(ours_fp32=19000, ceiling=20000) | cells(**{"torch 1.13 fp32": 5500}), peers, "best"
        )
        self.assertEqual(line(t, "ours / ceiling"), "0.95 (met: >= 0.92)")
        self.assertEqual(line(t, "ours fp32 / torch 1.13 fp32"), "3.5x (MISSED: >= 3.8)")

    def test_a_target_is_compared_with_the_unrounded_figure(self):
        t = table.build([TINY], cells(ours_fp32=9196, ceiling=10000), [], "best")
        self.assertEqual(line(t, "ours / ceiling"), "0.92 (MISSED: >= 0.92)")

    def test_memory_is_compared_with_an_upper_bound(self):
        both = {
            (TINY.name, "ours fp32"): table.Cell([sample("o", [1], peak=19)]),
            (TINY.name, "t"): table.Cell([sample("t", [1], peak=100)]),
        }
        self.assertEqual([v[3] for v in table.verdicts([TINY], both, "t", "best")], [None, False, True])

    def test_a_missing_peer_shows_the_reason_and_its_targets_are_not_measured(self):
        absent = {(TINY.name, "torch of x fp32"): table.Cell([], "not installed")}
        t = table.build([TINY], cells(ours_fp32=1) | absent, [("torch of x fp32", "fp32", False)], "best")
        self.assertEqual(line(t, "torch of x fp32, tokens/s"), "not installed")
        self.assertIsNone(line(t, "ours fp32 / torch of x fp32"))
        self.assertEqual([v[3] for v in table.verdicts([TINY], absent, "", "best")], [None] * 3)

    def test_every_line_is_equally_wide(self):
        text = table.build([TINY], cells(ours_fp32=19000, ceiling=20000), [], "best").markdown()
        self.assertEqual(len({len(l) for l in text.splitlines()}), 1)


class EqualWork(unittest.TestCase):
    def test_equal_columns_give_no_difference(self):
        self.assertEqual(
            table.same_model(TINY, [sample("a", [1]), sample("b", [1], loss=5.61), sample("c", [1], loss=None)]), []
        )

    def test_a_different_head_batch_or_loss_is_reported(self):
        untied = sample("a", [1], parameters=TINY.parameters + TINY.vocab * TINY.hidden)
        self.assertIn("parameters", table.same_model(TINY, [untied])[0])
        self.assertIn("tokens per step", table.same_model(TINY, [sample("a", [1], tokens=1024)])[0])
        self.assertIn("first losses", table.same_model(TINY, [sample("a", [1]), sample("b", [1], loss=10.4)])[0])

    def test_parameters_are_those_of_the_tied_models(self):
        self.assertEqual([r.parameters for r in ROWS.values()], [3279104, 15191712, 41689600, 109529856])

    def test_settings_of_ours_include_every_dimension(self):
        keys = dict(s.split("=", 1) for s in ours.settings(TINY, "fp32", 2, 5, "t.bin", "out"))
        self.assertEqual(
            (keys["model.hidden_size"], keys["model.head_dim"], keys["train.micro_batch"]), ("256", "64", "8")
        )

    def test_the_number_of_steps_is_bounded(self):
        self.assertEqual(steps_of(ROWS["110M"], 0.1), 3)
        self.assertEqual(steps_of(QUICK, 100), 60)


class Children(unittest.TestCase):
    def test_preset_variables_are_removed_and_those_of_the_column_set(self):
        os.environ.update(OPENBLAS_CORETYPE="Haswell", OPENBLAS_L2_SIZE="512", OMP_NUM_THREADS="1")
        env = child.clean_environment({"OMP_WAIT_POLICY": "passive"})
        self.assertFalse({"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS"} & set(env))
        self.assertEqual((env["OMP_WAIT_POLICY"], env["PATH"]), ("passive", os.environ["PATH"]))

    def test_peak_memory_is_the_child_s_own(self):
        r = child.run_child([sys.executable, "-c", "x = bytearray(b'1') * (100 << 20)"], {})
        self.assertEqual(r.code, 0)
        self.assertTrue(100 << 20 < r.peak_bytes < 200 << 20, r.peak_bytes)

    def test_a_child_over_its_time_limit_is_killed_with_its_process_group(self):
        r = child.run_child(["sh", "-c", "sleep 100 & wait"], {}, timeout=0.2)
        self.assertTrue(r.timed_out)
        self.assertEqual(r.reason(), "took too long")

    def test_the_reason_of_a_failure_is_its_last_line(self):
        r = child.run_child([sys.executable, "-c", "raise ValueError('no such kernel')"], {})
        self.assertEqual(r.reason(), "ValueError: no such kernel")


if __name__ == "__main__":
    unittest.main()
