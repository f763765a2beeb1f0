"""Llama 3 and Qwen3 of torchtitan 0.2 with their activation checkpointing, its units of FSDP2 and its loss.

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
import titan_experts

USED = ("torchtitan.distributed", "torchtitan.models.attention", "torchtitan.models.llama3.model.args",
        "torchtitan.models.llama3.model.model", "torchtitan.models.llama3.infra.parallelize",
        "torchtitan.distributed.activation_checkpoint", "torchtitan.components.loss",
        "torchtitan.distributed.tensor_parallel", "torchtitan.models.moe.utils", "torchtitan.models.moe.moe",
        "torchtitan.distributed.expert_parallel", "torchtitan.models.qwen3.model.args",
        "torchtitan.models.qwen3.model.model", "torchtitan.models.qwen3.infra.parallelize",
        "torchtitan.models.llama4.infra.parallelize", "torchtitan.models.deepseek_v3.model.args",
        "torchtitan.models.deepseek_v3.model.model", "torchtitan.models.deepseek_v3.infra.parallelize", "torchtitan.models.llama4.model.args",
        "torchtitan.models.llama4.model.model")


def modules():
    """By its last three names each module of torchtitan."""
    found = packages.modules("torchtitan", USED, "pip install --no-deps torchtitan==0.2.0",
                             [("torchtitan.models.moe.moe", ("MoE", "MoEArgs", "FeedForward"))])
    return {".".join(name.split(".")[-3:]): module for name, module in zip(USED, found)}


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


def llama(found, c):
    """(model, its function for tensor parallelism)"""
    args = found["llama3.model.args"].TransformerModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab, multiple_of=64,
        max_seq_len=c.sequence)
    parallelize = found["llama3.infra.parallelize"]
    return found["llama3.model.model"].Transformer(args), lambda model, mesh: parallelize.apply_tp(
        model, mesh, loss_parallel=True, enable_float8_tensorwise_tp=False)


def qwen3(found, c):
    """(model, its function for tensor parallelism)"""
    args = found["qwen3.model.args"].Qwen3ModelArgs(
        dim=c.hidden, n_layers=c.layers, n_heads=c.heads, n_kv_heads=c.kv_heads, vocab_size=c.vocab,
        head_dim=c.head_dim, hidden_dim=c.intermediate, max_seq_len=c.sequence, enable_weight_tying=c.tied)
    parallelize = found["qwen3.infra.parallelize"]
    return found["qwen3.model.model"].Qwen3Model(args), lambda model, mesh: parallelize.apply_non_moe_tp(
        model, mesh, loss_parallel=True, enable_float8_tensorwise_tp=False, enable_async_tp=False)


def build_with_experts(found, c, mesh):
    import fsdp

    titan_experts.without_values(found)
    parallelize = found["llama4.infra.parallelize"]
    m = {"qwen3_moe": titan_experts.qwen3, "llama4": titan_experts.llama4}.get(c.family, titan_experts.deepseek)(found, c)
    DeviceMesh.__init__ = with_values(DeviceMesh.__init__)
    DeviceMesh.mesh = property(with_values(DeviceMesh.mesh.fget))
    ranks, tensor = c.fsdp["moe"]["ep"], c.fsdp.get("tensor", 1)
    if tensor > 1:
        latent = {"use_flex_attn": False} if c.family == "deepseek_v3" else {}
        of_model = found["deepseek_v3.infra.parallelize"] if latent else parallelize
        of_model.apply_non_moe_tp(m, mesh["tensor"], loss_parallel=True, enable_float8_tensorwise_tp=False, **latent)
    if ranks > 1 or tensor > 1:
        parallelize.apply_moe_ep_tp(m, tp_mesh=mesh["tensor"] if tensor > 1 else None,
                                    ep_mesh=mesh["experts"] if ranks > 1 else None, ep_tp_mesh=None, etp_enabled=False)
    if c.fsdp["recompute"] != "none":
        checkpointing = types.SimpleNamespace(mode=c.fsdp["recompute"], selective_ac_option="op", early_stop=False,
                                              per_op_sac_force_recompute_mm_shapes_by_fqns=[])
        # The list of DeepSeek V3; that of Qwen3 has no all-to-all.
        saved = set(parallelize._op_sac_save_list)
        if c.family == "qwen3_moe":
            saved.discard(torch.ops._c10d_functional.all_to_all_single.default)
        parallelize.apply_ac(m, checkpointing, op_sac_save_list=saved)
    parallelize.apply_fsdp(
        m, mesh["shards"], param_dtype=fsdp.TYPES[c.fsdp["param"]], reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]],
        pp_enabled=False, reshard_after_forward_policy="default" if c.fsdp["reshard"] else "never", ep_degree=ranks,
        dp_mod_ep_mesh=mesh["shards of experts"] if ranks > 1 else None, gradient_divide_factor=c.fsdp["world"])
    return Trained(m.train(), found["torchtitan.components.loss"].cross_entropy_loss)


def build(c, mesh):
    import fsdp

    found = modules()
    parallelize, loss = found["llama3.infra.parallelize"], found["torchtitan.components.loss"]
    if "moe" in c.fsdp:
        return build_with_experts(found, c, mesh)
    m, divide = (qwen3 if c.family == "qwen3" else llama)(found, c)
    if c.fsdp.get("release") == "0.0":
        separate_norms(m)
    DeviceMesh.__init__ = with_values(DeviceMesh.__init__)
    DeviceMesh.mesh = property(with_values(DeviceMesh.mesh.fget))
    if c.fsdp.get("tensor", 1) > 1:
        divide(m, mesh["tensor"])
    mesh = mesh["shards"]
    if c.fsdp["recompute"] != "none":
        mode = c.fsdp["recompute"]  # a number n: every n-th layer
        found["torchtitan.distributed.activation_checkpoint"]._layer_sac_count = 0
        checkpointing = types.SimpleNamespace(
            mode="selective" if mode.isdigit() else mode, selective_ac_option=mode if mode.isdigit() else "op",
            early_stop=False, per_op_sac_force_recompute_mm_shapes_by_fqns=[])
        parallelize.apply_ac(m, checkpointing, op_sac_save_list=parallelize._op_sac_save_list)
    if c.fsdp.get("release") == "0.0":
        shard_as_2024(m, mesh, MixedPrecisionPolicy(param_dtype=fsdp.TYPES[c.fsdp["param"]],
                                                    reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]]))
        return Trained(m.train(), loss.cross_entropy_loss)
    parallelize.apply_fsdp(m, mesh, param_dtype=fsdp.TYPES[c.fsdp["param"]], reduce_dtype=fsdp.TYPES[c.fsdp["reduce"]],
                           pp_enabled=False, reshard_after_forward_policy="default" if c.fsdp["reshard"] else "never")
    if c.family == "qwen3" and c.tied:  # as the end of parallelize_qwen3()
        m.output.weight = m.tok_embeddings.weight
    return Trained(m.train(), loss.cross_entropy_loss)
