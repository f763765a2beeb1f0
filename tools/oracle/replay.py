"""A replay of autograd with sizes only: which storages exist after each operator of a training step.

A Tensor is a handle of a Storage. The bytes of a storage count from its creation until its last handle is deleted, so
the local variables of a Python function that uses these handles have the lifetimes that they have in PyTorch. An operation
creates its result and a Node, which holds what autograd saves and computes the gradients in backward().
"""
import heapq
import itertools

SIZES = {"f32": 4, "bf16": 2, "i64": 8, "bool": 1}
BLOCK = 1  # the facts are not rounded; the caching allocator of CUDA rounds up to 512


class Memory:
    """The bytes of all storages now, and the largest sum of each phase, at the operator `where`."""

    def __init__(self):
        self.now, self.phase, self.peaks, self.where = 0, "", {}, {}
        self.sequence, self.saved, self.recording, self.place = itertools.count(), [], False, ""
        self.frame, self.refilling, self.gradients = None, None, True

    def begin(self, phase: str):
        self.phase = phase
        self.mark("begin")

    def mark(self, operator: str):
        """Called after every operator, when its results exist and its inputs still do."""
        if self.now > self.peaks.get(self.phase, -1):
            self.peaks[self.phase], self.where[self.phase] = self.now, f"{self.place} {operator}".strip()


class Storage:
    def __init__(self, memory: Memory, size: int):
        self.memory, self.size, self.handles, self.noted = memory, -(-size // BLOCK) * BLOCK, 0, False
        self.exact = size
        memory.now += self.size

    def __del__(self):
        self.memory.now -= self.size


class Tensor:
    """A handle: storage, element count, type, and the Node that computed it. A leaf collects `grad`."""

    def __init__(self, memory, count: int, dtype: str, node=None, needs=False, storage=None):
        self.memory, self.count, self.dtype = memory, count, dtype
        self.node, self.needs = node, needs or node is not None
        self.storage = storage or Storage(memory, count * SIZES[dtype])
        self.storage.handles += 1
        self.grad, self.parameter = None, False

    def __del__(self):
        self.storage.handles -= 1

    @property
    def bytes(self):
        return self.count * SIZES[self.dtype]

    def alias(self, dtype=None):
        """Another handle without history, as detach() or a gradient that is passed on."""
        return Tensor(self.memory, self.count, dtype or self.dtype, storage=self.storage)


class Node:
    """`backward(grad)` returns the gradients of `inputs`, in order; they are then reduced and cast to the shape and type
    of the input. Inside of a checkpointed layer the saved tensors are in the layer's Frame, which computes them again."""

    def __init__(self, memory, name, inputs, saved, backward):
        self.sequence, self.name, self.backward = next(memory.sequence), name, backward
        self.place, self.frame = memory.place, memory.frame
        self.edges = [(t.node or t) if t.needs else None for t in inputs]
        self.shapes = [(t.count, t.dtype) for t in inputs]
        self.saved = [] if memory.frame else [t.alias() for t in saved]
        if memory.frame:
            self.span = memory.frame.register(saved)
        elif memory.recording:
            for t in saved:
                note(memory, t, name)

    def run(self, memory, grad):
        if self.frame:
            self.saved = self.frame.take(*self.span)
        gradients = list(self.backward(grad))
        del grad
        for i, (g, (count, dtype)) in enumerate(zip(gradients, self.shapes)):
            if g is not None and g.count != count:
                gradients[i] = g = Tensor(memory, count, g.dtype)
                memory.mark("sum")
            if g is not None and g.dtype != dtype:
                gradients[i] = Tensor(memory, count, dtype)
                memory.mark("to")
            del g
        self.saved, self.frame = [], None
        return gradients

    def __lt__(self, other):
        return self.sequence > other.sequence  # the engine runs the newest node first


def note(memory, t, name):
    """Counts a saved storage once, without parameters."""
    if not t.storage.noted and not t.parameter:
        t.storage.noted = True
        memory.saved.append((memory.place, name, t.storage.exact))


class StopRecomputation(Exception):
    """Everything that the backward pass of a layer needs has been computed again."""


class Frame:
    """A checkpointed layer: what was saved in it, in order, is dropped and computed again when first needed."""

    def __init__(self, memory, again):
        self.memory, self.again, self.expected, self.tensors, self.refill = memory, again, 0, [], False

    def register(self, saved) -> tuple:
        first = self.expected
        self.expected += len(saved)
        return first, len(saved)

    def take(self, first: int, count: int) -> list:
        if count and not self.refill:
            self.refill, self.memory.refilling = True, self
            try:
                self.again()
            except StopRecomputation:
                pass
            self.memory.refilling = None
        taken = self.tensors[first:first + count]
        self.tensors[first:first + count] = [None] * count
        return taken

    def refill_with(self, saved):
        self.tensors += [t.alias() for t in saved]
        if len(self.tensors) >= self.expected:
            raise StopRecomputation


def result(memory, name, count, dtype, inputs, saved, backward, saves_output=False, storage=None):
    """The output of an operation on `inputs`. `saved`: what it saves of them; `saves_output`: the output too."""
    needs = memory.gradients and any(t.needs for t in inputs)
    if needs and memory.refilling and not saves_output:
        memory.refilling.refill_with(saved)
    out = Tensor(memory, count, dtype, storage=storage)
    if storage is None:
        memory.mark(name)
    if needs and memory.refilling:
        out.needs = True
        if saves_output:
            memory.refilling.refill_with(saved + [out])
    elif needs:
        out.node = Node(memory, name, inputs, saved + [out] if saves_output else saved, backward)
        out.needs = True
    return out


def run_backward(memory, loss):
    """The engine: newest node first; a node's saved tensors are freed after it ran."""
    waiting, ready, arrived = {}, [], {}
    count_edges(loss.node, waiting)
    seed = Tensor(memory, loss.count, loss.dtype)
    memory.mark("ones")
    arrived[loss.node] = seed
    heapq.heappush(ready, loss.node)
    root, loss.node = loss.node, None
    del seed, root
    while ready:
        node = heapq.heappop(ready)
        memory.place = node.place
        gradients = node.run(memory, arrived.pop(node))
        for i, edge in enumerate(node.edges):
            if edge is None:
                continue
            g, gradients[i] = gradients[i], None
            deliver(memory, edge, g, arrived)
            del g
            waiting[edge] -= 1
            if waiting[edge] == 0:
                if isinstance(edge, Tensor):
                    accumulate(memory, edge, arrived.pop(edge))
                else:
                    heapq.heappush(ready, edge)
        node.edges = []
        del node, edge


def count_edges(root, waiting):
    stack, seen = [root], {root}
    while stack:
        for edge in stack.pop().edges:
            if edge is None:
                continue
            waiting[edge] = waiting.get(edge, 0) + 1
            if isinstance(edge, Node) and edge not in seen:
                seen.add(edge)
                stack.append(edge)


def deliver(memory, edge, g, arrived):
    """Adds a gradient to those that have arrived: in place if nobody else holds the first one."""
    if edge not in arrived:
        arrived[edge] = g
        return
    old = arrived[edge]
    if old.storage.handles > 1:
        arrived[edge] = Tensor(memory, g.count, g.dtype)
        memory.mark("accumulate")


def accumulate(memory, leaf, g):
    """The first gradient is kept as it is, later ones are added in place."""
    if leaf.grad is None:
        leaf.grad = g
        if g.storage.handles > 1:
            leaf.grad = Tensor(memory, g.count, g.dtype)
            memory.mark("clone")
