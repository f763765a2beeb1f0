"""Counts the bytes of every storage while it exists, with the largest sum of each phase of the step."""
import contextlib

import torch
from torch.distributed._tools.mem_tracker import MemTracker

# The names in the facts of MemTracker's kinds of memory.
KINDS = {"Parameter": "parameters", "Buffer": "buffers", "Gradient": "gradients", "Activation": "activations",
         "Temp": "temporaries", "Optstate": "optimizer", "Other": "inputs"}


class NoHook:
    remove = staticmethod(lambda: None)


class NoModules(contextlib.nullcontext):
    """Replaces MemTracker's ModTracker. Its hooks keep the output of the embedding, if that requires a gradient, which
    is the way of LoRA with checkpointing."""

    def register_user_hooks(self, *hooks):
        pass

    def clear_user_hooks(self):
        pass

    @property
    def is_bw(self) -> bool:
        return torch._C._current_graph_task_id() != -1


class Phases(MemTracker):
    """MemTracker that also knows the phase: `begin()` names it, `peaks` holds the largest snapshot of each name.

    The sum is taken after every operator, when its results exist and its inputs still do. Memory that a kernel
    allocates and frees inside one operator is not seen. Sizes are not rounded up to blocks."""

    def __init__(self):
        super().__init__()
        self._mod_tracker = NoModules()
        self.paused = False  # what is allocated now has no memory on a device
        self._device, self._name, self._operator, self.peaks = torch.device("cpu"), "", "", {}

    def begin(self, name: str):
        """Operators from here on belong to the phase `name`. What is allocated now counts too."""
        self._name, self._operator = name, ""
        self._update_peak_stats(None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.paused:
            return func(*args, **(kwargs or {}))
        self._operator = func.overloadpacket.__name__
        self._in_ac = torch.is_grad_enabled()  # in the backward pass: a layer is recomputed
        return super().__torch_dispatch__(func, types, args, kwargs)

    def current(self) -> dict:
        """Bytes by kind, and their sum under "total", without kinds that have none."""
        snapshot = self._curr_mem_snap.get(self._device, {})
        kinds = {KINDS[getattr(k, "value", k)]: v for k, v in snapshot.items() if k != "Total" and v}
        return kinds | {"total": snapshot.get("Total", 0)}

    def on_host(self) -> int:
        """Bytes of the tensors that offload.py keeps in host memory."""
        return self._curr_mem_snap.get(torch.device("meta"), {}).get("Total", 0)

    def _track_module_params_and_buffers(self, module, install_grad_hooks=True):
        for p in module.parameters():
            if not p.requires_grad:
                self._param_to_grad_hook_handles[p] = (NoHook, NoHook)  # frozen: it takes no hooks
        return super()._track_module_params_and_buffers(module, True)

    def get_tracker_snapshot(self, type="current"):
        return {}  # by module and state: nothing here needs it

    def _track_inputs_or_outputs(self, args):
        return 0

    def _update_peak_stats(self, peak_state):
        # Replaces the search for peaks by module, which nothing here needs.
        total = self._curr_mem_snap.get(self._device, {}).get("Total", 0)
        if self._name and total > self.peaks.get(self._name, {"total": -1})["total"]:
            self.peaks[self._name] = self.current() | {"at": self._operator}
