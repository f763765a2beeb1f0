"""The functions that autocast computes in f32 on CUDA and not on the CPU, for those that these models use.

The lists are those of aten/src/ATen/autocast_mode.h. Linear layers and products of matrices are bf16 on both devices.
"""
import contextlib

import torch

# Inputs are cast to f32.
CAST = ("pow.Tensor_Scalar", "pow.Tensor_Tensor", "rsqrt", "exp", "log", "reciprocal", "layer_norm")
# The result is f32, and the function converts.
RESULT = ("softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "cumsum", "prod")

BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def lowered(t) -> bool:
    return isinstance(t, torch.Tensor) and t.dtype in (torch.bfloat16, torch.float16)


def with_cast(op):
    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(BELOW):
            return op(*(a.float() if lowered(a) else a for a in args), **kwargs)
    return run


def with_result(op):
    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(BELOW):
            if lowered(args[0]) and kwargs.get("dtype") is None and not has_type(args):
                kwargs["dtype"] = torch.float32
            return op(*args, **kwargs)
    return run


def has_type(args) -> bool:
    return any(isinstance(a, torch.dtype) for a in args)


def overload(name: str):
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind or "default")


@contextlib.contextmanager
def lists_of_cuda():
    """Registers the functions with the autocast of the CPU."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for names, policy in ((CAST, with_cast), (RESULT, with_result)):
            for name in names:
                library.impl(name, policy(overload(name)), "AutocastCPU")
        yield
    finally:
        library._destroy()
