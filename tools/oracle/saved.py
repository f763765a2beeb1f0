"""What autograd saves for the backward pass: module, operator, shape, type and bytes of every tensor."""
import re
from contextlib import ExitStack, contextmanager

import torch
from torch.overrides import TorchFunctionMode

LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)(?:\.|$)")


class CurrentFunction(TorchFunctionMode):
    """Knows which function of torch the program is calling: linear, mul, softmax."""

    def __init__(self):
        super().__init__()
        self.stack = [""]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.stack.append(getattr(func, "__name__", str(func)).strip("_"))
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.stack.pop()


class Saved:
    """Records of all tensors that are saved while `recording()` is active. A storage counts once, for the operator that
    saves it first; storages of parameters do not count."""

    def __init__(self, model: torch.nn.Module, detaches: bool = False):
        """detaches: a result that is saved for its own gradient does not keep its graph, which a step may not run."""
        self._detaches = detaches
        self.records, self._functions, self._modules = [], CurrentFunction(), [("", model)]
        # By address. A weak reference keeps the address from being used again, not the memory from being freed.
        self._model, self._weak, self._parameters = model, {}, {}
        for p in model.parameters():
            self.add_parameter(p)
        self._names = {m: n.replace("_fsdp_wrapped_module.", "").replace("_fsdp_wrapped_module", "")
                       for n, m in model.named_modules()}

    def add_parameter(self, parameter):
        storage = parameter.untyped_storage()
        if storage._cdata not in self._parameters:
            self._parameters[storage._cdata] = storage._weak_ref()

    @contextmanager
    def recording(self):
        hooks = []
        for module, name in self._names.items():
            hooks.append(module.register_forward_pre_hook(
                lambda m, args, name=name: self._modules.append((name, m))))
            hooks.append(module.register_forward_hook(
                lambda m, args, out: self._modules.pop() and None, always_call=True))
        try:
            with ExitStack() as stack:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, lambda t: t))
                stack.enter_context(self._functions)
                yield
        finally:
            for h in hooks:
                h.remove()

    def _pack(self, tensor):
        self._note(tensor)
        return tensor.detach() if self._detaches else tensor

    def _note(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata in self._parameters or storage._cdata in self._weak:
            return
        self._weak[storage._cdata] = storage._weak_ref()
        path, module = self._modules[-1]
        operator = self._functions.stack[-1] or "checkpoint"  # which saves the inputs of a layer, outside of a function
        if is_copy_of_parameter(tensor, module):
            operator += ".weight"
        found = LAYER.search(path)
        # The layer that runs: a module that layers share has the name of its first place.
        running = next(filter(None, (LAYER.search(p) for p, _ in self._modules)), None)
        self.records.append({
            "layer": int(running.group(1)) if running else -1,
            "module": path[found.end():] if found else path,
            "operator": operator,
            "shape": tuple(tensor.shape),
            "dtype": str(tensor.dtype).replace("torch.", ""),
            "bytes": storage.nbytes(),
        })

    def release(self):
        for weak in (*self._weak.values(), *self._parameters.values()):
            torch.UntypedStorage._free_weak_ref(weak)
        self._weak.clear()
        self._parameters.clear()


def is_copy_of_parameter(tensor, module) -> bool:
    """Has autocast cast a parameter of this module to get the tensor?"""
    return any(p.dtype != tensor.dtype and sorted(p.shape) == sorted(tensor.shape)
               for p in module.parameters(recurse=False))


def by_layer(records) -> dict:
    """{layer: bytes}; -1: outside of the layers."""
    sums = {}
    for r in records:
        sums[r["layer"]] = sums.get(r["layer"], 0) + r["bytes"]
    return sums


def by_operator(records, layer: int) -> dict:
    """{"module/operator/dtype": bytes} of one layer, in the order of the forward pass."""
    sums = {}
    for r in records:
        if r["layer"] == layer:
            name = "/".join(x for x in (r["module"], r["operator"], r["dtype"]) if x)
            sums[name] = sums.get(name, 0) + r["bytes"]
    return sums
