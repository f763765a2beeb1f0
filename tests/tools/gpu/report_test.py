#!/usr/bin/env python3
"""Tests tools/gpu without a device: results and table, the roofline compared with hand-computed numbers, output of the
sanitizer."""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/gpu"))
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/bench"))
import model
import models
import program
import report
import sanitize
import speed


def script(name):
    """A script without the ending .py as a module."""
    path = os.path.join(sys.path[0], name)
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accept = script("accept")
M = models.MODELS["350M"]


def rates(products=620e12, copy=4.0e12 / model.ELEMENTWISE_SHARE, bus=52e9):
    return model.Rates(copy, bus, bus, {(p, n, k): products for p in ("bf16", "tf32") for n, k in M.products})


class TheReport(unittest.TestCase):
    def test_a_mark_just_missed_is_short_and_named(self):
        r = report.Report()
        r.at_least("speed", "350M", 0.8499, 0.85, "0.85")
        self.assertEqual((r.exit_code(), r.figures[0].status), (1, report.SHORT))
        self.assertIn("short: speed: 350M", r.summary())

    def test_an_aim_that_is_not_reached_fails_nothing(self):
        r = report.Report()
        r.aim("speed", "350M", 95e3, 190e3, "95,000 tokens/s")
        self.assertEqual(r.exit_code(), 0)
        self.assertIn("50% of the aim", r.figures[0].text)

    def test_what_was_left_out_or_failed_is_not_held_and_what_was_skipped_is(self):
        for add, code in (("leave_out", 1), ("fail", 1), ("skip", 0)):
            r = report.Report()
            getattr(r, add)("step", "why")
            self.assertEqual(r.exit_code(), code, add)

    def test_quick_judges_only_what_holds_everywhere(self):
        r = report.Report(judges=False)
        r.at_least("speed", "x", 0.0, 0.85, "0")
        r.at_most("golden", "y", 1.0, 1e-4, "1", always=True)
        self.assertEqual([f.status for f in r.figures], [report.NOTED, report.SHORT])

    def test_every_line_of_the_table_is_equally_wide_and_no_message_breaks_it(self):
        r = report.Report()
        r.note("a", "b", 1, "a|b\nc " + "long " * 99)
        lines = r.table().splitlines()
        self.assertEqual((len(lines), len({len(l) for l in lines})), (3, 1))
        self.assertIn("a/b c", lines[2])

    def test_the_median_is_one_that_was_measured_and_a_curve_keeps_its_mean(self):
        self.assertEqual(report.median([3, 1, 2, 4]), 3)
        self.assertEqual(report.coarse([1, 3, 5, 7], 2), [2, 6])
        self.assertEqual(report.coarse([1, 2], 10), [1, 2])


class TheModel(unittest.TestCase):
    def test_parameters_are_those_of_the_two_models(self):
        self.assertEqual([m.parameters for m in models.MODELS.values()], [341885952, 1100048384])
        self.assertEqual(M.state_bytes("bf16"), 18 * 341885952)

    def test_the_roofline_adds_up(self):
        line = model.roofline(M, "bf16", 16 * 2048, rates())
        self.assertAlmostEqual(line.products * 1e6, 3.308, 3)       # 6 * 341.8e6 / 620e12 a token
        self.assertEqual(len(line.attention), 3)
        self.assertAlmostEqual(sum(line.attention.values()) * 1e6, 1.328, 3)  # (2 / 0.49 + 7 / 0.57) products of 81 ns
        self.assertAlmostEqual(line.elementwise * 1e6, 0.553, 3)
        self.assertAlmostEqual(line.loss * 1e6, 0.049, 3)
        self.assertAlmostEqual(line.update * 1e6, 0.078, 3)
        self.assertAlmostEqual(line.tokens_per_s, 188.1e3, delta=100)

    def test_every_element_wise_kernel_of_a_layer_is_counted(self):
        gqa = models.MODELS["1.1B"]
        self.assertEqual(model.elementwise_elements(M), 23 * 1024 + 8 * 2816)
        self.assertEqual(model.elementwise_elements(gqa), 19 * 2048 + 4 * 256 + 8 * 5632)

    def test_five_products_cost_a_matrix_of_scores(self):
        tokens, memory = model.five_products(M, "bf16", 16 * 2048, rates())
        self.assertEqual(memory, 2048 * 2048 * 16)  # two bytes, half of the matrix, 16 heads
        line = model.roofline(M, "bf16", 16 * 2048, rates())
        self.assertAlmostEqual(1e6 / tokens, 1e6 / line.tokens_per_s - 2 / 0.57 * 0.0812 + 0.3932, 2)
        self.assertIsNone(model.five_products(M, "fp32", 2048, rates()))

    def test_the_rate_of_a_shape_is_that_of_its_three_products_together(self):
        one = lambda name, rate: {"precision": "bf16", "product": name, "m": 8, "n": 4, "k": 2, "flops_per_s": rate}
        measured = {"device_copy_bytes_per_s": 1, "h2d_bytes_per_s": 1, "d2h_bytes_per_s": 1, "both_bytes_per_s": 2,
                    "products": [one("forward", 6.0), one("dx", 3.0), one("dx", 2.0), one("dw", 2.0)]}
        self.assertEqual(model.Rates.of(measured).products, {("bf16", 4, 2): 3.0})

    def test_what_is_expected_of_a_device_is_stated_for_every_model(self):
        for device in model.EXPECTED:
            for m in models.MODELS.values():
                self.assertGreater(model.roofline(m, "bf16", 2048, model.expected_rates(device, m)).tokens_per_s, 0)

    def test_a_product_that_was_not_measured_gives_no_figure_instead_of_a_wrong_one(self):
        r = rates()
        self.assertIsNone(model.roofline(M, "fp32", 2048, r))
        self.assertIsNone(model.hybrid(M, "fp32", 4, 1, 8, r, 16))

    def test_the_slowest_product_weighs_by_its_operations(self):
        r = rates()
        r.products[("bf16", M.vocab, M.hidden)] = 310e12  # the head, a tenth of the operations, at half the rate
        share = M.vocab * M.hidden / M.matrix_elements
        self.assertAlmostEqual(r.of_model(M, "bf16"), 620e12 / (1 + share))

    def test_a_slower_bus_lowers_utilization_and_more_micro_batches_raise_it(self):
        u = lambda n, bus: model.hybrid(M, "bf16", n, 1, 8, rates(bus=bus), 8)[0]
        self.assertGreater(u(4, 52e9), u(4, 12e9))
        self.assertGreater(u(16, 52e9), u(4, 52e9))
        self.assertAlmostEqual(u(4, 52e9), 0.931, 2)

    def test_the_schedule_explains_what_an_h100_did(self):
        # 350M, 4 x 4, 16 threads, before the embedding had a queue of its own. Measured: kernels 185.3 ms and 400.7 ms
        # a step; utilization 0.705 in bf16, 0.908 in TF32. Loops of then: 0.415e9 and 0.47e9 logits a second and thread.
        bf16, tf32 = (0.1853, 2, 16, 0.415e9, 0.705), (0.4007, 4, 32, 0.47e9, 0.908)
        for compute, element, chunks, rate, measured in (bf16, tf32):
            tokens, update = 8192, 0.003
            hidden, logits = tokens * 1024 * element, tokens * 32768 * element
            bus, loss = logits / 47e9, tokens * 32768 / (16 * rate)
            t = model.HostTimes(2 * hidden / 200e9, hidden / 47e9, bus, loss, bus)
            device = (compute - update) / 4
            seconds = lambda before: model.hybrid_seconds(device / 3, device * 2 / 3, update, t, 4, chunks, before)
            self.assertAlmostEqual(compute / seconds(True), measured, 2)
            self.assertGreater(compute / seconds(False), measured + 0.05)


class Shapes(unittest.TestCase):
    def test_every_mode_meets_every_precision_and_the_same_shapes_come_again(self):
        shapes = models.random_shapes(20, 300)
        self.assertEqual({(s[1], s[2]) for s in shapes}, {(m, p) for m in models.MODES for p in models.PRECISIONS})
        self.assertEqual(shapes, models.random_shapes(20, 300))
        self.assertTrue(all(s[0].heads % s[0].kv_heads == 0 and s[0].hidden % (2 * s[0].heads) == 0 for s in shapes))
        self.assertTrue(all(s[0].vocab <= 65536 for s in models.random_shapes(20, 3)))


class Runs(unittest.TestCase):
    def test_a_run_has_enough_after_its_warm_up(self):
        enough = program.some_steps(1, 2, 4, 1.0)
        steps = lambda *ms: [{"event": "step", "ms": x} for x in ms]
        self.assertFalse(enough(steps(9000, 900)))        # the first does not count
        self.assertTrue(enough(steps(9000, 900, 900)))
        self.assertFalse(enough(steps(9, 1, 1, 1)))
        self.assertTrue(enough(steps(9, 1, 1, 1, 1)))

    def test_the_rate_is_that_of_the_median_step(self):
        r = program.Run([], events=[{"event": "step", "ms": ms, "tokens": 100} for ms in (999, 10, 20, 90)])
        self.assertAlmostEqual(program.rate_of(r, 1), 5000)
        with self.assertRaises(program.NotMeasured):
            program.rate_of(r, 4)

    def test_a_failure_is_told_by_the_program_s_own_line(self):
        self.assertEqual(
            program.Run([], code=3, err="note\ntrainhost: too big\n  a hint\n").reason(), "exit 3: trainhost: too big"
        )


class Time(unittest.TestCase):
    STEPS = [("a", 60, None), ("b", 30, None), ("c", 30, None)]

    def test_chosen_steps_have_the_whole_time_and_all_steps_what_they_are_listed_with(self):
        self.assertEqual(accept.time_of_step(self.STEPS[:1], 0, 120, 120 / 450), 120)
        self.assertEqual(accept.time_of_step(self.STEPS[:2], 0, 120, 120 / 450), 80)
        self.assertEqual(accept.time_of_step(self.STEPS, 0, 90, 1), 60)      # more steps than time: the first as listed
        self.assertEqual(accept.time_of_step(self.STEPS, 2, 5, 1), 5)        # never more than what is left

    def test_what_was_measured_before_the_time_was_over_counts(self):
        def one(steps):
            return program.Run([], events=[{"event": "step", "ms": 10, "tokens": 100}] * steps, ended=True)

        class Runs:
            def __init__(self, steps_of_second):
                self.ends = [one(9), program.OutOfTime(one(steps_of_second))]

            def train(self, keys, **more):
                end = self.ends.pop(0)
                if isinstance(end, program.OutOfTime):
                    raise end
                return end

        for steps, tried in ((3, "its time was over"), (9, 1e4)):
            with tempfile.TemporaryDirectory() as scratch:
                c = types.SimpleNamespace(quick=False, best={}, tried={}, say=lambda text: None, program=Runs(steps),
                                          scratch=scratch, token_count=1 << 8)
                self.assertEqual(speed.search(c, M, "bf16")[0], 1e4)
                self.assertEqual(c.tried["350M, bf16"], {8: 1e4, 16: tried})


class Sanitizer(unittest.TestCase):
    def test_only_the_tool_s_own_words_are_a_refusal(self):
        self.assertEqual(
            sanitize.refusal("========= Error: this device is not supported\n"), "Error: this device is not supported"
        )
        self.assertEqual(sanitize.refusal("trainhost: mode x is not supported\n========= ERROR SUMMARY: 0 errors"), "")

    def test_findings_are_the_first_and_the_sum(self):
        text = (
            "========= COMPUTE-SANITIZER\n========= Invalid __global__ read of size 4 bytes\n"
            "=========     Host Frame: x\n========= ERROR SUMMARY: 3 errors\n"
        )
        self.assertEqual(sanitize.findings(text), "Invalid __global__ read of size 4 bytes; ERROR SUMMARY: 3 errors")


if __name__ == "__main__":
    unittest.main()
