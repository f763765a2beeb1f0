"""Models of transformers with Cut Cross Entropy, as its cce_patch() applies it (the fork of axolotl, which its plugin needs).

Its function of autograd runs as it is. A kernel of Triton writes to tensors that exist, so launching it is replaced by
nothing (liger.py), and what torch.compile would compile runs eagerly. No label is ignored: nonzero() of the mask of labels,
whose size depends on values, finds all of them.
"""
import contextlib
import importlib
import inspect
from unittest import mock

import torch


def applied(model, c):
    from cut_cross_entropy.transformers import cce_patch

    return cce_patch(model)


def _all_places(mask):
    return torch.empty(mask.numel(), mask.dim(), dtype=torch.long)


def _changed(function, names, *changes):
    """The function from its source with texts replaced."""
    source = inspect.getsource(function)
    source = source[source.index("def "):]  # without decorators, which change its documentation only
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    exec(source, names)
    return names[function.__name__]


@contextlib.contextmanager
def without_kernels(c):
    if not c.cut:
        yield
        return
    import triton

    cce, loss, dot = (importlib.import_module("cut_cross_entropy." + name)
                      for name in ("cce", "linear_cross_entropy", "indexed_dot"))
    utils = importlib.import_module("cut_cross_entropy.utils")
    valids = _changed(utils._build_flat_valids, dict(vars(utils), _all_places=_all_places),
                      ("(targets != ignore_index).nonzero()", "_all_places(targets != ignore_index)"))
    names = dict(vars(cce), _build_flat_valids=valids)
    called = _changed(cce.cce_linear_cross_entropy, names, ("targets.data_ptr()", "0"))
    with contextlib.ExitStack() as stack:
        replace = lambda *args: stack.enter_context(mock.patch.object(*args))
        replace(triton.runtime.jit.KernelInterface, "__getitem__", lambda kernel, grid: lambda *args, **kwargs: None)
        replace(torch.cuda, "is_bf16_supported", lambda *args: True)
        replace(cce, "sort_logit_avg", lambda average: torch.argsort(average).to(torch.int32))
        replace(dot, "softcapping", lambda logits, cap: torch.tanh(logits))  # one kernel
        replace(loss, "cce_linear_cross_entropy", called)
        yield
