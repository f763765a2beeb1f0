"""What the functions of Unsloth save for the backward pass of one layer, and what that pass allocates.

  unsloth.py FOLDER [TOKENS HIDDEN HEADS KV_HEADS HEAD_DIM INTERMEDIATE RANK [DROPOUT]]

FOLDER: unsloth/kernels of the package (2026.10.9). Its functions of autograd run with fake tensors: adapters of q, k and v,
of the output projection and of the MLP, norms, rotary embedding. Taken from the files without importing them, because the
package needs a GPU. Kernels of Triton write to tensors that exist, and are replaced by what allocates their results; packed
weights by bytes that a kernel dequantizes. Dropout is that of CUDA. Attention is a function that keeps q, k, v, its result and the log-sum-exp.
Prints the bytes that are saved, and the bytes that the backward pass allocates beyond them at its peak. The facts are in
tests/plugins/estimators/unsloth_runs_test.cpp.
"""
import ast
import contextlib
import os
import sys
import types
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAMES = {"utils.py": ["matmul_lora"], "fast_lora.py": ["LoRA_MLP", "LoRA_QKV", "LoRA_W", "_add_lora_dX",
                          "_matmul_lora_ext", "_dropout_forward", "_dropout_replay"],
         "rms_layernorm.py": ["Fast_RMS_Layernorm"],
         "rope_embedding.py": ["Fast_RoPE_Embedding_QK_Positions", "_bshd_buffer"]}


class Other:
    """A class of weights that no tensor here has."""


class State:
    """Of a weight that bitsandbytes has packed."""

    def __init__(self, outputs, inputs):
        self.shape = (outputs, inputs)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        sums = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return tuple(torch.empty_like(t) for t in ctx.saved_tensors[:3])


class Counted(TorchDispatchMode):
    """Bytes of the storages that operators make, until they are freed."""

    def __init__(self, known):
        super().__init__()
        self.now = self.peak = 0
        self.kept = {t.untyped_storage()._cdata: None for t in known}

    def __torch_dispatch__(self, function, classes, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, torch.Tensor):
                self.add(t.untyped_storage())
        return result

    def add(self, storage):
        key, size = storage._cdata, storage.nbytes()
        if key in self.kept:
            return

        def freed():
            self.kept.pop(key, None)
            self.now -= size

        self.now += size
        self.peak = max(self.peak, self.now)
        self.kept[key] = weakref.finalize(storage, freed)


def functions(folder, scratch):
    def dequantize(weight, state=None, out=None, use_global_buffer=False, dtype=None):
        if state is None:
            return weight
        count = state.shape[0] * state.shape[1]
        out = scratch[:count].view(state.shape) if use_global_buffer else torch.empty(state.shape, dtype=torch.bfloat16)
        return out.t() if weight.shape[0] == 1 else out

    found = dict(
        torch=torch, torch_matmul=torch.matmul, fast_dequantize=dequantize, Float8Tensor=Other, Int4QuantState=Other,
        torch_amp_custom_fwd=torch.amp.custom_fwd(device_type="cpu"), torch_amp_custom_bwd=torch.amp.custom_bwd(device_type="cpu"),
        _is_packed_state=lambda state: False, _is_compiling=lambda: False, _eager_kernel=None, _SAVE_OUTPUT=False,
        _save_output_ok=lambda *args: False, _rms_layernorm=types.SimpleNamespace(_SAVE_OUTPUT=False),
        addmm_=lambda out, a, b, alpha=1: out.addmm_(a, b, alpha=alpha), torch_gpu_device=lambda device: contextlib.nullcontext(),
        _rms_forward=lambda x, *args: (torch.empty_like(x), torch.empty(x.shape[0], dtype=torch.float32)),
        _rms_backward=lambda *args, **kwargs: None, _rope_launch=lambda *args, **kwargs: None)
    for name, wanted in NAMES.items():
        with open(os.path.join(folder, name)) as file:
            tree = ast.parse(file.read().replace('.device.type == "cpu"', '.device.type == "no GPU"'))
        body = [n for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name in wanted]
        exec(compile(ast.Module(body=body, type_ignores=[]), name, "exec"), found)
    return types.SimpleNamespace(**found)


def count(folder, tokens, hidden, heads, kv_heads, head_dim, intermediate, rank, dropout=0.0):
    with FakeTensorMode(allow_non_fake_inputs=True):
        width, narrow = heads * head_dim, kv_heads * head_dim
        scratch = torch.empty(max(intermediate, width) * hidden, dtype=torch.bfloat16)
        f = functions(folder, scratch)

        def adapted(outputs, inputs):
            return (torch.empty(outputs * inputs // 2, 1, dtype=torch.uint8), State(outputs, inputs),
                    torch.nn.Parameter(torch.empty(rank, inputs)), torch.nn.Parameter(torch.empty(outputs, rank)), 1.0)

        q, k, v, o = adapted(width, hidden), adapted(narrow, hidden), adapted(narrow, hidden), adapted(hidden, width)
        gate, up, down = adapted(intermediate, hidden), adapted(intermediate, hidden), adapted(hidden, intermediate)
        norms = [torch.empty(hidden, dtype=torch.bfloat16) for _ in range(2)]
        cos, sin = (torch.empty(tokens, head_dim, dtype=torch.bfloat16) for _ in range(2))

        each, three = (dropout, (dropout,) * 3) if dropout else (None, None)

        def attention(x):
            parts = [t.view(1, tokens, -1, head_dim).transpose(1, 2) for t in f.LoRA_QKV.apply(x, *q, *k, *v, True, three)]
            parts[:2] = f.Fast_RoPE_Embedding_QK_Positions.apply(*parts[:2], cos, sin)
            query, key, value = (t.transpose(1, 2) for t in parts)
            del parts
            if heads != kv_heads:
                key, value = (t.view(1, tokens, kv_heads, 1, head_dim).expand(1, tokens, kv_heads, heads // kv_heads, head_dim)
                              .reshape(1, tokens, heads, head_dim) for t in (key, value))
            return f.LoRA_W.apply(Attention.apply(query, key, value).view(1, tokens, width), *o, each)

        def layer(x):
            x = x + attention(f.Fast_RMS_Layernorm.apply(x, norms[0], 1e-5, False, True, True))
            normed = f.Fast_RMS_Layernorm.apply(x, norms[1], 1e-5, False, True, True)
            return x + f.LoRA_MLP.apply(normed, *gate, *up, *down, lambda e, g: torch.empty_like(e), lambda d, e, g: (d, e, g), True,
                                         three)

        x = torch.empty(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
        known = [scratch, *norms, cos, sin] + [w[i] for w in (q, k, v, o, gate, up, down) for i in (0, 2, 3)]
        weights = {t.untyped_storage()._cdata for t in known}
        saved = {}

        def pack(t):
            saved[t.untyped_storage()._cdata] = t.untyped_storage().nbytes()
            return t

        counted = Counted([x, *known])
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), counted:
            y = layer(x)
        kept = counted.peak = counted.now
        gradient = torch.empty_like(y)
        counted.kept[gradient.untyped_storage()._cdata] = None
        with counted:
            y.backward(gradient)
        return sum(size for key, size in saved.items() if key not in weights), counted.peak - kept


if __name__ == "__main__":
    sizes = [int(n) for n in sys.argv[2:9]] + [float(n) for n in sys.argv[9:]] or [1536, 4096, 32, 8, 128, 14336, 32]
    print(*sizes, *count(sys.argv[1], *sizes))
