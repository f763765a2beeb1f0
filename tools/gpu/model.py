"""A model of the step of the resident trainer, kernel by kernel, from rates measured on the same device (roofline), and
of the schedule of the hybrid mode. Pure arithmetic; assumed values are the constants below.

  python3 tools/gpu/model.py [h100|h200]    the rates that are expected, stated before anything was measured
"""
import sys
from dataclasses import dataclass, field

# Kernels of attention: products of [queries, D] x [D, keys] that each executes over the pairs inside the causal mask.
# The backward pass runs in two kernels, so both compute q k^T and do v^T: 9 products a layer where 7 would do.
ATTENTION_PRODUCTS = {"attention": 2, "attention_bwd: dq": 3, "attention_bwd: dk, dv": 4}
# Rate of such a product as a part of the rate of the model's matrix products (forward, backward), as an H100 has it. bf16:
# kernels with products of warpgroups, heads of 64 elements, measured alone. TF32: mma.sync, from steps of both models.
# Without tensor cores: FMA, assumed.
ATTENTION_SHARE = {"bf16": (0.49, 0.57), "tf32": (0.59, 0.43), "fp32": (0.62, 0.62)}
# Elements that every other kernel of a layer reads and writes for one token, as multiples of (hidden size, width of
# all key heads, intermediate size). Query heads together are as wide as the hidden size.
ELEMENTWISE = {
    "norms": (4, 0, 0),  # two; x -> y
    "norms, backward": (8, 0, 0),  # two; dy, x and the sum so far -> the sum
    "RoPE, both passes": (4, 4, 0),  # q and k in place
    "SwiGLU": (0, 0, 3),  # gate, up -> product
    "SwiGLU, backward": (0, 0, 5),  # gradient of the product, gate, up -> gradients of gate and up
    "residuals": (2, 0, 0),  # read by two products besides their operands
    "outputs for delta": (1, 0, 0),  # read by the kernel of dq besides its operands
}
# Elements that a backward pass with five products would write and read, as a multiple of tokens of a sequence x query
# heads: the gradients of the scores below the diagonal.
FIVE_PRODUCTS_ELEMENTS = 2 * 0.5
# Element-wise kernels as a part of the rate at which the device copies.
ELEMENTWISE_SHARE = 0.93
# Rates of a device: copies inside it (read and written), pinned copies, and products by precision. Measured (README.md),
# but for the products of an H200: those of an H100, which it exceeds by 3 % in bf16.
EXPECTED = {
    "h100": {"copy": 3.02e12, "bus": 55e9, "bf16": 745e12, "tf32": 295e12, "fp32": 51e12},
    "h200": {"copy": 4.25e12, "bus": 55e9, "bf16": 745e12, "tf32": 295e12, "fp32": 51e12},
}
# Cross-entropy on the host: logits a second and hardware thread, by bytes of a logit. A core of an EPYC of family 25,
# model 17 (Zen 4; AVX-512, rows in memory, two at work) computes 3.0e9 in bf16 and 2.6e9 in f32; with the loops before
# these 0.88e9 and 1.8e9. Each of 16 hardware threads of a Xeon of family 6, model 207 (Emerald Rapids) beside an H100
# then gave 0.415e9 and 0.47e9, which follows from the waits of the device (2026-11-27). The same ratio is assumed now.
HOST_LOGITS = {4: 2.6e9 * 0.47 / 1.8, 2: 3.0e9 * 0.415 / 0.88}
HOST_BYTES = 200e9  # of the host's memory a second; assumed


@dataclass(frozen=True)
class Dims:
    """A LLaMA. head_dim = hidden / heads."""
    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    seq: int
    tied: bool
    # Tokens a second that the trainer is meant to reach on an H200, by precision; aims, no bounds.
    aims: dict = field(default_factory=dict, compare=False)

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.hidden // self.heads

    @property
    def products(self) -> dict:
        """(columns, sum) of every linear layer of a step -> number of occurrences."""
        h, i, kv = self.hidden, self.intermediate, self.kv_width
        out = {}
        for shape, times in (((h, h), 2), ((kv, h), 2), ((i, h), 2), ((h, i), 1)):
            out[shape] = out.get(shape, 0) + times * self.layers
        out[(self.vocab, h)] = out.get((self.vocab, h), 0) + 1
        return out

    @property
    def matrix_elements(self) -> int:
        return sum(n * k * times for (n, k), times in self.products.items())

    @property
    def parameters(self) -> int:
        """Matrices, norms, and the embedding if it is not the head."""
        return (
            self.matrix_elements + (2 * self.layers + 1) * self.hidden + (0 if self.tied else self.vocab * self.hidden)
        )

    def state_bytes(self, precision: str) -> int:
        """Weights, gradients and both moments; in bf16 also f32 master weights."""
        return self.parameters * (18 if precision == "bf16" else 16)


@dataclass(frozen=True)
class Rates:
    """Measured rates of the device: bytes per second, of copies up and down while the other direction is busy too, and
    operations per second of products by (precision, N, K): of the forward product and of both gradients together, as a
    step has them."""
    copy: float
    up: float
    down: float
    products: dict

    @staticmethod
    def of(measured: dict) -> "Rates":
        best = {}  # the best of all row counts, by product: "forward", "dx", "dw"
        for p in measured["products"]:
            each = best.setdefault((p["precision"], p["n"], p["k"]), {})
            name = p.get("product", "forward")
            each[name] = max(each.get(name, 0), p["flops_per_s"])
        products = {key: len(each) / sum(1 / r for r in each.values()) for key, each in best.items()}
        each_way = measured["both_bytes_per_s"] / 2
        return Rates(
            measured["device_copy_bytes_per_s"],
            min(measured["h2d_bytes_per_s"], each_way),
            min(measured["d2h_bytes_per_s"], each_way),
            products,
        )

    def of_model(self, m: Dims, precision: str) -> float:
        """One rate for all products of the model, weighted by their operations; None if one was not measured."""
        seconds = 0.0
        for (n, k), times in m.products.items():
            rate = self.products.get((precision, n, k))
            if not rate:
                return None
            seconds += times * n * k / rate
        return m.matrix_elements / seconds


@dataclass(frozen=True)
class Roofline:
    """Seconds per token of each kind of kernel; `update` is divided by the tokens of a step."""
    products: float
    attention: dict  # by kernel of ATTENTION_PRODUCTS
    elementwise: float
    loss: float
    update: float

    @property
    def layers(self) -> float:
        """Seconds per token of everything but loss and update."""
        return self.products + sum(self.attention.values()) + self.elementwise

    @property
    def tokens_per_s(self) -> float:
        return 1 / (self.layers + self.loss + self.update)

    def kernels(self) -> dict:
        return {"matrix products": self.products, **self.attention, "norms and elementwise": self.elementwise,
                "loss": self.loss, "update": self.update}


def elementwise_elements(m: Dims) -> int:
    """Elements that the kernels of ELEMENTWISE move per token and layer."""
    return sum(h * m.hidden + k * m.kv_width + i * m.intermediate for h, k, i in ELEMENTWISE.values())


def five_products(m: Dims, precision: str, tokens: int, rates: Rates):
    """What a backward pass of attention with 5 instead of 7 products would give, if one kernel stored the gradients of
    the scores and another one multiplied them: (tokens per second, device memory in bytes per sequence). No part of the
    stores and loads overlaps with products. None if a rate is missing."""
    r = roofline(m, precision, tokens, rates)
    if r is None:
        return None
    element = 2 if precision == "bf16" else 4
    moved = m.layers * FIVE_PRODUCTS_ELEMENTS * m.seq * m.heads * element / (ELEMENTWISE_SHARE * rates.copy)
    saved = 2 / 7 * sum(s for name, s in r.attention.items() if name != "attention")
    return 1 / (1 / r.tokens_per_s - saved + moved), m.seq * m.seq // 2 * m.heads * element


def roofline(m: Dims, precision: str, tokens: int, rates: Rates):
    """The roofline of one step of `tokens` tokens; None if a rate is missing."""
    rate = rates.of_model(m, precision)
    if rate is None:
        return None
    element = 2 if precision == "bf16" else 4
    bytes_per_s = ELEMENTWISE_SHARE * rates.copy
    forward, backward = ATTENTION_SHARE[precision]
    one = m.layers * m.seq * m.hidden / rate  # a causal product: half of 2 * S * H operations per token and layer
    return Roofline(
        products=6 * m.matrix_elements / rate,  # forward, and both gradients
        attention={kernel: count * one / (forward if kernel == "attention" else backward)
                   for kernel, count in ATTENTION_PRODUCTS.items()},
        elementwise=m.layers * elementwise_elements(m) * element / bytes_per_s,
        loss=3 * m.vocab * element / bytes_per_s,
        update=m.parameters * (30 if precision == "bf16" else 28) / bytes_per_s / tokens,
    )


@dataclass(frozen=True)
class HostTimes:
    """Seconds that a micro-batch takes outside the device: the embedding and its copy to the device; copies of logits
    and of their gradients, and the loss between them."""
    embedding: float
    hidden: float
    down: float
    loss: float
    up: float


def hybrid_seconds(forward: float, backward: float, update: float, t: HostTimes, micro_batches: int, chunks: int,
                   one_queue: bool = False) -> float:
    """Seconds of an update in hybrid mode. Forward i + 1 comes before backward i, and runs while the host computes the
    loss of i; logits travel in chunks. The hidden state of i + 2 replaces that of i after backward i. `one_queue`: an
    embedding stands behind the losses, and its copy behind the gradients, of the micro-batch before it."""
    device = down = host = up = lookup = hidden = 0.0
    ready, freed = {}, {}
    order = [("F", 0)]
    for i in range(1, micro_batches):
        order += [("F", i), ("B", i - 1)]
    for kind, i in order + [("B", micro_batches - 1)]:
        if kind == "B":
            device = freed[i] = max(device, ready[i]) + backward
            continue
        lookup = (host if one_queue else lookup) + t.embedding
        hidden = max(up if one_queue else hidden, lookup, freed.get(i - 2, 0.0)) + t.hidden
        host += t.embedding
        if one_queue:
            up = max(up, hidden)
        device = max(device, hidden) + forward
        for _ in range(chunks):
            down = max(down, device) + t.down / chunks
            host = max(host, down) + t.loss / chunks
            up = max(up, host) + t.up / chunks
        ready[i] = up
    return device + update


def hybrid(m: Dims, precision: str, micro_batches: int, sequences: int, chunks: int, rates: Rates, threads: int):
    """(utilization, tokens per second) of one update in hybrid mode; None if a rate is missing."""
    r = roofline(m, precision, micro_batches * sequences * m.seq, rates)
    if r is None:
        return None
    element = 2 if precision == "bf16" else 4
    tokens = m.seq * sequences
    device, update = r.layers * tokens, r.update * tokens * micro_batches
    hidden, logits = tokens * m.hidden * element, tokens * m.vocab * element
    loss = max(tokens * m.vocab / (HOST_LOGITS[element] * threads), 2 * logits / HOST_BYTES)
    times = HostTimes(2 * hidden / HOST_BYTES, hidden / rates.up, logits / rates.down, loss, logits / rates.up)
    wall = hybrid_seconds(device / 3, device * 2 / 3, update, times, micro_batches, chunks)
    return (micro_batches * device + update) / wall, micro_batches * tokens / wall


def expected_rates(device: str, m: Dims) -> Rates:
    e = EXPECTED[device]
    return Rates(e["copy"], e["bus"], e["bus"],
                 {(p, n, k): e[p] for p in ("bf16", "tf32", "fp32") for n, k in m.products})


def main() -> int:
    from models import MODELS
    device = sys.argv[1] if len(sys.argv) > 1 else "h200"
    if device not in EXPECTED:
        print(f"model.py: no device {device!r}; there are {', '.join(EXPECTED)}", file=sys.stderr)
        return 2
    print(f"expected on one {device}, resident, 16 sequences a step; not measured")
    for m in MODELS.values():
        for precision in ("bf16", "tf32"):
            line = roofline(m, precision, 16 * m.seq, expected_rates(device, m))
            parts = ", ".join(f"{name} {s * line.tokens_per_s:.0%}" for name, s in line.kernels().items())
            print(f"{m.name}, {precision}: {line.tokens_per_s:,.0f} tokens/s: {parts}")
            other, memory = five_products(m, precision, 16 * m.seq, expected_rates(device, m))
            print(f"  with 5 products in the backward pass: {other:,.0f} tokens/s ({other / line.tokens_per_s - 1:+.1%}), "
                  f"and {memory / 2**20:,.0f} MiB more per sequence of a call")
    return 0


if __name__ == "__main__":
    sys.exit(main())
