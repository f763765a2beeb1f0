#!/usr/bin/env python3
"""Which tensors a pipeline stage of torch.distributed.pipelining keeps under 1F1B.

  pipelines.py STAGE [STAGES [MICRO_BATCHES]]

The stage has one operator, relu, which saves its result. A process group that does not communicate stands in for the other
stages. Prints, for the second step, the most tensors of the size of a boundary that exist in each forward (F) and
backward (B) pass, and those that are left after the step. docs/pytorch-memory.md, "Pipeline stages of torchtitan".
"""
import gc
import sys
import weakref

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

SIZE = (256, 1024)


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.existing, self.most, self.name = set(), {}, "start"

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.note, results)
        self.most[self.name] = max(self.most.get(self.name, 0), len(self.existing))
        return results

    def note(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if storage.nbytes() == SIZE[0] * SIZE[1] * 4 and key not in self.existing:
            self.existing.add(key)
            weakref.finalize(storage, self.existing.discard, key)


class Relu(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def named(counted, letter, function):
    def call(index, *args, **kwargs):
        counted.name = f"{letter}{index + 1}"
        result = function(index, *args, **kwargs)
        counted.name = "between"
        return result
    return call


def main(index, stages=3, micro_batches=5):
    dist.init_process_group("fake", store=FakeStore(), rank=index, world_size=stages)
    boundary = lambda grad: torch.empty(SIZE, device="meta", requires_grad=grad)
    stage = PipelineStage(Relu(), index, stages, torch.device("cpu"), input_args=(boundary(index > 0),),
                          output_args=(boundary(True),))
    counted = Counted()
    stage.forward_one_chunk = named(counted, "F", stage.forward_one_chunk)
    stage.backward_one_chunk = named(counted, "B", stage.backward_one_chunk)
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=lambda output, target: output.sum())
    given = [torch.ones(SIZE[0] * micro_batches, SIZE[1], requires_grad=True)] if index == 0 else []
    options = {"target": torch.ones(micro_batches, 1)} if index + 1 == stages else {}
    if options and "return_outputs" in Schedule1F1B.step.__code__.co_varnames:
        options["return_outputs"] = False
    with counted:
        for _ in range(2):
            counted.most.clear()
            if options:
                options["losses"] = []  # they refer to the inputs of the step
            schedule.step(*given, **options)
            gc.collect()
    print(torch.__version__, {k: v for k, v in counted.most.items() if k[0] in "FB"}, "left", len(counted.existing))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
