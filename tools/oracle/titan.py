"""The Llama of torchtitan 0.2 with its activation checkpointing, its units of FSDP2 and its loss.

The modules are those of the installed package.
"""
import contextlib
import types

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import loss_parallel

import packages

USED = ("torchtitan.models.attention", "torchtitan.models.llama3.model.args", "torchtitan.models.llama3.model.model",
        "torchtitan.models.llama3.infra.parallelize", "torchtitan.distributed.activation_checkpoint",
        "torchtitan.components.loss")


def modules():
    """(args, model, parallelize, loss) of torchtitan."""
    found = packages.modules("torchtitan", USED, "pip install --no-deps torchtitan==0.2.0")
    return tuple(found[i] for i in (1, 2, 3, 5))


class Trained:
    """The model of a case, called like a model of transformers. Its labels are a tensor of their own, and the logits are
    freed when the loss exists, as in the trainer of torchtitan."""

    def __init__(self, model, loss):
        self.model, self._loss, self.labels = model, loss, None

    def __call__(self, input_ids, labels):
        predicted = self.model(input_ids)
        loss = self._loss(predicted, self.labels)
        del predicted
        return types.SimpleNamespace(loss=loss)


class SeparateNorm(torch.nn.Module):
    """RMSNorm of separate operators, which compute in f32, as in torchtitan of December 2024."""

    def __init__(self, norm):
        super().__init__()
        self.eps, self.weight = norm.eps, norm.weight

    def scaled(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self.scaled(x.to(torch.float32)).to(x.dtype) * self.weight


def separate_norms(m):
    for parent in list(m.modules()):
        for name, child in parent.named_children():
            if isinstance(child, torch.nn.RMSNorm):
                setattr(parent, name, SeparateNorm(child))


def shard_as_2024(m, mesh, policy):
    """Embedding, last norm and head belong to the root; the last layer stays gathered."""
    for index, layer in enumerate(m.layers.values()):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=index + 1 < len(m.layers))
    fully_shard(m, mesh=mesh, mp_policy=policy)


def loss_of(c):
    """The context of a step: with tensor parallelism, the loss of a divided vocabulary."""
    return loss_parallel() if c.fsdp.get("tensor", 1) > 1 else contextlib.nullcontext()


def with_values(function):
    """The ranks of a mesh are tensors with values."""
    def call(*args, **kwargs):
        with unset_fake_temporarily():
            return function(*args, **kwargs)
    return call


def build(c, mesh):
    import fsdp

    args, model, parallelize, loss = modules()
    m = model.Transformer(args.TransformerModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab, multiple_of=64,
        max_seq_len=c.sequence))
    if c.fsdp.get("release") == "0.0":
        separate_norms(m)
    DeviceMesh.__init__ = with_values(DeviceMesh.__init__)
    DeviceMesh.mesh = property(with_values(DeviceMesh.mesh.fget))
    if c.fsdp.get("tensor", 1) > 1:
        parallelize.apply_tp(m, mesh["tensor"], loss_parallel=True, enable_float8_tensorwise_tp=False)
    mesh = mesh["shards"]
    if c.fsdp["recompute"] != "none":
        checkpointing = types.SimpleNamespace(mode=c.fsdp["recompute"], selective_ac_option="op", early_stop=False,
                                              per_op_sac_force_recompute_mm_shapes_by_fqns=[])
        parallelize.apply_ac(m, checkpointing, op_sac_save_list=parallelize._op_sac_save_list)
    if c.fsdp.get("release") == "0.0":
        shard_as_2024(m, mesh, MixedPrecisionPolicy(param_dtype=fsdp.TYPES[c.fsdp["param"]],
                                                    reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]]))
        return Trained(m.train(), loss.cross_entropy_loss)
    parallelize.apply_fsdp(m, mesh, param_dtype=fsdp.TYPES[c.fsdp["param"]], reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]],
                           pp_enabled=False, reshard_after_forward_policy="default" if c.fsdp["reshard"] else "never")
    return Trained(m.train(), loss.cross_entropy_loss)
