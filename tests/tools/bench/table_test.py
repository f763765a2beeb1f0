#!/usr/bin/env python3
"""Tests tools/bench without measuring: arithmetic of the table, check for equal work, clean environment."""
import importlib.machinery
import importlib.util
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/bench"))
import child
import machine
import ours
import peer
import table
from rows import QUICK, ROWS, steps_of
from sample import NotMeasured, Sample
from time_limit import TimeLimit

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


class ThePeak(unittest.TestCase):
    def test_the_peak_follows_from_rate_and_mfu_of_a_run_in_fp32(self):
        done = {"tokens_per_s": TINY.tokens / 0.1, "mfu": 0.5}
        self.assertAlmostEqual(ours.fma_peak(TINY, "fp32", done), TINY.flops / 0.1 / 0.5)
        self.assertIsNone(ours.fma_peak(TINY, "bf16", done))
        self.assertIsNone(ours.fma_peak(TINY, "fp32", {"tokens_per_s": 1.0}))

    def test_every_rate_has_a_line_with_its_part_of_the_highest_peak(self):
        row2 = ROWS["42M"]
        fast, slow = sample("ours fp32", [100]), sample("ours fp32", [1000], row=row2, tokens=row2.tokens)
        fast.detail, slow.detail = {"fma_peak": TINY.flops / 0.08}, {"fma_peak": TINY.flops / 0.1}
        both = {(TINY.name, "ours fp32"): table.Cell([fast]), (row2.name, "ours fp32"): table.Cell([slow]),
                (TINY.name, "t"): table.Cell([sample("t", [160])])}
        t = table.build([TINY, row2], both, [("t", "fp32", False)], "best")
        lines = {l[0]: l[1:] for l in t.lines}
        self.assertEqual(lines["FMA peak, GFLOP/s"], [f"{TINY.flops / 0.08 / 1e9:,.0f}"] * 2)
        self.assertEqual(lines["ours fp32 / FMA peak"][0], "0.80")
        self.assertEqual(lines["ours fp32 / FMA peak"][1], f"{row2.flops / 1.0 / (TINY.flops / 0.08):.2f}")
        self.assertEqual(lines["t / FMA peak"], ["0.50", table.MISSING])

    def test_without_a_measured_peak_there_is_no_such_line(self):
        t = table.build([TINY], cells(ours_fp32=1), [], "best")
        self.assertFalse([l for l in t.lines if "FMA" in l[0]])


class TheTime(unittest.TestCase):
    def limit(self, minutes, names=tuple(ROWS)):
        self.now = 1000.0
        return TimeLimit([ROWS[n] for n in names], minutes, 5, lambda: self.now)

    def test_all_rows_end_within_the_limit_and_the_last_one_uses_what_is_left(self):
        limit = self.limit(30)
        for name in ROWS:
            limit.begin_row(ROWS[name])
            self.now += 20  # the rows before the last one are short
        self.assertAlmostEqual(limit.end_of_row, 1000 + 30 * 60)

    def test_larger_models_get_larger_shares(self):
        limit = self.limit(30, ("byte-tiny", "110M"))
        limit.begin_row(ROWS["byte-tiny"])
        self.assertTrue(self.now < limit.end_of_row < self.now + 15 * 60)

    def test_the_first_round_is_measured_and_others_only_if_they_end_in_time(self):
        limit = self.limit(1, ("42M",))
        limit.begin_row(ROWS["42M"])
        self.assertTrue(limit.may_measure(0, 0))
        self.now += 25
        self.assertTrue(limit.may_measure(1, 25))
        self.now += 25
        self.assertFalse(limit.may_measure(2, 25))
        self.now += 1000
        self.assertTrue(limit.may_measure(0, 0))

    def test_settings_are_tried_in_a_third_of_the_time_of_the_row(self):
        limit = self.limit(1, ("42M",))
        limit.begin_row(ROWS["42M"])
        self.assertTrue(limit.may_try())
        self.now += 21
        self.assertFalse(limit.may_try())

    def test_without_a_limit_everything_is_measured(self):
        limit = self.limit(0)
        limit.begin_row(TINY)
        self.now += 1e9
        self.assertTrue(limit.may_measure(7, 1e6) and limit.may_try())

    def test_a_peer_tries_one_setting_that_works_when_the_time_is_over(self):
        p = peer.Peer("python", "2.15.0", "fp32", False, 2, ".")
        ran = []

        def run(row, round_, steps, seconds, setting, least, timeout):
            ran.append(setting.name)
            if len(ran) == 1:
                raise NotMeasured("failed")
            return sample("t", [100])

        p.run = run
        p.choose(TINY, 5, "best", 2, lambda text: None, lambda: False)
        self.assertEqual(len(ran), 2)
        self.assertEqual(p.chosen[TINY.name].name, ran[1])

    def test_a_child_ends_at_the_deadline_of_the_table(self):
        child.deadline = time.monotonic() + 0.2
        try:
            r = child.run_child(["sleep", "100"], {})
        finally:
            child.deadline = float("inf")
        self.assertTrue(r.timed_out)


class TheColumns(unittest.TestCase):
    def names(self, precisions):
        path = os.path.join(os.path.dirname(table.__file__), "run")
        loader = importlib.machinery.SourceFileLoader("bench_run", path)
        run = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
        loader.exec_module(run)
        before, run.torch_version = sys.argv, lambda python: "2.15.0"
        sys.argv = ["run", "--precisions", precisions, "--threads", "2"]
        try:
            o = run.options()
        finally:
            sys.argv = before
        columns, scaling, peers = run.make_columns(o, ".")
        return [c.name for c in columns + scaling + peers]

    def test_precisions_that_are_not_named_have_no_column(self):
        self.assertEqual(self.names("fp32"), ["ours fp32", "ceiling", "ours fp32, 1 thread", "ceiling, 1 thread",
                                              "torch 2.15 fp32", "torch 2.15 compiled fp32"])
        self.assertEqual(self.names("bf16"), ["ours bf16", "torch 2.15 bf16", "torch 2.15 compiled bf16"])


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

    def test_chosen_variables_are_set_for_every_column(self):
        child.chosen = {"TRAINHOST_CPU_ISA": "avx2", "OMP_WAIT_POLICY": "active"}
        try:
            env = child.clean_environment({"OMP_WAIT_POLICY": "passive"})
        finally:
            child.chosen = {}
        self.assertEqual((env["TRAINHOST_CPU_ISA"], env["OMP_WAIT_POLICY"]), ("avx2", "passive"))

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
