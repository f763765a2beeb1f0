"""Lets fake tensors be on the device cuda where there is no driver.

A fake tensor has a device, and no memory. Operators on fake tensors of the device cuda take the paths of CUDA: its list of
casts under autocast, its attention kernels, its rounding of sizes. Python code of torch asks first whether there is a
driver; here it is answered yes. C++ code that asks is avoided: see attention.py.
"""
import contextlib
import importlib
from unittest import mock

import torch


@contextlib.contextmanager
def without_driver(device: str):
    """Nothing changes for the device cpu, except that AdamW does not read its step counters."""
    with contextlib.ExitStack() as stack:
        patch = lambda *a, **k: stack.enter_context(mock.patch.object(*a, **k))
        # AdamW reads the number of steps from a tensor to compute its corrections. A fake tensor has no value.
        patch(importlib.import_module("torch.optim.adam"), "_get_value", lambda x: 1.0)
        if device == "cuda":
            patch(torch.cuda, "is_available", lambda: True)
        yield
