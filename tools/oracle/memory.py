"""Counts the bytes of every storage while it exists, with the largest sum of each phase of the step."""
import torch
from torch.distributed._tools.mem_tracker import MemTracker

# The names in the facts of MemTracker's kinds of memory.
KINDS = {"Parameter": "parameters", "Buffer": "buffers", "Gradient": "gradients", "Activation": "activations",
         "Temp": "temporaries", "Optstate": "optimizer", "Other": "inputs"}


class Phases(MemTracker):
    """MemTracker that also knows the phase: `begin()` names it, `peaks` holds the largest snapshot of each name.

    The sum is taken after every operator, when its results exist and its inputs still do. Memory that a kernel
    allocates and frees inside one operator is not seen. Sizes are not rounded up to blocks."""

    def __init__(self):
        super().__init__()
        self._device, self._name, self.peaks = torch.device("cpu"), "", {}

    def begin(self, name: str):
        """Operators from here on belong to the phase `name`. What is allocated now counts too."""
        self._name = name
        self._update_peak_stats(None)

    def current(self) -> dict:
        """Bytes by kind, and their sum under "total", without kinds that have none."""
        snapshot = self._curr_mem_snap.get(self._device, {})
        kinds = {KINDS[getattr(k, "value", k)]: v for k, v in snapshot.items() if k != "Total" and v}
        return kinds | {"total": snapshot.get("Total", 0)}

    def get_tracker_snapshot(self, type="current"):
        return {}  # by module and state: nothing here needs it

    def _track_inputs_or_outputs(self, args):
        return 0

    def _update_peak_stats(self, peak_state):
        # Replaces the search for peaks by module, which nothing here needs.
        total = self._curr_mem_snap.get(self._device, {}).get("Total", 0)
        if self._name and total > self.peaks.get(self._name, {"total": -1})["total"]:
            self.peaks[self._name] = self.current()
