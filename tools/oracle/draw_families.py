"""Random cases of families beside those of cases.py, on one device."""
import dataclasses
import random

from cases import Case, FAMILIES, between, draw, kind
from draw_adapters import QUANTIZED_FAMILIES, draw_quantized
from draw_fsdp import FSDP_FAMILIES, draw_accelerate, draw_accelerate_lora, draw_fsdp


@kind("smollm3")
def draw_smollm3(seed: int, number: int) -> Case:
    """Case `number` of a seed of SmolLM3, in which every second layer has no rotary positions; every third case has adapters over
    4-bit weights. Half of the cases have wide heads, and little else, so that attention sets the peak of the forward pass."""
    r = random.Random(f"smollm3/{seed}/{number}")
    if number % 3 == 2:
        case = draw_quantized(f"{seed}/smollm3", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/smollm3", number * len(FAMILIES) + FAMILIES.index("llama"))
    wide = {"hidden": between(r, 64, 128, 8), "intermediate": between(r, 64, 128, 8), "vocab": between(r, 100, 200), "heads": 12,
            "kv_heads": r.choice([3, 12]), "head_dim": 128, "lora_targets": "qv" if case.lora else ""}
    return dataclasses.replace(case, family="smollm3", layers=2, **(wide if number % 2 else {}))

KINDRED = ("granite", "olmo2", "olmo3")


@kind("kindred")
def draw_kindred(seed: int, number: int) -> Case:
    """Case `number` of a seed of Granite, OLMo 2 or OLMo 3. Every fourth case has adapters over 4-bit weights. Half of the cases
    have few words, so that a layer sets the peak; half of those of OLMo 3 have windows in every second layer."""
    r = random.Random(f"kindred/{seed}/{number}")
    family, turn = KINDRED[number % len(KINDRED)], number // len(KINDRED)
    if turn % 4 == 3:
        case = draw_quantized(f"{seed}/kindred", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/kindred", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if turn % 2 else {}
    return dataclasses.replace(case, family=family, layers=r.choice([2, 3]), hidden=case.heads * case.head_dim,
                               window=between(r, 16, 600) if family == "olmo3" and r.random() < 0.5 else 0, **few)


@kind("glm-seed")
def draw_glm_seed(seed: int, number: int) -> Case:
    """Case `number` of a seed of GLM-4 or Seed-OSS, which has dropout in half of its cases. Every fourth case has adapters over
    4-bit weights. Half of the cases have few words, so that a layer sets the peak."""
    r = random.Random(f"glm-seed/{seed}/{number}")
    family, turn = ("glm4", "seed_oss")[number % 2], number // 2
    if turn % 4 == 3:
        case = draw_quantized(f"{seed}/glm-seed", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/glm-seed", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if turn % 2 else {}
    return dataclasses.replace(case, family=family, layers=r.choice([2, 3]), window=0,
                               dropout=r.choice([0.0, 0.1]) if family == "seed_oss" else 0.0, **few)


@kind("gemma")
def draw_gemma(seed: int, number: int) -> Case:
    """Case `number` of a seed of the first Gemma. Every fourth case has adapters over 4-bit weights. Half of the cases have few
    words, so that a layer sets the peak."""
    r = random.Random(f"gemma/{seed}/{number}")
    if number % 4 == 3:
        case = draw_quantized(f"{seed}/gemma", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    else:
        case = draw(f"{seed}/gemma", number * len(FAMILIES) + FAMILIES.index("llama"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="gemma", layers=r.choice([2, 3]), window=0, tied=True, **few)


@kind("quantized-moe")
def draw_quantized_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of attention over 4-bit weights of Mixtral or Qwen3-MoE, whose experts and routers are
    no linear layers: they are in f32 where peft prepares the model. From 14 on as axolotl prepares it: embedding, norms and
    head are cast back to bf16."""
    r = random.Random(f"quantized/moe/{seed}/{number}")
    dense = draw_quantized(f"{seed}/moe", number * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index("llama"))
    case = draw(f"{seed}/moe", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    sizes = {name: getattr(case, name) for name in ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "experts", "experts_per_token")}
    axolotl = {"precision": "bf16", "quantized": dict(dense.quantized, prepared="axolotl", autocast=True)} if number >= 14 else {}
    return dataclasses.replace(dense, family=("mixtral", "qwen3_moe")[number % 2], window=0, vocab=between(r, 100, 4000), **sizes, **axolotl)


@kind("qwen3-moe")
def draw_qwen3_moe(seed: int, number: int) -> Case:
    """Case `number` of a seed of Qwen3-MoE: one device, with adapters in half of the cases; every third under FSDP2. Half of the
    cases have few words, so that a layer sets the peak."""
    r = random.Random(f"qwen3-moe/{seed}/{number}")
    if number % 3 == 2:
        of = FSDP_FAMILIES
        draw_case = (draw_accelerate, draw_fsdp, draw_accelerate_lora)[number // 3 % 3]
        case = draw_case(seed + 11, number // 3 * len(of) + of.index("mixtral"))
    else:
        case = draw(f"{seed}/qwen3-moe", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="qwen3_moe", window=0, **few)


@kind("experts-lora")
def draw_experts_lora(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of experts, which peft adds to their stacked weights: Mixtral and Qwen3-MoE in turn,
    half of them with adapters of attention too; half of the cases have few words. From 24 on the other matrices are in 4 bits."""
    r = random.Random(f"experts-lora/{seed}/{number}")
    case = draw(f"{seed}/experts-lora", number * len(FAMILIES) + FAMILIES.index("mixtral")) if number < 24 \
        else draw_quantized_moe(f"{seed}/experts-lora", number)
    few = {"vocab": between(r, 100, 300)} if number // 2 % 2 else {}
    return dataclasses.replace(case, family=("mixtral", "qwen3_moe")[number % 2], window=0, lora=r.choice([4, 8, 16]), lora_dropout=0.0,
                               lora_targets=("experts", "experts+attention")[number // 4 % 2], **few)


@kind("gpt-oss")
def draw_gpt_oss(seed: int, number: int) -> Case:
    """Case `number` of a seed of gpt-oss, which has no SDPA; half of them have windows in every second layer, and few words."""
    r = random.Random(f"gpt-oss/{seed}/{number}")
    case = draw(f"{seed}/gpt-oss", number * len(FAMILIES) + FAMILIES.index("mixtral"))
    few = {"vocab": between(r, 100, 300)} if number % 2 else {}
    return dataclasses.replace(case, family="gpt_oss", attention="eager", sequence=min(case.sequence, 700),
                               window=between(r, 16, 600) if r.random() < 0.5 else 0, **few)

SHARDED_KINDRED = ("granite", "olmo2", "olmo3", "smollm3", "glm4", "seed_oss")


def model_of_family(seed: str, family: str, number: int) -> Case:
    """A case of a family; only the fields of its model count."""
    if family in KINDRED:
        return draw_kindred(seed, number * len(KINDRED) + KINDRED.index(family))
    if family in ("glm4", "seed_oss"):
        return draw_glm_seed(seed, number * 2 + (family == "seed_oss"))
    if family in FAMILIES:
        return draw(seed, number * len(FAMILIES) + FAMILIES.index(family))
    return {"smollm3": draw_smollm3, "gemma": draw_gemma, "gpt_oss": draw_gpt_oss,
            "qwen3_moe": lambda seed, n: draw_qwen3_moe(seed, 3 * n)}[family](seed, number)
