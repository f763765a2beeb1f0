"""Random cases of torchtitan: releases, families, tensor and expert parallelism."""
import dataclasses
import random

from cases import Case, OPTIMIZERS, between, draw_heads, kind
from draw_fsdp import draw_fsdp


@kind("titan")
def draw_titan(seed: int, number: int) -> Case:
    """Case `number` of a seed with the modules of torchtitan."""
    r = random.Random(f"titan/{seed}/{number}")
    heads, kv = draw_heads(r, "llama")
    hidden = heads * r.choice([16, 32, 64, 80, 128])
    base = dataclasses.replace(draw_fsdp(seed, 0), attention="sdpa", checkpoint=False, precision="fp32")
    return dataclasses.replace(
        base, layers=r.choice([2, 3, 4]), hidden=hidden, heads=heads, kv_heads=kv, head_dim=hidden // heads,
        intermediate=-(-int(2 * 4 * hidden / 3) // 64) * 64, vocab=between(r, 500, 60000), tied=False,
        optimizer=OPTIMIZERS[number // 3 % 2], batch=r.randint(1, 4), sequence=between(r, 48, 1500),
        accumulate=r.choice([1, 1, 2]),
        fsdp={"world": r.randint(2, 8), "param": "bf16", "reduce": "f32", "output": "",
              "reshard": r.random() < 0.75, "sync": "every", "modules": "torchtitan",
              "recompute": ("selective", "full", "none")[number % 3]})


@kind("titan-2024")
def draw_titan_2024(seed: int, number: int) -> Case:
    """Case `number` of a seed as torchtitan was in December 2024."""
    case = draw_titan(f"{seed}/2024", number)
    return dataclasses.replace(case, fsdp=case.fsdp | {"release": "0.0", "reshard": True})


@kind("titan-tensor")
def draw_titan_tensor(seed: int, number: int) -> Case:
    """Case `number` of a seed as torchtitan was in December 2024, on 2 tensor-parallel ranks."""
    r = random.Random(f"titan/tensor/{seed}/{number}")
    case = draw_titan_2024(seed, number)
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32, 64])
    return dataclasses.replace(
        case, heads=heads, kv_heads=r.choice([2, 4]), head_dim=head_dim, hidden=heads * head_dim,
        intermediate=-(-int(2 * 4 * heads * head_dim / 3) // 64) * 64, vocab=case.vocab // 2 * 2,
        sequence=case.sequence // 2 * 2, accumulate=1,
        fsdp=case.fsdp | {"tensor": 2, "world": r.choice([2, 4]), "recompute": ("full", "none")[number % 2]})


@kind("titan-qwen3")
def draw_titan_qwen3(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen3 of torchtitan."""
    r = random.Random(f"titan/qwen3/{seed}/{number}")
    heads, kv = r.choice([(4, 2), (8, 2), (8, 4), (8, 8), (6, 2)])
    return dataclasses.replace(
        draw_titan(f"{seed}/qwen3", number), family="qwen3", heads=heads, kv_heads=kv,
        head_dim=r.choice([16, 32, 64, 128]), hidden=r.choice([128, 192, 256, 384]),
        intermediate=r.choice([192, 320, 512, 768, 1024]), tied=r.random() < 0.5)


@kind("titan-experts")
def draw_titan_experts(seed: int, number: int) -> Case:
    """Case `number` of a seed with Qwen3-MoE or DeepSeek V3 of torchtitan, every second with expert parallelism, but not
    with selective checkpointing: torch 2.15 stops where FSDP2 gathers inside of such a region."""
    r = random.Random(f"titan/experts/{seed}/{number}")
    case = draw_titan_qwen3(f"{seed}/experts", number)
    latent = number % 2 == 1
    recompute = ("full", "none", "selective")[number // 4 % 3]
    ranks = r.choice([2, 4]) if number // 2 % 2 and recompute != "selective" else 1
    moe = {"ep": ranks, "scores": "softmax", "shared": 0}
    if latent:
        moe |= {"scores": r.choice(["softmax", "sigmoid"]), "shared": r.choice([1, 2]), "dense": 1,
                "dense_width": r.choice([192, 320, 512]), "q_rank": r.choice([0, 48, 96]), "kv_rank": r.choice([32, 64]),
                "nope": r.choice([16, 32]), "rope": r.choice([8, 16])}
    experts = r.choice([4, 8, 16])
    return dataclasses.replace(
        case, family="deepseek_v3" if latent else "qwen3_moe", experts=experts, experts_per_token=r.choice([1, 2, 4]),
        kv_heads=case.heads if latent else case.kv_heads, head_dim=r.choice([16, 32]) if latent else case.head_dim,
        intermediate=r.choice([64, 96, 128, 192]), tied=False, sequence=between(r, 48, 800) // 8 * 8,
        vocab=between(r, 100, 600),
        fsdp=case.fsdp | {"world": ranks * r.choice([1, 2]) if ranks > 1 else r.choice([2, 4, 6]), "moe": moe,
                          "recompute": recompute})


@kind("titan-llama4")
def draw_titan_llama4(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama 4 of torchtitan: without and with expert parallelism, then with 2 tensor-parallel
    ranks too."""
    r = random.Random(f"titan/llama4/{seed}/{number}")
    case = draw_titan(f"{seed}/llama4", number)
    parallel, tensor = bool(number % 2), 1 + number // 2 % 2
    recompute = ("full", "none", "selective")[number // 4 % 3]
    if parallel and recompute == "selective":
        recompute = "full"
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32])
    hidden = heads * head_dim
    ranks = r.choice([2, 4]) if parallel else 1
    inside = max(1, ranks // tensor)
    return dataclasses.replace(
        case, family="llama4", heads=heads, kv_heads=r.choice([2, 4]), head_dim=head_dim, hidden=hidden,
        intermediate=-(-int(2 * 4 * hidden / 3) // 64) * 64, experts=r.choice([4, 8]), experts_per_token=r.choice([1, 2]),
        vocab=between(r, 100, 600) // 2 * 2, sequence=between(r, 48, 800) // 8 * 8, accumulate=1,
        fsdp=case.fsdp | {"world": inside * r.choice([1, 2]) if inside > 1 else 2, "tensor": tensor,
                          "moe": {"ep": ranks, "shared": 1, "step": r.choice([1, 2])}, "recompute": recompute})


@kind("titan-latent")
def draw_titan_latent(seed: int, number: int) -> Case:
    """Case `number` of a seed with DeepSeek V3 of torchtitan on 2 tensor-parallel ranks, every second with expert
    parallelism."""
    r = random.Random(f"titan/latent/{seed}/{number}")
    case = draw_titan_experts(f"{seed}/latent", 2 * number + 1)
    moe, heads = case.fsdp["moe"], r.choice([4, 8])
    ranks = r.choice([2, 4]) if number % 2 else 1
    return dataclasses.replace(
        case, heads=heads, kv_heads=heads, vocab=case.vocab // 2 * 2, accumulate=1,
        fsdp=case.fsdp | {"world": max(1, ranks // 2) * 2, "tensor": 2, "moe": moe | {"ep": ranks},
                          "recompute": ("full", "none")[number // 2 % 2]})


@kind("titan-layers")
def draw_titan_layers(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama or Qwen3 of torchtitan that recomputes every second or third layer."""
    case = draw_titan_qwen3(f"{seed}/layers", number) if number % 2 else draw_titan(f"{seed}/layers", number)
    return dataclasses.replace(case, fsdp=case.fsdp | {"recompute": ("2", "3")[number // 2 % 2]})


@kind("titan-tensor-0.2")
def draw_titan_tensor_02(seed: int, number: int) -> Case:
    """Case `number` of a seed with Llama or Qwen3 of torchtitan 0.2 on 2 tensor-parallel ranks."""
    r = random.Random(f"titan/tensor/0.2/{seed}/{number}")
    case = draw_titan_qwen3(f"{seed}/tensor", number)
    heads, head_dim = r.choice([4, 8]), r.choice([16, 32, 64])
    sizes = {} if number % 2 else {"family": "llama", "head_dim": head_dim, "hidden": heads * head_dim, "tied": False,
                                   "intermediate": -(-int(2 * 4 * heads * head_dim / 3) // 64) * 64}
    return dataclasses.replace(
        case, heads=heads, kv_heads=r.choice([2, 4]), vocab=case.vocab // 2 * 2, sequence=case.sequence // 2 * 2, **sizes,
        accumulate=1, fsdp=case.fsdp | {"tensor": 2, "world": r.choice([2, 4]),
                                        "recompute": ("full", "none", "selective")[number // 2 % 3]})
