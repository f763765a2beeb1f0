"""Models of transformers with the kernels of Liger: rotary embedding, RMSNorm, SwiGLU, and the loss that computes the
head in chunks of tokens, as `use_liger_kernel` of TrainingArguments applies them.

Its functions of autograd run as they are. A kernel of Triton writes to tensors that exist, so launching it is replaced by
nothing. Where the code asks for CUDA, it gets the answer of a GPU with compute capability 9.0 and one multiprocessor: of
the loss a copy of the source runs, in which the device is the cpu and addmm() into a given tensor does nothing.
"""
import contextlib
import inspect
from unittest import mock

import torch


def applied(model, c):
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model)
    return model


def loss_of_cuda():
    """fused_linear_cross_entropy_forward() as it runs on CUDA."""
    from liger_kernel.ops import fused_linear_cross_entropy as module

    names = dict(vars(module), _addmm=lambda *args, **kwargs: None)
    for name in ("_can_use_mm_out", "fused_linear_cross_entropy_forward"):
        source = inspect.getsource(getattr(module, name)).replace('"cuda"', '"cpu"')
        source = source.replace("torch.addmm(", "_addmm(").replace("is_autocast_enabled()", 'is_autocast_enabled("cpu")')
        exec(source, names)
    return mock.patch.object(module, "fused_linear_cross_entropy_forward", names["fused_linear_cross_entropy_forward"])


@contextlib.contextmanager
def without_kernels(c):
    if not c.liger:
        yield
        return
    import triton

    with contextlib.ExitStack() as stack:
        replace = lambda *args: stack.enter_context(mock.patch.object(*args))
        replace(triton.runtime.jit.KernelInterface, "__getitem__", lambda kernel, grid: lambda *args, **kwargs: None)
        replace(torch.cuda, "get_device_capability", lambda *args: (9, 0))
        # Values that fake tensors lack: the number of labels; whether the gradient of the loss is 1.
        # DeepSpeed asks for a byte whether a gradient has overflowed.
        replace(torch.Tensor, "item", lambda tensor: 1 if tensor.dtype in (torch.int64, torch.int32) else 0)
        replace(torch, "equal", lambda a, b: True)
        stack.enter_context(loss_of_cuda())
        yield
