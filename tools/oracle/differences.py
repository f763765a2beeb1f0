"""What differs between the device cpu, which the fake tensors are on, and CUDA, which the facts describe.

Fake tensors of the device cuda exist without a driver, but their backward pass does not run: the engine asks the driver
for the stream of each node. So the tensors are on the device cpu, and what CUDA does otherwise is done here:
- the kernel of scaled_dot_product_attention: attention.py;
- autocast: CUDA computes pow in f32, the CPU in the type of the input. It is the only function of these models that the
  two lists treat differently and that gets bf16: others are called with f32, or in f32 by the model.
"""
import contextlib
import importlib
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

import attention

POWERS = (torch.pow, torch.Tensor.pow, torch.Tensor.__pow__)


class PowerInF32(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in POWERS and torch.is_autocast_enabled("cpu") and args[0].dtype == torch.bfloat16:
            args = (args[0].float(), *args[1:])
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def removed(kernels: str):
    """kernels: cuda, or cpu to leave the device as it is."""
    with contextlib.ExitStack() as stack:
        # AdamW reads the number of steps from a tensor to compute its corrections. A fake tensor has no value.
        stack.enter_context(mock.patch.object(importlib.import_module("torch.optim.adam"), "_get_value", lambda x: 1.0))
        # transformers looks for several sequences in one row, and makes a mask if it cannot read the positions.
        stack.enter_context(mock.patch.object(importlib.import_module("transformers.masking_utils"),
                                              "find_packed_sequence_indices", lambda position_ids: None))
        if kernels == "cuda":
            stack.enter_context(attention.chosen_as_on_cuda())
            stack.enter_context(PowerInF32())
        yield
