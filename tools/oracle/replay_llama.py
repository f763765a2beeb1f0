"""The training step of Llama, Qwen2, Qwen3 and Mistral as transformers runs it, written with the handles of replay.py.

The functions have the local variables of the model code, because their lifetimes are part of the memory.
"""
import replay_ops as ops
from attention_rules import kernel_of, padded_width
from replay import Frame, Memory, Tensor, run_backward

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")


class Weights:
    """The parameters of one layer, or those outside of the layers."""

    def __init__(self, memory, dtype, sizes):
        for name, count in sizes.items():
            t = Tensor(memory, count, dtype, needs=True)
            t.parameter = True
            setattr(self, name, t)
        self.names = list(sizes)

    def all(self):
        return [getattr(self, n) for n in self.names]


def layer_sizes(c) -> dict:
    h, i, d = c.hidden, c.intermediate, c.head_dim
    q, kv = c.heads * d, c.kv_heads * d
    sizes = {"q": q * h, "k": kv * h, "v": kv * h, "o": h * q}
    if c.family == "qwen2":
        sizes |= {"q_bias": q, "k_bias": kv, "v_bias": kv}
    if c.family == "qwen3":
        sizes |= {"q_norm": d, "k_norm": d}
    return sizes | {"gate": i * h, "up": i * h, "down": h * i, "norm1": h, "norm2": h}


class Llama:
    def __init__(self, c):
        self.c, self.memory, self.autocast = c, Memory(), ops.Autocast()
        self.dtype = "bf16" if c.precision == "bf16" else "f32"
        self.rows = c.batch * c.sequence
        top = {"embedding": c.vocab * c.hidden, "norm": c.hidden}
        if not c.tied:
            top["head"] = c.vocab * c.hidden
        self.top = Weights(self.memory, self.dtype, top)
        self.layers = [Weights(self.memory, self.dtype, layer_sizes(c)) for _ in range(c.layers)]
        self.buffers = [Tensor(self.memory, c.head_dim // 2, "f32") for _ in range(2)]
        self.ids = Tensor(self.memory, self.rows, "i64")

    def parameters(self):
        return self.top.all() + [t for w in self.layers for t in w.all()]

    def rope_tables(self):
        m, n = self.memory, self.c.sequence * self.c.head_dim
        frequencies = Tensor(m, n // 2, "f32")
        both = Tensor(m, n, "f32")
        del frequencies
        m.mark("cat")
        tables = []
        for name in ("cos", "sin"):
            t = Tensor(m, n, "f32")
            m.mark(name)
            t = ops.scale(t)
            tables.append(ops.cast(t, self.dtype))
        return tables

    def mask(self):
        """Additive mask of eager attention; sdpa has one only if the window is smaller than the sequence."""
        c, m = self.c, self.memory
        window = bool(c.window) and c.sequence >= c.window
        if c.attention == "sdpa" and not window:
            return None
        cells = c.sequence * c.sequence
        allowed = Tensor(m, cells, "bool")
        if c.attention == "sdpa":
            return allowed
        out = Tensor(m, cells, self.dtype)
        m.mark("mask")
        return out

    def norm(self, x, w):
        return ops.rms_norm(x, w, x.count // w.count)

    def attention(self, x, w, cos, sin, mask):
        c = self.c
        q = self.head_projection(x, w, "q", c.heads)
        k = self.head_projection(x, w, "k", c.kv_heads)
        v = self.head_projection(x, w, "v", c.kv_heads)
        q, k = self.rotated(q, k, cos, sin)
        attend = self.eager if c.attention == "eager" else self.sdpa
        out, scores = attend(q, k, v, mask)
        out = ops.linear(out, w.o, c.hidden, self.autocast)
        return out, scores

    def head_projection(self, x, w, name, heads):
        c = self.c
        t = ops.linear(x, getattr(w, name), heads * c.head_dim, self.autocast, getattr(w, name + "_bias", None))
        if c.family == "qwen3" and name != "v":
            t = self.norm(t, getattr(w, name + "_norm"))
        return t

    @staticmethod
    def rotated(q, k, cos, sin):
        return ops.rotate(q, cos, sin), ops.rotate(k, cos, sin)

    def eager(self, q, k, v, mask):
        c = self.c
        groups = c.heads // c.kv_heads
        cells, width = c.batch * c.heads * c.sequence**2, c.batch * c.heads * c.sequence * c.head_dim
        keys, values = ops.repeat_heads(k, groups), ops.repeat_heads(v, groups)
        strided = c.batch > 1  # batch and heads cannot be merged into one dimension without a copy
        scores = self.scores(q, keys, cells, strided, groups)
        if mask is not None:
            scores = ops.add(scores, mask)
        scores = ops.cast(ops.softmax(ops.cast(scores, "f32")), q.dtype)
        out = self.weighted(scores, values, width, strided and groups == 1)
        out = ops.copy(out)
        return out, scores

    def scores(self, q, keys, cells, strided, groups):
        q, keys = self.autocast.lower(q), self.autocast.lower(keys)
        q = ops.copy(q) if strided else q
        keys = ops.copy(keys) if strided and groups == 1 else keys
        t = ops.product(q, keys, "matmul", cells, q.count, keys.count)
        del q, keys
        return ops.scale(t)

    def weighted(self, scores, values, width, copied):
        scores, values = self.autocast.lower(scores), self.autocast.lower(values)
        values = ops.copy(values) if copied else values
        return ops.product(scores, values, "matmul", width, scores.count, values.count)

    def sdpa(self, q, k, v, mask):
        c = self.c
        groups = c.heads // c.kv_heads
        if mask is not None and groups > 1:
            k, v = ops.repeat_heads(k, groups), ops.repeat_heads(v, groups)
        q, k, v = (self.autocast.lower(t) for t in (q, k, v))
        kernel = kernel_of(q.dtype, c.head_dim, mask is not None)
        sums = c.batch * c.heads * (c.sequence if kernel == "flash" else -(-c.sequence // 32) * 32)
        out = ops.fused_attention(q, k, v, sums, mask)
        return out, None

    def mlp(self, x, w):
        c = self.c
        return ops.linear(self.gated(x, w), w.down, c.hidden, self.autocast)

    def gated(self, x, w):
        c = self.c
        gate = ops.unary(ops.linear(x, w.gate, c.intermediate, self.autocast), "silu")
        return ops.mul(gate, ops.linear(x, w.up, c.intermediate, self.autocast))

    def layer(self, x, w, cos, sin, mask):
        residual = x
        x = self.norm(x, w.norm1)
        x, _ = self.attention(x, w, cos, sin, mask)
        x = ops.add(residual, x)
        residual = x
        x = self.norm(x, w.norm2)
        x = self.mlp(x, w)
        x = ops.add(residual, x)
        return x

    def checkpointed(self, x, *rest):
        """The layer, of which only the input is kept."""
        kept = x.alias()
        kept.needs = x.needs
        memory = self.memory

        def again():
            if self.c.precision == "autocast":
                self.autocast.enter()
            try:
                self.layer(kept, *rest)
            finally:
                self.autocast.leave()
        frame = memory.frame = Frame(memory, again)
        if memory.recording:
            memory.saved.append((memory.place, "checkpoint", x.storage.exact))
        try:
            return self.layer(x, *rest)
        finally:
            memory.frame = None

    def hidden(self):
        m = self.memory
        x = ops.embedding(self.ids, self.top.embedding, self.c.hidden)
        mask = self.mask()
        cos, sin = self.rope_tables()
        run = self.checkpointed if self.c.checkpoint else self.layer
        for i, w in enumerate(self.layers):
            m.place = f"layer {i}"
            x = run(x, w, cos, sin, mask)
        m.place = ""
        return self.norm(x, self.top.norm)

    def loss(self):
        x = self.hidden()
        head = self.top.embedding if self.c.tied else self.top.head
        logits = ops.linear(x, head, self.c.vocab, self.autocast)
        return self.cross_entropy(logits)

    def cross_entropy(self, logits):
        targets = Tensor(self.memory, self.rows, "i64")
        return ops.cross_entropy(ops.cast(logits, "f32"), self.rows, targets)

    def step(self, name):
        c, m = self.c, self.memory
        for i in range(c.accumulate):
            m.begin(name + "forward")
            m.recording = name.startswith("1") and i == 0
            if c.precision == "autocast":
                self.autocast.enter()
            loss = self.loss()
            self.autocast.leave()
            m.recording = False
            if c.accumulate > 1:
                loss = ops.scale(loss)
            m.begin(name + "backward")
            run_backward(m, loss)
            del loss
            m.place = ""
        m.begin(name + "optimizer")
        self.update()

    def update(self):
        m, c, weights = self.memory, self.c, self.parameters()
        if c.optimizer != "sgd":
            if not hasattr(self, "moments"):
                self.moments = [Tensor(m, t.count, t.dtype) for t in weights for _ in range(2)]
                m.mark("state")
            if c.optimizer == "adamw-foreach":
                temporary = [Tensor(m, t.count, t.dtype) for t in weights]
                m.mark("sqrt")
                del temporary
        for t in weights:
            t.grad = None
