"""plan(), sweep() and search() of the Python package, compared with the program."""

import json
import pickle
import threading
import time
from pathlib import Path

import pytest
import trainhost

RUN = {"model": "llama-3-8b", "device": "h100-80gb"}
OPTIONS = ["--model=llama-3-8b", "--device=h100-80gb"]


def test_plan_is_what_the_program_prints(program):
    report = trainhost.plan(**RUN, seq_len=1024, train_micro_batch=2, **{"train.grad_accum": 4})
    settings = ["data.seq_len=1024", "train.micro_batch=2", "train.grad_accum=4"]
    words = [word for setting in settings for word in ("--set", setting)]
    assert report.json == json.loads(program("plan", *OPTIONS, "--json", *words))
    assert report.fits and report.verdict == "fits_device" and report.model.parameters.total == 8_030_261_248
    assert sum(entry.bytes_at_peak for entry in report.estimate.entries) == report.total_bytes
    assert report.estimate.entries[0].component == "weights" and report.budget_bytes > 0
    assert "total on device" in str(report)


def test_adapters_are_those_of_the_program(program):
    for name in ("lora", "qlora"):
        expected = json.loads(program("plan", *OPTIONS, "--json", f"--{name}"))
        assert trainhost.plan(**RUN, **{name: True}).json == expected
    rank = trainhost.plan(**RUN, lora=True, lora_rank=8)
    assert rank.model.parameters.trainable * 2 == trainhost.plan(**RUN, lora=True).model.parameters.trainable
    assert trainhost.plan(**RUN, lora=False).json == trainhost.plan(**RUN).json


def test_a_run_that_does_not_fit_is_no_error():
    report = trainhost.plan(model="llama-3-8b", budget="12GiB", host_budget="8GiB", limits=True)
    assert not report.fits and report.verdict == "does_not_fit" and report.estimate.too_much
    assert report.limits and report.timeline and all(change.set for change in report.changes)


def test_sweep_and_search_are_what_the_program_prints(program):
    result = trainhost.sweep("seq_len", [512, 1024], **RUN)
    assert result.json == json.loads(program("sweep", *OPTIONS, "--over", "data.seq_len=512,1024", "--json"))
    assert [point.x for point in result.curves[0].points] == [512, 1024]
    found = trainhost.search(**RUN, devices=16, global_batch=64, top=3, tensor=2)
    printed = json.loads(program("search", *OPTIONS, "--devices=16", "--global-batch=64", "--top=3", "--json",
                                 "--set", "parallel.tensor=2"))  # fmt: skip
    assert found.json["best"] == printed["best"] and len(found.best) == 3
    assert {layout.tensor for layout in found.best} == {2} and "MFU" in str(found)


def test_values_of_keys(tmp_path):
    data = tmp_path / "a text.txt"
    data.write_text("x" * 5000)
    report = trainhost.plan(data_train=[data], lr=1e-3, betas=[0.9, 0.95], parallel_sequence=False, seed=None,
                            backend="cpu")  # fmt: skip
    assert report.backend == "cpu"


def test_frames():
    pandas = pytest.importorskip("pandas")
    report = trainhost.plan(**RUN, estimator=["llama", "transformer"])
    frame = report.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and set(frame.estimator) == {"llama", "transformer"}
    exact = frame[frame.estimator == "llama"]
    assert exact.bytes_at_peak.sum() == report.total_bytes
    sweep = trainhost.sweep("micro_batch", "1..4", **RUN).to_pandas()
    assert list(sweep.x) == [1, 2, 4] and (sweep.activations > 0).all()
    assert list(trainhost.search(**RUN, devices=8, top=2).to_pandas().device_bytes) != []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"model": "llama-3-8x"}, "did you mean 'llama-3-8b'"),
        ({"model": "llama-3-8b", "device": "h100-80bg"}, "did you mean 'h100-80gb'"),
        ({"train_micro_bach": 2}, "unknown key 'train_micro_bach'; did you mean 'train_micro_batch'?"),
        ({"micro_bach": 2}, "unknown key 'micro_bach'; did you mean 'micro_batch'?"),
        ({"devise": "h100-80gb"}, "unknown key 'devise'; did you mean 'device'?"),
        ({"xyzzy": 2}, "unknown key 'xyzzy'"),
        ({"**": 0, "train.micro_bach": 2}, "did you mean 'train.micro_batch'"),
        ({"budget": 24}, "memory.budget = 24: a size needs a unit"),
        ({"seq_len": -1}, "data.seq_len = -1: expected a whole number from 1"),
        ({"path": "x"}, "path is the end of several keys: model.path, plugins.path (write model_path or plugins_path)"),
        ({"estimator": "lama"}, "no estimator 'lama'; did you mean 'llama'"),
        ({"plugin_path": ["/nowhere"]}, "'/nowhere' is not a directory"),
        ({"model": "llama-3-8b", "run_file": "run.toml"}, "--model and a run file are both given"),
    ],
)
def test_usage_errors(arguments, message):
    arguments.pop("**", None)
    with pytest.raises(trainhost.UsageError) as raised:
        trainhost.plan(**arguments)
    assert message in str(raised.value) and raised.value.exit_code == 2 and raised.value.file is None
    assert isinstance(raised.value, ValueError)


def test_errors_have_positions(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[train]\nmicro_batch = 4\n  micro_bach = 2\n")
    with pytest.raises(trainhost.UsageError) as raised:
        trainhost.plan(run_file=file)
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.file, error.line, error.column) == (str(file), 3, 3)
    assert error.message == "unknown key 'train.micro_bach'; did you mean 'train.micro_batch'?"
    assert str(error).startswith(f"{file}:3:3: unknown key")
    with pytest.raises(trainhost.UsageError) as missing:
        trainhost.plan(run_file=tmp_path / "none.toml")
    assert "none.toml" in str(missing.value)


def test_a_sweep_keeps_points_that_make_no_valid_run():
    points = trainhost.sweep("tensor", [1, 3, 2], **RUN).curves[0].points
    assert [bool(point.error) for point in points] == [False, True, False]
    with pytest.raises(trainhost.UsageError, match="both set and swept over"):
        trainhost.sweep("data.seq_len", "512..1024", **RUN, seq_len=512)


def test_other_threads_run_while_a_plan_is_computed():
    """Four threads get the same answer, and this one goes on meanwhile."""
    wanted = trainhost.plan(**RUN).json
    found = []
    threads = [threading.Thread(target=lambda: found.append(trainhost.plan(**RUN).json)) for _ in range(4)]
    for thread in threads:
        thread.start()
    longest, before = 0.0, time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert found == [wanted] * 4

    found.clear()
    search = threading.Thread(target=lambda: found.append(trainhost.search(**RUN, devices=1024, every=True, threads=1)))
    ticks, start = 0, time.monotonic()
    search.start()
    while search.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert found and ticks > (time.monotonic() - start) * 20


def test_the_package_loads_nothing_before_it_is_used(program):
    import subprocess
    import sys

    code = "import trainhost, sys; print('trainhost._core' in sys.modules, len(dir(trainhost)))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert printed[0] == "False" and int(printed[1]) == len(trainhost.__all__)
    assert all(getattr(trainhost, name) for name in trainhost.__all__)
    assert trainhost.__version__ == program("version").split()[1]
    with pytest.raises(AttributeError, match="no attribute 'paln'"):
        trainhost.paln  # noqa: B018


def test_the_package_passes_mypy_strict():
    api = pytest.importorskip("mypy.api")
    source = Path(__file__).parents[3] / "sdk" / "python" / "trainhost"
    out, errors, status = api.run(["--strict", "--no-incremental", "--cache-dir=/dev/null", str(source)])
    assert status == 0, out + errors
