"""Linear layers that bitsandbytes quantizes to 8 bits (LLM.int8()), as they run on CUDA.

The `quantized` of a case: "type" int8; "outliers": columns of each input that have a value of 6 or more, which depends on
values and is therefore given; "prepared" and "autocast" as for 4 bits. MatMul8bitLt of bitsandbytes runs as it is. Its
operators are replaced by what its backend for CUDA allocates: their fake implementations allocate the results only, and
ask for the number of outliers.
"""
import contextlib
from unittest import mock

import torch

THRESHOLD = 6.0  # llm_int8_threshold


def parameter(data, requires_grad=False, **settings):
    """Int8Params as a parameter of the usual class."""
    made = torch.nn.Parameter(data, requires_grad=False)
    made.CB = made.SCB = None
    for key, value in settings.items():
        setattr(made, key, value)
    return made


def is_int8(c) -> bool:
    return bool(c.quantized) and c.quantized["type"] == "int8"


def quantize(module, weight):
    """Linear8bitLt with the weight of a linear layer: one byte per element, and the largest value of each row."""
    packed = torch.empty(weight.shape, dtype=torch.int8)
    module.weight = parameter(packed, has_fp16_weights=False)
    module.weight.CB, module.weight.SCB = packed, torch.empty(weight.shape[0])


def tensors_of(model) -> list:
    import bitsandbytes

    return [m.weight.SCB for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear8bitLt)]


def kept_between_steps(model) -> int:
    """Bytes of the column numbers of the last call, which each module has."""
    import bitsandbytes

    found = [m.state.idx for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear8bitLt)]
    return sum(t.untyped_storage().nbytes() for t in found if t is not None)


def vectorwise_quant(columns: int):
    """int8_vectorwise_quant() with `columns` outliers in each tensor. The CUDA kernel writes bytes and row maxima."""
    def run(rows_of_values, threshold=0.0):
        rows, width = rows_of_values.shape
        maxima = torch.empty(rows)
        quantized = torch.empty((rows, width), dtype=torch.int8)
        found = None
        if threshold > 0:
            large = rows_of_values.abs() >= threshold
            number = min(columns, width)
            if number:
                large.any(dim=0)
                found = torch.empty(number, 1, dtype=torch.int64).view(-1)  # argwhere()
            else:
                found = torch.empty(0, dtype=torch.int64)
        if rows > 1 and found is not None:
            quantized[:, found] = 0
        return quantized, maxima, found
    return run


def scaled_product(a, b, bias, dtype):
    """The product in 32-bit integers, which a kernel turns into f16."""
    integers = torch.empty((a.shape[0], b.shape[0]), dtype=torch.int32)

    def dequantized():
        values = torch.empty_like(integers, dtype=torch.float16)
        if bias is not None and bias.dtype != torch.float16:
            values.add_(bias)  # otherwise the kernel adds it
        return values.to(dtype)
    return dequantized()


def column_weights(b, scales, columns, dtype):
    """The columns of the weight that outliers are multiplied with."""
    def wide(part):
        return part * scales.view(-1, 1) * (1 / 127)
    return wide(b[:, columns].contiguous()).to(dtype).t()


def mixed_scaled_mm(a, quantized, b, row_scales, scales, columns=None, bias=None):
    some = columns is not None and columns.numel() > 0
    outliers = a[:, columns].contiguous() if some else torch.empty(0, dtype=a.dtype)
    weights = column_weights(b, scales, columns, a.dtype) if some else None
    output = scaled_product(quantized, b, bias, a.dtype)
    if some:
        output = output.addmm(outliers, weights)
    return output, outliers


@contextlib.contextmanager
def as_on_cuda(c, delegate):
    """On a CPU bitsandbytes takes another function, MatMul8bitFp."""
    import bitsandbytes
    from bitsandbytes.autograd import _functions

    operators = torch.ops.bitsandbytes
    ops = delegate(torch.ops, bitsandbytes=delegate(operators, int8_mixed_scaled_mm=mixed_scaled_mm))

    def matmul(a, b, out=None, state=None, threshold=0.0, bias=None):
        return _functions.MatMul8bitLt.apply(a, b, out, bias, state)

    with mock.patch.object(_functions, "torch", delegate(torch, ops=ops)), \
            mock.patch.object(bitsandbytes, "matmul", matmul), \
            mock.patch.object(bitsandbytes.functional, "int8_vectorwise_quant", vectorwise_quant(c.quantized["outliers"])), \
            mock.patch.object(bitsandbytes.nn.modules.Linear8bitLt, "_save_to_state_dict", torch.nn.Linear._save_to_state_dict):
        yield
