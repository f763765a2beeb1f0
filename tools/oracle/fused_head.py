"""Models of transformers with the fused head of TRL 1.15 and newer, as add_fused_lm_head() applies it.

Its function of autograd runs as it is; launching a kernel of Triton is replaced by nothing. Where the code asks for CUDA, it gets
the answer of a GPU: only the tokens that count are multiplied, and products are added to f32 sums in place. Every label counts,
so the rows that a mask chooses, whose number depends on values, are all rows.
"""
import contextlib
import importlib
from unittest import mock

import torch


def applied(model, c):
    outputs = ("log_probs", "entropy", "mean_logits", "is_top1") if c.dpo else ("log_probs", "entropy", "is_top1")
    importlib.import_module("trl.trainer.utils").add_fused_lm_head(
        getattr(model, "get_base_model", lambda: model)(), outputs=outputs)
    return model


def loss_of(model, inputs):
    """SFTTrainer.compute_loss(). The number of tokens of all micro-batches divides the loss."""
    outputs = model(input_ids=inputs, labels=inputs, use_cache=False, fused_lm_head=True)
    loss = (-outputs.log_probs).sum() / inputs.numel()
    for metric in (outputs.label_mask, outputs.entropy.detach(), outputs.is_top1):
        metric.sum()
    return loss


class _Rows(torch.autograd.Function):
    """x[mask] where every value of the mask is true."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        ctx.before = x.shape, x.dtype
        places = torch.empty(mask.numel(), mask.dim(), dtype=torch.long)
        return torch.ops.aten.index(x, [places[:, i] for i in range(mask.dim())])

    @staticmethod
    def backward(ctx, gradient):
        ctx.saved_tensors
        shape, dtype = ctx.before
        return torch.zeros(shape, dtype=dtype), None


class _Scattered(torch.autograd.Function):
    """zeros.masked_scatter(mask, x) where every value of the mask is true."""

    @staticmethod
    def forward(ctx, zeros, mask, x):
        ctx.save_for_backward(mask)
        ctx.count = x.shape
        return zeros.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.saved_tensors
        return None, None, torch.empty(ctx.count, dtype=gradient.dtype)


@contextlib.contextmanager
def without_kernels(c):
    if not c.fused:
        yield
        return
    import triton

    utils = importlib.import_module("trl.trainer.utils")
    kernels = importlib.import_module("trl.kernels.chunked_logprob")
    chosen = torch.Tensor.__getitem__

    def rows(tensor, index):
        by_mask = isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.dim() > 0
        return _Rows.apply(tensor, index) if by_mask else chosen(tensor, index)

    def scattered(zeros, mask, x):
        return _Scattered.apply(zeros, mask, x)

    with contextlib.ExitStack() as stack:
        replace = lambda *args: stack.enter_context(mock.patch.object(*args))
        replace(triton.runtime.jit.KernelInterface, "__getitem__", lambda kernel, grid: lambda *args, **kwargs: None)
        for module in (utils, kernels):
            replace(module, "_use_triton", lambda device: True)
        replace(kernels, "_addmm_fp32", lambda *args: None)
        replace(torch.Tensor, "__getitem__", rows)
        replace(torch.Tensor, "masked_scatter", scattered)
        if c.zero and c.zero["stage"] == 3:
            deepspeed = importlib.import_module("transformers.integrations.deepspeed")
            replace(deepspeed, "is_deepspeed_zero3_enabled", lambda: True)
        yield
