"""Offload of DeepSpeed: offload_optimizer and offload_param with device "cpu".

Everything of the oracle is on the device cpu, so the memory of the host is another one: tensors that DeepSpeed puts on
"cpu" are on the device meta, which MemTracker counts for itself. DeepSpeedCPUAdam is that of the package without its
compiled kernel, which allocates nothing. pin_memory() copies to the device meta and frees the tensor that was pinned.
"""
import contextlib
import importlib
import types
from unittest import mock

import torch


class Host(str):
    """The name of the host's device: "meta" for torch, "cpu" for comparisons of DeepSpeed."""

    def __eq__(self, other):
        return other in ("cpu", "meta")

    __hash__ = str.__hash__


HOST = Host("meta")


class AllOnHost(dict):
    """subgroup_to_device of stage 3: each sub-group is updated on the host (offload_optimizer.ratio is 1)."""

    __getitem__ = lambda self, key: HOST


def of(c) -> dict:
    return (c.zero or {}).get("offload") or {}


def settings(c) -> dict:
    """Keys of zero_optimization."""
    o = of(c)
    device = {"device": "cpu", "pin_memory": o.get("pin", True)}
    return {f"offload_{what}": device for what in ("optimizer", "param") if o.get(what)}


def attribute(value):
    """An attribute of a class whose value depends on the object, whatever the object assigns."""
    return property(value, lambda self, assigned: None)


@contextlib.contextmanager
def host_memory(c):
    o = of(c)
    device = lambda self: HOST if o.get("optimizer") else "cpu"
    low = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2").DeepSpeedZeroOptimizer
    stage3 = importlib.import_module("deepspeed.runtime.zero.stage3").DeepSpeedZeroOptimizer_Stage3
    init = importlib.import_module("deepspeed.runtime.zero.partition_parameters").Init
    accelerator = type(importlib.import_module("deepspeed.accelerator").get_accelerator())
    pinned = lambda self, tensor, make_copy=True, match_shape=True: torch.empty_like(tensor, device="meta")
    with (mock.patch.object(low, "device", attribute(device), create=True),
          mock.patch.object(stage3, "device", attribute(device), create=True),
          mock.patch.object(stage3, "subgroup_to_device", attribute(lambda self: AllOnHost()), create=True),
          mock.patch.object(init, "remote_device", attribute(lambda self: HOST if o.get("param") else "cpu"), create=True),
          mock.patch.object(accelerator, "pin_memory", pinned)):
        yield


def shapes_only(engine) -> int:
    """Bytes that the tensors on the device meta would have which DeepSpeed itself has there, for their shapes."""
    groups = getattr(engine.optimizer, "round_robin_bit16_meta", [])
    return sum(t.nbytes for group in groups for t in group)


def cpu_adam(groups):
    """DeepSpeedCPUAdam, whose kernel does nothing."""
    module = importlib.import_module("deepspeed.ops.adam.cpu_adam")
    kernel = types.SimpleNamespace(create_adam=lambda *a: None, adam_update=lambda *a: None, destroy_adam=lambda *a: None)
    names = types.SimpleNamespace(device=lambda name: torch.device("meta"), float=torch.float, half=torch.half,
                                  zeros_like=torch.zeros_like)
    module.torch = names  # step() names the device of its state
    with mock.patch.object(module, "CPUAdamBuilder", lambda: types.SimpleNamespace(load=lambda: kernel)):
        return module.DeepSpeedCPUAdam(groups, lr=1e-3, weight_decay=0.01)
