"""scaled_dot_product_attention as on CUDA, for fake tensors of the device cpu.

Torch chooses a kernel after it has asked the driver for the device. Without a driver the choice is made here, by the
rules of a GPU of compute capability 8.0 or higher, and the kernel's own operator is called, so that autograd saves what that
operator saves:
- flash: f16 or bf16, no mask. The head dimension is padded to a multiple of 8.
- efficient: f32, or a mask. The head dimension must be a multiple of 16 bytes. A boolean mask becomes one of the type of q,
  padded to a multiple of 8 columns.
- math: everything else.
On compute capability 9.0 and 10.0 torch takes cuDNN before flash. It saves tensors of the same sizes as flash.
Without the replacement torch chooses for the CPU: its flash kernel saves q, k, v, the output and f32 log-sum-exp.
"""
import contextlib
from unittest import mock

import torch

aten = torch.ops.aten
MASK_COLUMNS = 8


def kernel_of(dtype: torch.dtype, head_dim: int, mask: bool) -> str:
    """The kernel that torch takes on a GPU of compute capability 8."""
    half = dtype != torch.float32
    if half and not mask and head_dim <= 256:
        return "flash"
    return "efficient" if head_dim % (8 if half else 4) == 0 else "math"


@contextlib.contextmanager
def chosen_as_on_cuda():
    with mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", attend):
        yield


def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Same arguments and result as torch.nn.functional.scaled_dot_product_attention."""
    if torch.is_autocast_enabled("cpu"):
        lower = lambda t: t.to(torch.bfloat16) if t is not None and t.is_floating_point() else t
        query, key, value, attn_mask = map(lower, (query, key, value, attn_mask))
    with torch.autocast("cpu", enabled=False):
        kernel = kernel_of(query.dtype, query.shape[-1], attn_mask is not None)
        if value.shape[-1] != query.shape[-1]:
            kernel = "efficient"
        if kernel == "flash":
            return flash(query, key, value, dropout_p, is_causal, scale)
        mask = additive(attn_mask, query)
        if kernel == "math":
            return aten._scaled_dot_product_attention_math(query, key, value, mask, dropout_p, is_causal, scale=scale,
                                                           enable_gqa=enable_gqa)[0]
        if mask is not None:
            mask = padded(mask, MASK_COLUMNS).expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        needed = any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(query, key, value, mask, needed, dropout_p, is_causal,
                                                            scale=scale)[0]


def flash(query, key, value, dropout_p, is_causal, scale):
    width = query.shape[-1]
    scale = width**-0.5 if scale is None else scale
    q, k, v = (padded(t, 8, cut=False) for t in (query, key, value))
    out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
    return out[..., :width] if q is not query else out


def padded(t, multiple: int, cut: bool = True):
    """The tensor with its last dimension padded to a multiple; `cut`: a view of the old width of that."""
    width = t.shape[-1]
    if width % multiple == 0:
        return t
    wide = torch.nn.functional.pad(t, (0, multiple - width % multiple))
    return wide[..., :width] if cut else wide


def additive(mask, query):
    """0 where a boolean mask is true, else minus infinity, in the type of the query."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask.logical_not(), float("-inf"), zero)
