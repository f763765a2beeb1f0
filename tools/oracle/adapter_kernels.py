"""Adapters of peft computed by the kernels of axolotl (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel).

A case with `axolotl` holds the names of the kernels that are on. The functions of autograd are those of axolotl; what its
kernels of Triton and bitsandbytes write has no memory of its own, or is allocated here as its Python code does. Models run
under autocast, as axolotl trains them.
"""
import inspect
import textwrap
import types
from unittest import mock

import torch

import packages

# QKV_PATCHES of axolotl.monkeypatch.lora_kernels: which lines of an attention call apply_qkv().
SEPARATE = """
    query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
    key_states = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
    value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
"""
TOGETHER = """
    query_states, key_states, value_states = self.apply_qkv(hidden_states)
    query_states = query_states.view(hidden_shape).transpose(1, 2)
    key_states = key_states.view(hidden_shape).transpose(1, 2)
    value_states = value_states.view(hidden_shape).transpose(1, 2)
"""
NORMED = """
    query_states = self.q_norm(self.q_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
    key_states = self.k_norm(self.k_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
    value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
"""
NORMED_TOGETHER = """
    query_states, key_states, value_states = self.apply_qkv(hidden_states)
    query_states = self.q_norm(query_states.view(hidden_shape)).transpose(1, 2)
    key_states = self.k_norm(key_states.view(hidden_shape)).transpose(1, 2)
    value_states = value_states.view(hidden_shape).transpose(1, 2)
"""


def dequantize(weight, state=None):
    """axolotl.kernels.quantize.dequantize(), whose kernels fill what it allocates."""
    if state is None:
        return weight
    out = torch.empty(tuple(state.shape), dtype=state.dtype, device=weight.device)
    if state.nested:
        scales = torch.empty(state.absmax.numel(), dtype=torch.float32, device=weight.device)
        scales += state.offset
    return out.t() if weight.shape[0] == 1 else out


def activation(gate, up):
    return torch.empty_like(gate)


def activation_backward(gradient, gate, up):
    return gradient, gate, up


def functions():
    with mock.patch.object(torch.amp, "custom_fwd", lambda device_type: _custom_fwd(device_type="cpu")), \
            mock.patch.object(torch.amp, "custom_bwd", lambda device_type: _custom_bwd(device_type="cpu")):
        module = packages.modules("axolotl", ("axolotl.kernels.utils", "axolotl.kernels.lora"),
                                  "put the folder src/axolotl of its repository on PYTHONPATH")[1]
    module.dequantize = dequantize
    for name in ("swiglu", "geglu"):
        setattr(module, name + "_forward", activation)
        setattr(module, name + "_backward", activation_backward)
    return module


_custom_fwd, _custom_bwd = torch.amp.custom_fwd, torch.amp.custom_bwd


def original_qkv(self, x):
    query_states = self.q_proj(x)
    key_states = self.k_proj(x)
    value_states = self.v_proj(x)
    return query_states, key_states, value_states


def original_o(self, x):
    return self.o_proj(x)


def patched_forward(attention):
    """patch_self_attn_lora()."""
    source = textwrap.dedent(inspect.getsource(attention.forward))
    for before, after in ((SEPARATE, TOGETHER), (NORMED, NORMED_TOGETHER)):
        source = source.replace(before, after)
    source = source.replace("self.o_proj(attn_output)", "self.apply_o(attn_output)")
    if "self.apply_qkv(" not in source or "self.apply_o(" not in source:
        raise ValueError("the attention of this model has other lines")
    names = dict(vars(inspect.getmodule(attention)))
    exec(source, names)
    return names["forward"]


def applied(model, c):
    """apply_lora_kernel_patches()."""
    lora = functions()
    adapted = lambda parent, names: all(hasattr(getattr(parent, name), "lora_A") for name in names)
    mlp = lora.apply_lora_mlp_geglu if c.family.startswith("gemma") else lora.apply_lora_mlp_swiglu
    for layer in model.base_model.model.model.layers:
        attention = layer.self_attn
        if "qkv" in c.axolotl or "o" in c.axolotl:
            qkv = "qkv" in c.axolotl and adapted(attention, ("q_proj", "k_proj", "v_proj"))
            o = "o" in c.axolotl and adapted(attention, ("o_proj",))
            attention.apply_qkv = types.MethodType(lora.apply_lora_qkv if qkv else original_qkv, attention)
            attention.apply_o = types.MethodType(lora.apply_lora_o if o else original_o, attention)
            attention.forward = types.MethodType(patched_forward(type(attention)), attention)
        if "mlp" in c.axolotl and adapted(layer.mlp, ("gate_proj", "up_proj", "down_proj")):
            layer.mlp.forward = types.MethodType(mlp, layer.mlp)
    return model
