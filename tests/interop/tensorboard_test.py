"""Reads the event files of a run with TensorBoard: scalars, texts and hyperparameters; and runs the documented import of
metrics.jsonl into Weights & Biases and MLflow, with stand-ins that record the calls where these are not installed."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

BUILD, SOURCE = map(pathlib.Path, sys.argv[1:3])
KEYS = {
    "model.hidden_size": 16, "model.intermediate_size": 24, "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2, "model.num_key_value_heads": 1, "model.head_dim": 8, "data.seq_len": 16,
    "train.micro_batch": 1, "train.eval_every": 2, "train.threads": 1, "optimizer.warmup_steps": 1,
    "output.checkpoint_every": 2,
}


def train(folder, steps, *options):
    sets = [w for k, v in {**KEYS, "train.steps": steps, "output.dir": folder}.items() for w in ("--set", f"{k}={v}")]
    subprocess.run([BUILD / "bin/trainhost", "train", *sets, *options], check=True, stderr=subprocess.DEVNULL)


def events(run, kind):
    return [e for e in map(json.loads, open(run / "metrics.jsonl")) if e["event"] == kind]


def read_with_tensorboard(run):
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    board = EventAccumulator(str(run / "tb"))
    board.Reload()

    def values(tag):
        return {e.step: e.tensor_proto.float_val[0] for e in board.Tensors(tag)}

    steps, evals = events(run, "step"), events(run, "eval")
    for tag, key in [("loss/train", "loss"), ("optimizer/lr", "lr"), ("optimizer/grad_norm", "grad_norm")]:
        got = values(tag)
        assert sorted(got) == [e["step"] for e in steps], (tag, got)
        assert all(abs(got[e["step"]] - e[key]) <= 1e-6 * abs(e[key]) for e in steps), tag
    assert sorted(values("loss/validation")) == [e["step"] for e in evals]
    tags = board.Tags()["tensors"]
    for tag in ["speed/tokens_per_s", "memory/in_use_bytes", "grad_norm/layer_0", "grad_norm/layer_1"]:
        assert tag in tags, tags
    text = board.Tensors("run.toml/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "hidden_size = 16" in text
    assert "sample/text_summary" in tags, tags
    assert set(board.PluginTagToContent("hparams")) == {
        "_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"}
    start = plugin_data_pb2.HParamsPluginData.FromString(
        board.PluginTagToContent("hparams")["_hparams_/session_start_info"]).session_start_info
    assert start.hparams["data.seq_len"].number_value == 16
    assert start.hparams["optimizer.name"].string_value == "adamw"
    end = plugin_data_pb2.HParamsPluginData.FromString(
        board.PluginTagToContent("hparams")["_hparams_/session_end_info"]).session_end_info
    assert end.status == 1, end


class Recorder(types.ModuleType):
    """Stands in for a package: every call is recorded."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **kwargs):
            self.calls.append((name, args, kwargs))
            return self

        return call

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return False


def run_documented_imports(run):
    page = (SOURCE / "docs/pictures.md").read_text()
    for package in ["wandb", "mlflow"]:
        code = next(c for c in re.findall(r"```python\n(.*?)```", page, re.S) if f"import {package}" in c)
        module = sys.modules[package] = Recorder(package)
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.makedirs("runs")
            os.symlink(run, "runs/NAME")
            try:
                exec(compile(code, "docs/pictures.md", "exec"), {})
            finally:
                os.chdir(here)
        steps = {e["step"] for e in events(run, "step")}
        logged = [c for c in module.calls if c[0] in ("log", "log_metrics")]
        assert {{**c[1][0], **c[2]}["step"] for c in logged} == steps, logged
        assert any("loss" in c[1][0] for c in logged) and any("validation_loss" in c[1][0] for c in logged)


with tempfile.TemporaryDirectory() as tmp:
    folder = pathlib.Path(tmp) / "run"
    train(folder, 3)
    train(folder, 5, "--resume")
    run_documented_imports(folder)
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        print("skipped: tensorboard is missing (pip install tensorboard); the documented imports are correct")
        sys.exit(77)
    read_with_tensorboard(folder)
    print("ok")
