"""Random cases of torchtune and litgpt."""
import dataclasses
import random

from cases import Case, OPTIMIZERS, between, draw, draw_heads, kind


@kind("tune")
def draw_tune(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of torchtune."""
    r = random.Random(f"tune/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    # A block of block scales of NF4 has 64 * 256 elements; every weight is a multiple of it.
    nf4 = number % 3 == 2
    head_dim, multiple = (r.choice([64, 128]), 256) if nf4 else (r.choice([16, 32, 64, 80, 128]), 8)
    heads, kv = (4, r.choice([2, 4])) if nf4 else (heads, kv)
    hidden, lora, loss = heads * head_dim, number % 3 > 0, ("plain", "chunked", "linear")[number // 3 % 3]
    in_backward = not lora and number // 9 % 2 == 1
    targets = r.choice(["qv", "most", "all"]) + r.choice(["", "+mlp"])
    base = dataclasses.replace(draw(seed, 0), attention="sdpa", precision="bf16", window=0)
    return dataclasses.replace(
        base, family="llama", layers=r.choice([2, 3, 4]), hidden=hidden, heads=heads, kv_heads=kv, head_dim=head_dim,
        intermediate=between(r, 256 if nf4 else 64, 4096, multiple), vocab=between(r, 500, 60000), tied=r.random() < 0.4,
        optimizer=OPTIMIZERS[number // 2 % 3], checkpoint=r.random() < 0.6, batch=r.randint(1, 4),
        sequence=between(r, 48, 1500), accumulate=1 if in_backward else r.choice([1, 1, 2]),
        lora=r.choice([4, 8, 16, 64]) if lora else 0, lora_targets=targets if lora else "", lora_dropout=0.0,
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": r.random() < 0.75,
              "sync": "every"} if number >= 54 and not nf4 and not in_backward else None,
        tune={"loss": loss, "in_backward": in_backward, "nf4": nf4, "packed": r.random() < 0.5})


@kind("tune-moved")
def draw_tune_moved(seed: int, number: int) -> Case:
    """Case `number` of a seed with the recipes of torchtune until August 2024: every third one, and those whose optimizer is
    part of the backward pass, on one device, the others under FSDP1."""
    r = random.Random(f"tune/moved/{seed}/{number}")
    case = draw_tune(f"{seed}/moved", number // 2 * 3 + number % 2)
    flat = {"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "every",
            "flat": {"orig": False, "backward": "pre", "forward": False}}
    in_backward = case.tune["in_backward"]
    return dataclasses.replace(case, tied=False, fsdp=None if in_backward or number % 3 == 0 else flat,
                               tune={"loss": "moved", "in_backward": in_backward, "nf4": False, "packed": False})


@kind("tune-qwen")
def draw_tune_qwen(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen 2 or 3 of torchtune, in bf16, on one device; half of the cases have few words."""
    r = random.Random(f"tune/qwen/{seed}/{number}")
    case = draw_tune(f"{seed}/qwen", number // 2 * 3 + number // 2 % 2)
    few = {"vocab": between(r, 100, 300)} if number // 2 % 2 else {}
    return dataclasses.replace(case, family=("qwen2", "qwen3")[number % 2], fsdp=None, tune=case.tune | {"nf4": False}, **few)


@kind("tune-gemma")
def draw_tune_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed with Gemma, Gemma 2 or Phi-3 of torchtune, in bf16, from 36 on under FSDP2; half of the cases
    have few words. The hidden state of Gemma need not have the width of its heads."""
    r = random.Random(f"tune/gemma/{seed}/{number}")
    family, each = ("gemma", "gemma2", "phi3")[number % 3], number // 3
    case = draw_tune(f"{seed}/gemma", each * 3 + each % 2)
    few = {"vocab": between(r, 100, 300)} if each % 2 else {}
    fsdp = {"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": r.random() < 0.75, "sync": "every"}
    few |= {"fsdp": None if number < 36 or case.tune["in_backward"] else fsdp}
    if family == "phi3":
        return dataclasses.replace(case, family=family, tied=False, tune=case.tune | {"nf4": False}, **few)
    # Gemma 2 computes scores of S x S, and takes no packed rows.
    own = {"sequence": between(r, 48, 600), "window": between(r, 16, 600), "attention": "eager"} if family == "gemma2" else {}
    packed = {"packed": False} if family == "gemma2" else {}
    return dataclasses.replace(case, family=family, tied=True, hidden=case.heads * between(r, 16, 96, 8),
                               tune=case.tune | {"nf4": False} | packed, **own, **few)

LITGPT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi", "gpt_neox", "llama")


@kind("litgpt")
def draw_litgpt(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of litgpt: adapters, from 49 on under FSDP2, and every fourth in full
    training."""
    r = random.Random(f"litgpt/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    head_dim, lora = r.choice([16, 32, 64, 80, 128]), number % 4 > 0
    family = LITGPT_FAMILIES[number % len(LITGPT_FAMILIES)]
    targets = "".join(t for t in "qkvo" if r.random() < 0.6) or "qv"
    targets = r.choice(["qv", targets, targets + "+mlp"])
    base = dataclasses.replace(draw(seed, 0), attention="sdpa", precision="bf16", window=0)
    if family in ("phi", "gpt_neox"):
        kv = heads
    sharded = lora and number >= 49
    return dataclasses.replace(
        base, family=family, layers=r.choice([2, 3, 4]),
        hidden=between(r, 64, 1536, 8) if family == "qwen3" else heads * head_dim, heads=heads, kv_heads=kv,
        head_dim=head_dim, intermediate=between(r, 64, 4096, 8), vocab=between(r, 500, 60000), tied=False,
        optimizer=OPTIMIZERS[number % 3], checkpoint=sharded, batch=r.choice([1, 1, 2, 3]), sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 2]), lora=r.choice([4, 8, 16]) if lora else 0, lora_targets=targets if lora else "",
        lora_dropout=r.choice([0.0, 0.05]) if lora else 0.0, litgpt={},
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "last"}
        if sharded else None)


@kind("litgpt-wide")
def draw_litgpt_wide(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of litgpt in bf16-mixed or, every third, in 32-true; two of five under FSDP2."""
    r = random.Random(f"litgpt/wide/{seed}/{number}")
    case = draw_litgpt(f"{seed}/wide", 5 * number + 1 + (number % 4 == 3))
    sharded = number % 5 >= 3
    return dataclasses.replace(
        case, precision="fp32" if number % 3 == 2 else "autocast", accumulate=r.choice([1, 2, 3]), checkpoint=sharded,
        sequence=min(case.sequence, r.choice([150, 1500])),
        fsdp={"world": r.randint(2, 8), "param": "", "reduce": "", "output": "", "reshard": True, "sync": "last"}
        if sharded else None)

# Precisions of Lightning Fabric: bf16-mixed, bf16-true, 32-true, as (type of the weights, in which they are gathered).
FABRIC_PRECISIONS = (("fp32", "bf16"), ("bf16", ""), ("fp32", ""))


@kind("litgpt-full")
def draw_litgpt_full(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training of litgpt: on several devices as Fabric shards it, each fifth on one device
    with the other precisions."""
    r = random.Random(f"litgpt/full/{seed}/{number}")
    case = draw_litgpt(f"{seed}/full", 4 * (number // 6) * 7 + 8 * (number % 6))
    precision, gathered = FABRIC_PRECISIONS[(number + number // 3) % len(FABRIC_PRECISIONS)]
    case = dataclasses.replace(case, precision=precision, optimizer=OPTIMIZERS[(number + number // 7) % 3], accumulate=r.choice([1, 2, 3]),
                               sequence=min(case.sequence, r.choice([150, 1500])), lora=0)
    if number % 5 == 4:
        return dataclasses.replace(case, precision=("autocast", "fp32")[number % 2], checkpoint=False)
    return dataclasses.replace(
        case, checkpoint=True,
        fsdp={"world": r.randint(2, 8), "param": gathered, "reduce": gathered, "output": "", "reshard": True, "sync": "last",
              "flat": {"orig": True, "backward": "pre", "forward": False}})
