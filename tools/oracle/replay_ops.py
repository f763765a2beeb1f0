"""The operators of a decoder: what each allocates, what it saves, and what its gradient allocates, in that order."""
from replay import SIZES, Tensor, result


def new(t, count=None, dtype=None, name="grad"):
    """A gradient: a new storage in the size of `t`."""
    out = Tensor(t.memory, t.count if count is None else count, dtype or t.dtype)
    t.memory.mark(name)
    return out


def wider(*dtypes):
    return "f32" if "f32" in dtypes else dtypes[0]




class Autocast:
    """The state of a bf16 region: weights that require gradients are cast once, everything else at each use."""

    def __init__(self):
        self.on, self.cache = False, {}

    def lower(self, t):
        if not self.on or t.dtype != "f32":
            return t
        if t in self.cache:
            return self.cache[t]
        leaf = t.needs and t.node is None and t.parameter
        out = cast(t, "bf16")
        if leaf:
            self.cache[t] = out
        return out

    def enter(self):
        self.on = True

    def leave(self):
        self.on = False
        self.cache.clear()


def cast(t, dtype):
    if t.dtype == dtype:
        return t
    before = t.dtype

    def backward(g):
        return [new(g, dtype=before, name="to backward")]
    return result(t.memory, "to", t.count, dtype, [t], [], backward)


def view(t):
    """Another handle of the same storage, with history."""
    return result(t.memory, "view", t.count, t.dtype, [t], [], lambda g: [g.alias()], storage=t.storage)


def product(a, b, name, count, a_count, b_count):
    """A matrix product, or a batch of them."""
    a_needs, b_needs = a.needs, b.needs
    dtype = a.dtype

    def backward(g):
        ga = Tensor(g.memory, a_count, dtype) if a_needs else None
        g.memory.mark(name + " backward")
        gb = Tensor(g.memory, b_count, dtype) if b_needs else None
        g.memory.mark(name + " backward")
        return [ga, gb]
    saved = ([a] if b_needs else []) + ([b] if a_needs else [])
    return result(a.memory, name, count, dtype, [a, b], saved, backward)


def linear(x, w, outputs, autocast, bias=None):
    """x: rows x inputs; w: outputs x inputs."""
    inputs = w.count // outputs
    x = autocast.lower(x)
    w = autocast.lower(w)
    rows = x.count // inputs
    if bias is None:
        return product(x, w, "linear", rows * outputs, x.count, w.count)
    bias = autocast.lower(bias)
    x_needs, w_needs, dtype = x.needs, w.needs, x.dtype
    x_count, w_count = x.count, w.count

    def backward(g):
        gx = Tensor(g.memory, x_count, dtype) if x_needs else None
        g.memory.mark("linear backward")
        gw = Tensor(g.memory, w_count, dtype) if w_needs else None
        g.memory.mark("linear backward")
        return [g.alias(), gx, gw]
    saved = ([x] if w_needs else []) + ([w] if x_needs else [])
    return result(x.memory, "linear", rows * outputs, dtype, [bias, x, w], saved, backward)


def mul(a, b):
    """Elementwise, with broadcast of the smaller one."""
    count, dtype = max(a.count, b.count), wider(a.dtype, b.dtype)
    a_needs, b_needs = a.needs, b.needs

    def backward(g):
        ga = new(g, name="mul backward") if a_needs else None
        gb = new(g, name="mul backward") if b_needs else None
        return [ga, gb]
    saved = ([a] if b_needs else []) + ([b] if a_needs else [])
    return result(a.memory, "mul", count, dtype, [a, b], saved, backward)


def scale(t):
    """Times a number."""
    return result(t.memory, "mul", t.count, t.dtype, [t], [], lambda g: [new(g, name="mul backward")])


def add(a, b):
    count, dtype = max(a.count, b.count), wider(a.dtype, b.dtype)
    a_needs, b_needs = a.needs, b.needs

    def backward(g):
        return [g.alias() if a_needs else None, g.alias() if b_needs else None]
    return result(a.memory, "add", count, dtype, [a, b], [], backward)


def unary(t, name, saved_input=True):
    """An operator whose gradient is one operator: silu, neg, ..."""
    return result(t.memory, name, t.count, t.dtype, [t], [t] if saved_input else [],
                  lambda g: [new(g, name=name + " backward")])


def square(t):
    count, dtype, memory = t.count, t.dtype, t.memory

    def backward(g):
        power = Tensor(memory, count, dtype)
        memory.mark("pow backward")
        doubled = Tensor(memory, count, dtype)
        memory.mark("pow backward")
        out = Tensor(memory, count, dtype)
        memory.mark("pow backward")
        del power, doubled
        return [out]
    return result(memory, "pow", count, dtype, [t], [t], backward)


def mean(t, rows):
    count = t.count
    return result(t.memory, "mean", rows, t.dtype, [t], [], lambda g: [new(g, count=count, name="mean backward")])


def rsqrt(t):
    return result(t.memory, "rsqrt", t.count, t.dtype, [t], [], lambda g: [new(g, name="rsqrt backward")],
                  saves_output=True)


def rms_norm(x, w, rows):
    """In f32 whatever the type of x; then times the weight in the type of x."""
    h = cast(x, "f32")
    variance = mean(square(h), rows)
    h = mul(h, rsqrt(add_number(variance)))
    return mul(w, cast(h, x.dtype))


def add_number(t):
    return result(t.memory, "add", t.count, t.dtype, [t], [], lambda g: [g.alias()])


def rotate(t, cos, sin):
    """x cos + (the halves of x exchanged, one negated) sin"""
    half = rotate_half(t)
    left = mul(t, cos)
    del t
    right = mul(half, sin)
    del half
    return add(left, right)


def rotate_half(t):
    memory, count, dtype = t.memory, t.count, t.dtype
    x1, x2 = part(t), part(t)
    negative = unary(x2, "neg", saved_input=False)
    return result(memory, "cat", count, dtype, [negative, x1], [],
                  lambda g: [half_of(g), half_of(g)])


def half_of(g):
    return Tensor(g.memory, g.count // 2, g.dtype, storage=g.storage)


def part(t):
    """A slice with half of the elements. Its gradient has the size of the whole."""
    count = t.count
    return result(t.memory, "slice", count // 2, t.dtype, [t], [],
                  lambda g: [new(g, count=count, name="slice backward")], storage=t.storage)


def copy(t):
    """contiguous(), or a reshape that cannot be a view."""
    return result(t.memory, "clone", t.count, t.dtype, [t], [], lambda g: [g.alias()])


def softmax(t, name="softmax"):
    return result(t.memory, name, t.count, "f32", [t], [], lambda g: [new(g, name=name + " backward")],
                  saves_output=True)


def repeat_heads(t, times):
    """Keys or values for each query head."""
    if times == 1:
        return t
    count = t.count
    return result(t.memory, "repeat", count * times, t.dtype, [t], [],
                  lambda g: [new(g, count=count, name="sum")])


def fused_attention(q, k, v, rows_of_sums, with_mask=None):
    """A flash or efficient kernel. Saves q, k, v, the output and f32 log-sum-exps."""
    memory, counts = q.memory, (q.count, k.count, v.count)
    sums = Tensor(memory, rows_of_sums, "f32")
    dtype = q.dtype

    def backward(g):
        out = [Tensor(memory, n, dtype) for n in counts]
        memory.mark("sdpa backward")
        return out
    return result(memory, "sdpa", q.count, dtype, [q, k, v], [q, k, v, sums] + ([with_mask] if with_mask else []),
                  backward, saves_output=True)


def embedding(ids, w, width):
    count = w.count
    return result(w.memory, "embedding", ids.count * width, w.dtype, [w], [ids],
                  lambda g: [new(g, count=count, name="embedding backward")])


def cross_entropy(logits, rows, targets):
    memory, count = logits.memory, logits.count
    probabilities = softmax(logits, "log_softmax")
    total = Tensor(memory, 1, "f32")
    return result(memory, "nll_loss", 1, "f32", [probabilities], [probabilities, targets, total],
                  lambda g: [new(g, count=count, name="nll_loss backward")])
