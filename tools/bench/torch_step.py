#!/usr/bin/env python3
"""The peer: complete training steps of a LLaMA in PyTorch, with the same model, tokens and optimizer as ours.

  torch_step.py '{"hidden": 256, "layers": 4, "heads": 4, "intermediate": 704, "vocab": 256, "batch": 8, "seq": 256,
                  "threads": 2, "precision": "fp32", "compile": false, "steps": 10, "least": 3, "seconds": 10,
                  "optimizer": "foreach"}'

Written from the public definition (RMSNorm, rotary embedding, SwiGLU, tied head, AdamW with clipping). Runs on torch
1.13 (explicit attention) and 2.x (scaled_dot_product_attention). Prints one JSON object.
"compile": "blocks" compiles a block once, for all of them, and the head with the loss: the same kernels but those that
would be fused across these borders, in a fraction of the time.
With "device": "cuda" (and "kv_heads", "tied", precision "tf32") it is the peer of tools/gpu; "batches" instead of
"batch" prints one object per batch size, with "error" for one that does not fit.
With "parallel": "ddp" or "fsdp2" it is one of several ranks (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) that exchange
by gloo; "batch" is that of a rank, and every rank prints.
"""

import contextlib, json, math, os, sys, time

a = json.loads(sys.argv[1])
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(a["threads"])

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(a["threads"])
torch.manual_seed(1)
WARMUP = 2
H, A, S, V = a["hidden"], a["heads"], a["seq"], a["vocab"]
D, KV, TIED, CUDA = H // A, a.get("kv_heads", A), a.get("tied", True), a.get("device", "cpu") == "cuda"
DEVICE = "cuda" if CUDA else "cpu"
torch.backends.cuda.matmul.allow_tf32 = a["precision"] != "fp32"
SDPA = hasattr(F, "scaled_dot_product_attention")


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotate(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).type_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = linear(H, H), linear(H, KV * D), linear(H, KV * D), linear(H, H)
        self.gate, self.up, self.down = (linear(H, a["intermediate"]), linear(H, a["intermediate"]),
                                         linear(a["intermediate"], H))

    def forward(self, x, cos, sin, mask):
        h = self.norm1(x)
        heads = lambda t: t.view(x.shape[0], S, -1, D)
        q = rotate(heads(self.q(h)), cos, sin).transpose(1, 2)
        k = rotate(heads(self.k(h)), cos, sin).transpose(1, 2)
        v = heads(self.v(h)).transpose(1, 2)
        if KV != A:  # works in every torch version; the compiler adds no avoidable copy
            k, v = k.repeat_interleave(A // KV, 1), v.repeat_interleave(A // KV, 1)
        if SDPA:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            o = torch.softmax((q @ k.transpose(-1, -2) * (1 / math.sqrt(D)) + mask).float(), -1).type_as(v) @ v
        x = x + self.o(o.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(V, H)
        self.blocks = nn.ModuleList([Block() for _ in range(a["layers"])])
        self.norm = RMSNorm()
        self.head = nn.Linear(H, V, bias=False)
        if TIED:
            self.head.weight = self.embed.weight
        angle = torch.outer(torch.arange(S).float(), 1.0 / (1e4 ** (torch.arange(0, D, 2).float() / D)))
        self.register_buffer("cos", angle.cos()[None, :, None, :], persistent=False)
        self.register_buffer("sin", angle.sin()[None, :, None, :], persistent=False)
        mask = torch.empty(0) if SDPA else torch.full((S, S), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.embed(x)
        for b in self.blocks:
            h = b(h, self.cos, self.sin, self.mask)
        return self.loss(h, y)

    def loss(self, h, y):
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), y.flatten())


def make_optimizer(parameters):
    """AdamW of the requested kind. A torch version without it raises an error."""
    kind = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[a["optimizer"]]
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, **kind)


def measure(batch: int) -> dict:
    model = Llama().to(DEVICE)
    whole = sum(p.numel() for p in model.parameters())
    if a.get("parallel") == "fsdp2":  # before the optimizer: its state is that of the shards
        from torch.distributed.fsdp import fully_shard

        mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        for b in model.blocks:
            fully_shard(b, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = make_optimizer(list(model.parameters()))
    wrapped = nn.parallel.DistributedDataParallel(model) if a.get("parallel") == "ddp" else model
    run = torch.compile(wrapped) if a["compile"] is True else wrapped
    if a["compile"] == "blocks":
        for b in model.blocks:
            b.compile()
        model.loss = torch.compile(model.loss)
    x, y = (torch.randint(0, V, (batch, S)).to(DEVICE) for _ in range(2))
    low = (lambda: torch.autocast(DEVICE, dtype=torch.bfloat16)) if a["precision"] == "bf16" else contextlib.nullcontext
    step_ms, first_loss, begin = [], None, None
    for i in range(WARMUP + a["steps"]):
        t0 = time.perf_counter()
        begin = t0 if i == WARMUP else begin
        with low():
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if CUDA:
            torch.cuda.synchronize()  # the loss is available before the update is complete
        t1 = time.perf_counter()
        first_loss = value if i == 0 else first_loss
        if i >= WARMUP:
            step_ms.append((t1 - t0) * 1e3)
            # Ranks could disagree about the time: then the number of steps alone ends the loop.
            if not a.get("parallel") and t1 - begin > a["seconds"] and len(step_ms) >= a["least"]:
                break
    out = {"torch": torch.__version__, "parameters": whole, "step_ms": step_ms,
           "tokens": x.numel(), "threads": torch.get_num_threads(), "sdpa": SDPA, "first_loss": first_loss}
    if CUDA:
        out.update(
            batch=batch, peak_bytes=torch.cuda.max_memory_allocated(), reserved_bytes=torch.cuda.max_memory_reserved()
        )
    return out


if a.get("parallel"):
    torch.distributed.init_process_group("gloo")
for batch in a.get("batches") or [a["batch"]]:
    if CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if a["compile"]:
            torch._dynamo.reset()
    try:
        print(json.dumps(measure(batch)), flush=True)
    except RuntimeError as e:  # out of memory: a smaller batch may fit
        if not CUDA:
            raise
        print(json.dumps({"batch": batch, "error": str(e).splitlines()[0][:300]}), flush=True)
if a.get("parallel"):
    torch.distributed.destroy_process_group()
