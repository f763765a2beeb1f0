"""Estimators that are functions of the process."""

import traceback

import pytest
import trainhost

RUN = {"model": "llama-3-8b", "device": "h100-80gb"}


def test_a_function_gets_the_run_and_its_entries_are_the_report(functions):
    asked = []

    @trainhost.estimator(families=["llama"], name="rule")
    def rule(model, run, trainer):
        asked.append((model, run, trainer))
        yield trainhost.Entry("weights", 2 * model.parameters, component="weights", formula="2 P")
        yield trainhost.Entry("copy", 1 << 30, component="optimizer_state", tier="host", kind="upper_bound")
        yield trainhost.Entry("scratch", 4096, component="workspace", bytes_at_peak=0)

    functions.append("rule")
    report = trainhost.plan(**RUN, estimator="rule", seq_len=4096, micro_batch=3, precision="bf16")
    model, run, trainer = asked[0]
    assert (model.family, model.layers, model.hidden, model.vocab) == ("llama", 32, 4096, 128256)
    assert model.parameters == 8_030_261_248 and model.config == {}
    assert (run.seq_len, run.micro_batch, run.weight, run.optimizer) == (4096, 3, "bf16", "adamw")
    assert trainer.tier == "device"
    estimate = report.estimate
    assert estimate.estimator == "rule" and estimate.kind == "approximation" and report.estimator_rule == "--estimator"
    assert estimate.total_bytes == 2 * 8_030_261_248 + (1 << 30) and estimate.host_bytes == 1 << 30
    assert [(e.name, e.bytes, e.bytes_at_peak, e.tier) for e in estimate.entries] == [
        ("weights", 16_060_522_496, 16_060_522_496, "device"),
        ("copy", 1 << 30, 1 << 30, "host"),
        ("scratch", 4096, 0, "device"),
    ]
    assert estimate.entries[0].formula == "2 P"


def test_it_answers_where_it_is_named_or_beside_all_others(functions):
    @trainhost.estimator(["llama"])
    def one_byte(model, run, trainer):
        return [trainhost.Entry("x", 1)]

    functions.append("one_byte")
    assert trainhost.plan(**RUN).estimate.estimator == "llama"
    every = [estimate.estimator for estimate in trainhost.plan(**RUN, estimator="all").estimates]
    assert every[0] == "llama" and "one_byte" in every
    curves = trainhost.sweep("seq_len", [512, 1024], **RUN, estimator=["one_byte", "transformer"]).curves
    assert [curve.estimator for curve in curves] == ["one_byte", "transformer"]
    with pytest.raises(trainhost.UsageError, match="'one_byte' does not plan this run of the model family 'qwen2'"):
        trainhost.plan(model="qwen2.5-7b", device="h100-80gb", estimator="one_byte")


def test_one_of_the_same_name_replaces_an_installed_one(functions):
    @trainhost.estimator(name="transformer")
    def replaced(model, run, trainer):
        return [trainhost.Entry("x", 7)]

    functions.append("transformer")
    assert trainhost.plan(**RUN, estimator="transformer").total_bytes == 7
    trainhost.estimator(name="transformer")(lambda model, run, trainer: [])
    assert trainhost.plan(**RUN, estimator="transformer").total_bytes == 0


def test_exceptions_become_errors_with_their_traceback(functions):
    @trainhost.estimator()
    def broken(model, run, trainer):
        return [trainhost.Entry("x", model.layers // 0)]

    functions.append("broken")
    for call in (
        lambda: trainhost.plan(**RUN, estimator="broken"),
        lambda: trainhost.sweep("seq_len", [512, 1024], **RUN, estimator=["transformer", "broken"]),
    ):
        with pytest.raises(trainhost.EstimatorError) as raised:
            call()
        error = raised.value
        assert isinstance(error.__cause__, ZeroDivisionError) and isinstance(error, trainhost.PluginError)
        assert error.message.startswith("the estimator 'broken' raised ZeroDivisionError")
        assert error.file == __file__ and "model.layers // 0" in open(__file__).read().splitlines()[error.line - 1]
        assert "model.layers // 0" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "entry, message",
    [
        (lambda: trainhost.Entry("x", 1.5), "bytes is 1.5, expected a whole number of bytes"),
        (lambda: trainhost.Entry("x", -1), "bytes is -1, expected 0 to 2"),
        (lambda: trainhost.Entry("x", 2**63), "expected 0 to 2"),
        (lambda: trainhost.Entry("x", True), "bytes is True"),
        (lambda: trainhost.Entry("x", 1, component="weight"), "unknown component 'weight'; did you mean 'weights'?"),
        (lambda: trainhost.Entry("x", 1, tier="gpu"), "unknown tier 'gpu'"),
        (lambda: trainhost.Entry("x", 1, kind="exactly"), "did you mean 'exact'?"),
        (lambda: 5, "it returned 5, expected trainhost.Entry"),
    ],
)
def test_wrong_answers(functions, entry, message):
    trainhost.estimator(name="wrong")(lambda model, run, trainer: [entry()])
    functions.append("wrong")
    with pytest.raises(trainhost.EstimatorError) as raised:
        trainhost.plan(**RUN, estimator="wrong")
    assert message in str(raised.value)


def test_an_interrupt_passes_through(functions):
    @trainhost.estimator()
    def interrupted(model, run, trainer):
        raise KeyboardInterrupt

    functions.append("interrupted")
    with pytest.raises(KeyboardInterrupt):
        trainhost.plan(**RUN, estimator="interrupted")


def test_an_estimator_may_plan(functions):
    @trainhost.estimator()
    def scaled(model, run, trainer):
        exact = trainhost.plan(**RUN, estimator="llama").estimate
        return [trainhost.Entry("total", exact.total_bytes // 2)]

    functions.append("scaled")
    whole = trainhost.plan(**RUN, estimator="llama").total_bytes
    assert trainhost.plan(**RUN, estimator="scaled").total_bytes == whole // 2


def test_wrong_registrations():
    with pytest.raises(trainhost.UsageError, match="expected a list"):
        trainhost.estimator("llama")
    for name in ("all", "auto", "a,b"):
        with pytest.raises(trainhost.UsageError, match="cannot be the name"):
            trainhost.estimator(name=name)(lambda model, run, trainer: [])
    with pytest.raises(trainhost.UsageError, match="no estimator 'never' is registered"):
        trainhost.remove_estimator("never")
