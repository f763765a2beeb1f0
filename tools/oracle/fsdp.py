"""FSDP2 (fully_shard) of a case, for one rank of a process group that does not communicate.

A case with `fsdp` holds {"world": ranks, "param": type of the gathered weights or "", "reduce": type of the reduction or
"", "output": type of the outputs or "", "reshard": weights are freed after the forward pass of a layer, "sync": "every"
micro-batch reduces gradients, or the "last" one}. Every decoder layer is a unit, and the model, with what is left: the
embedding, the last norm and the head. Rank 0 has the largest shard of every parameter.

With "prepare": "accelerate" the model is sharded by accelerate, as the Trainer of transformers does it: embedding, and last
norm with head, are units of their own, and shards have f32.
"""
import contextlib
import types
from unittest import mock

import flat
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore

TYPES = {"": None, "f32": torch.float32, "bf16": torch.bfloat16}


@contextlib.contextmanager
def ranks(c):
    """The process group and the mesh of a case; None without FSDP. Called outside of FakeTensorMode."""
    if not c.fsdp:
        yield None
        return
    tensor = c.fsdp.get("tensor", 1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=c.fsdp["world"] * tensor)
    try:
        experts = c.fsdp.get("moe", {}).get("ep", 1)
        if experts > 1:  # ranks of experts are a part of those that share the weights
            inside = experts // tensor
            mesh = init_device_mesh("cpu", (c.fsdp["world"] // inside, inside, tensor),
                                    mesh_dim_names=("others", "inside", "tensor"))
            yield {"shards": mesh["others", "inside"]._flatten("shards"), "shards of experts": mesh["others"],
                   "experts": mesh["inside", "tensor"]._flatten("ep"), "tensor": mesh["tensor"]}
            return
        mesh = init_device_mesh("cpu", (c.fsdp["world"], tensor), mesh_dim_names=("shards", "tensor"))
        yield {"shards": mesh["shards"], "tensor": mesh["tensor"]}
    finally:
        dist.destroy_process_group()


def is_titan(c) -> bool:
    return bool(c.fsdp) and c.fsdp.get("modules") == "torchtitan"


def decoder_layers(model):
    body = getattr(model, "model", None) or getattr(model, "transformer", None) or model
    return body.layers if hasattr(body, "layers") else body.h


def shard_by_accelerate(model, c, mesh):
    import torch._dynamo.config  # accelerate sets one of its options
    from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, reshard_after_forward=c.fsdp["reshard"], mixed_precision_policy=c.fsdp["param"] or None,
        auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False)
    # accelerate finds packed weights, which have bytes as elements, by their class Params4bit, and ignores them.
    packed = {p for p in model.parameters() if p.dtype == torch.uint8}
    if packed:
        plugin.ignored_modules = []
    accelerator = types.SimpleNamespace(
        state=types.SimpleNamespace(fsdp_plugin=plugin), torch_device_mesh={("shards",): mesh["shards"]},
        parallelism_config=types.SimpleNamespace(fsdp_dim_names=["shards"]), is_main_process=False,
        mixed_precision=c.fsdp["param"] or "no", device=torch.device("cpu"))
    with (mock.patch.object(fsdp_utils.logger, "info"),
          mock.patch.object(fsdp_utils, "get_parameters_from_modules", lambda *given: packed)):
        fsdp_utils.fsdp2_prepare_model(accelerator, model)


def shard_model_alone(model, c, mesh):
    """prepare_fsdp() of TRL: the model is one unit."""
    types = TYPES[c.fsdp["param"]], TYPES[c.fsdp["reduce"]], TYPES[c.fsdp["output"]]
    policy = MixedPrecisionPolicy(param_dtype=types[0], reduce_dtype=types[1], output_dtype=types[2])
    fully_shard(model, mesh=mesh["shards"], mp_policy=policy, reshard_after_forward=c.fsdp["reshard"])


def sharded(model, c, mesh):
    """The model with its parameters replaced by their shards."""
    if flat.is_flat(c):
        return flat.prepared(model, c)
    shard(model, c, mesh)
    return model


def shard(model, c, mesh):
    if c.fsdp.get("prepare") == "accelerate":
        return shard_by_accelerate(model, c, mesh)
    policy = MixedPrecisionPolicy(param_dtype=TYPES[c.fsdp["param"]], reduce_dtype=TYPES[c.fsdp["reduce"]],
                                  output_dtype=TYPES[c.fsdp["output"]])
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh["shards"], mp_policy=policy, reshard_after_forward=c.fsdp["reshard"])
    fully_shard(model, mesh=mesh["shards"], mp_policy=policy)


def before_micro_batch(model, c, index: int):
    if flat.is_flat(c) and c.tune:
        return  # its recipes reduce in every micro-batch
    if flat.is_flat(c):
        flat.before_micro_batch(model, c.fsdp["sync"] == "every" or index + 1 == c.accumulate)
    elif c.fsdp and c.fsdp["sync"] == "last":
        model.set_requires_gradient_sync(index + 1 == c.accumulate)


@contextlib.contextmanager
def counted_as_on_a_device(notes, tracker):
    """Tells `saved.Saved` the storages of gathered weights, which are parameters too. Leaves out the tensors with the sizes
    of all ranks together with which DTensor finds the sizes of a result: outside of FakeTensorMode they have no memory."""
    gathered = _fsdp_param.FSDPParam.init_unsharded_param
    sizes = ShardingPropagator._propagate_tensor_meta_non_cached

    def gather(self):
        gathered(self)
        notes.add_parameter(getattr(self._unsharded_param, "_local_tensor", self._unsharded_param))

    def find_sizes(self, *args, **kwargs):
        tracker.paused = True
        try:
            return sizes(self, *args, **kwargs)
        finally:
            tracker.paused = False

    with (mock.patch.object(_fsdp_param.FSDPParam, "init_unsharded_param", gather),
          mock.patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", find_sizes)):
        yield
