"""DeepSpeed's ZeRO of a case, for one rank of a process group that does not communicate.

A case with `zero` holds {"stage": 1 to 3, "world": ranks, "rank": the one that is measured, "bucket": reduce_bucket_size in
elements, "overlap": overlap_comm, "groups": 1, or 2 with norms and biases in a group without weight decay}; stage 3
also sub_group, prefetch, persistence, max_live and reuse, in elements. With `offload`, {"optimizer", "param": whether
they are in host memory, "pin": pin_memory}: offload.py. The engine and the optimizer are those of the installed package;
the model is bf16 or f32, the optimizer one of torch.optim, or DeepSpeedCPUAdam where it is offloaded.
"""
import contextlib
import importlib
import logging
import os
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses import fake_impls
from torch.testing._internal.distributed.fake_pg import FakeStore

import models
import offload


def number(mode, function, tensor):
    """The value of a fake scalar: no overflow, norm 0."""
    return False if tensor.dtype == torch.bool else 0.0 if tensor.dtype.is_floating_point else 0


@contextlib.contextmanager
def ranks(c):
    """The process group of a case, and what DeepSpeed cannot do with fake tensors on the device cpu."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": str(c.zero["rank"]), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                   "WORLD_SIZE": str(c.zero["world"]), "MASTER_PORT": "29500", "TORCHDYNAMO_DISABLE": "1"}
    logging.disable(logging.CRITICAL)
    importlib.import_module("deepspeed")
    backend = importlib.import_module("deepspeed.comm.torch")
    comm = importlib.import_module("deepspeed.comm.comm")
    dist.init_process_group("fake", store=FakeStore(), rank=c.zero["rank"], world_size=c.zero["world"])
    values = {torch.ops.aten._local_scalar_dense.default: number}
    coordinator = importlib.import_module("deepspeed.runtime.zero.partitioned_param_coordinator")
    try:
        with (mock.patch.object(backend, "build_shm_op", lambda: None),
              mock.patch.object(coordinator, "assert_ints_same_as_other_ranks", lambda *values: None),
              mock.patch.object(torch.nn.Module, "to", lambda module, *args, **kwargs: module),
              mock.patch.object(torch.nn.Module, "bfloat16", lambda module: module),
              mock.patch.dict(fake_impls.op_implementations_dict, values),
              # zero.Init replaces it for the whole process; put back after the case.
              mock.patch.object(torch.nn.functional, "linear", torch.nn.functional.linear),
              offload.host_memory(c) if offload.of(c) else contextlib.nullcontext()):
            yield
    finally:
        comm.cdb = None
        importlib.import_module("deepspeed.utils.groups")._WORLD_GROUP = None
        dist.destroy_process_group()


def groups_of(c, model):
    """The groups of parameters that the Trainer of transformers makes."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if c.zero["groups"] == 1:
        return parameters
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def cast(c, model):
    """Casts adapters to the type of the model, as the engine does with Module.bfloat16()."""
    for module in model.modules() if c.lora else ():
        for name, p in module._parameters.items():
            if p is not None and p.is_floating_point() and p.dtype != models.DTYPES[c.precision]:
                module._parameters[name] = torch.nn.Parameter(torch.empty_like(p, dtype=models.DTYPES[c.precision]))


def engine(c, model, optimizer):
    """Replaces the weights of the model by views of flat tensors."""
    return importlib.import_module("deepspeed").initialize(model=model, config=settings(c), optimizer=optimizer)[0]


def reference_engine(c, model):
    """prepare_deepspeed() of TRL: an engine without an optimizer, and below stage 3 without ZeRO."""
    config = settings(c)
    if c.zero["stage"] != 3:
        config["zero_optimization"]["stage"] = 0
    engine = importlib.import_module("deepspeed").initialize(model=model, config=config)[0]
    engine.eval()
    return engine


def settings(c):
    """The configuration of DeepSpeed."""
    config = {
        "train_micro_batch_size_per_gpu": c.batch,
        "gradient_accumulation_steps": c.accumulate,
        "bf16": {"enabled": c.precision == "bf16"},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": c.zero["stage"], "reduce_bucket_size": c.zero["bucket"],
                              "overlap_comm": c.zero["overlap"]},
        "zero_allow_untested_optimizer": True,
    }
    names = {"sub_group": "sub_group_size", "prefetch": "stage3_prefetch_bucket_size",
             "persistence": "stage3_param_persistence_threshold", "max_live": "stage3_max_live_parameters",
             "reuse": "stage3_max_reuse_distance"}
    config["zero_optimization"] |= {name: c.zero[key] for key, name in names.items() if key in c.zero}
    config["zero_optimization"] |= offload.settings(c)
    return config
