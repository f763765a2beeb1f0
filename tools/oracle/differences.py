"""What differs between the device cpu, which the fake tensors are on, and CUDA, which the facts describe.

Fake tensors of the device cuda exist without a driver, but their backward pass does not run: the engine asks the driver
for the stream of each node. So the tensors are on the device cpu, and what CUDA does otherwise is done here:
- the kernel of scaled_dot_product_attention: attention.py;
- autocast: CUDA computes pow, softmax, sum and others in f32, the CPU in the type of the input: autocast.py;
- rms_norm: CUDA runs one kernel, which keeps 1/rms in f32; the CPU runs five operators;
- dropout: CUDA saves a mask of one byte per element, the CPU a mask of the type of the input;
- layer_norm: CUDA keeps mean and 1/deviation of a bf16 input in f32, the CPU in bf16.
"""
import contextlib
import importlib.util
from unittest import mock

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

import attention
import autocast

aten = torch.ops.aten


def dropout(input, p=0.5, training=True, inplace=False):
    """torch.nn.functional.dropout as on CUDA."""
    return aten.native_dropout(input, p, True)[0] if training and p else input


class FusedRmsNorm(torch.autograd.Function):
    """What _fused_rms_norm of CUDA allocates and saves."""

    @staticmethod
    def forward(ctx, input, weight):
        output, scale = torch.empty_like(input), input.new_empty((*input.shape[:-1], 1), dtype=torch.float32)
        ctx.save_for_backward(input, weight, scale)
        return output

    @staticmethod
    def backward(ctx, gradient):
        input, weight, _ = ctx.saved_tensors
        return torch.empty_like(input), torch.empty_like(weight)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """torch.nn.functional.rms_norm as on CUDA: one kernel; the CPU runs it as five operators."""
    return FusedRmsNorm.apply(input, weight)


def layer_norm_with_f32_statistics():
    table = fake_impls.op_implementations_dict
    original = table[aten.native_layer_norm.default]

    def run(mode, op, *args, **kwargs):
        out, mean, deviation = original(mode, op, *args, **kwargs)
        return out, mean.float(), deviation.float()
    return mock.patch.dict(table, {aten.native_layer_norm.default: run})


def values_that_fake_tensors_lack(stack):
    # AdamW reads the number of steps from a tensor to compute its corrections.
    stack.enter_context(mock.patch.object(importlib.import_module("torch.optim.adam"), "_get_value", lambda x: 1.0))
    # transformers looks for several sequences in one row, and makes a mask if it cannot read the positions.
    # Releases before 4.53 do not.
    if importlib.util.find_spec("transformers.masking_utils"):
        stack.enter_context(mock.patch.object(importlib.import_module("transformers.masking_utils"),
                                              "find_packed_sequence_indices", lambda position_ids: None))
    # The loss of torchtune leaves out tokens that have no label.
    where = torch.where
    stack.enter_context(mock.patch.object(torch, "where", lambda condition, *given: where(condition, *given) if given
                                          else torch.zeros(condition.numel(), condition.dim(), dtype=torch.int64).unbind(1)))


@contextlib.contextmanager
def removed(kernels: str, real: bool):
    """kernels: cuda, or cpu to leave the device as it is. real: tensors have values."""
    FakeTensorMode.cache_clear()  # it may hold results of the other device
    with contextlib.ExitStack() as stack:
        if not real:
            values_that_fake_tensors_lack(stack)
        if kernels == "cuda":
            stack.enter_context(attention.chosen_as_on_cuda())
            stack.enter_context(autocast.lists_of_cuda())
            stack.enter_context(mock.patch.object(torch.nn.functional, "dropout", dropout))
            stack.enter_context(mock.patch.object(torch.nn.functional, "rms_norm", rms_norm))
            stack.enter_context(layer_norm_with_f32_statistics())
        yield
