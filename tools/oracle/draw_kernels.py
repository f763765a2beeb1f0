"""Random cases with kernels of Liger and axolotl, Cut Cross Entropy, and the fused head of TRL."""
import dataclasses
import random

from cases import Case, FAMILIES, MODEL_FIELDS, OPTIMIZERS, between, draw, kind
from draw_adapters import QUANTIZED_FAMILIES, draw_dpo, draw_int8, draw_quantized, draw_trl
from draw_deepspeed import draw_zero, draw_zero3, draw_zero3_lora, draw_zero_lora
from draw_families import KINDRED, draw_glm_seed, draw_kindred, draw_qwen3_moe, draw_smollm3, model_of_family
from draw_fsdp import FSDP_FAMILIES, draw_accelerate, draw_flat, draw_flat_lora

LIGER_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")


@kind("liger")
def draw_liger(seed: int, number: int, families: tuple = LIGER_FAMILIES) -> Case:
    """Case `number` of a seed with the kernels of Liger; every third one has adapters over 4-bit weights. Half of the cases have
    few tokens, so that gradients of the head or layers set their peaks, not chunks of logits."""
    r = random.Random(f"liger/{seed}/{number}")
    family, turn = families[number % len(families)], number // len(families)
    if number % 3 == 2:
        case = draw_quantized(f"{seed}/liger", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/liger", turn * len(FAMILIES) + FAMILIES.index(family))
    few = (turn + number) % 2
    checkpoint = r.random() < 0.5
    return dataclasses.replace(
        case, liger=True, checkpoint=checkpoint, reentrant=True if checkpoint and r.random() < 0.3 else None,
        sequence=between(r, 16, 200) if few else case.sequence)


@kind("liger-gemma")
def draw_liger_gemma(seed: int, number: int) -> Case:
    """The same for Gemma 2 and 3."""
    return draw_liger(seed, number, ("gemma2", "gemma3"))


@kind("liger-mixtral")
def draw_liger_mixtral(seed: int, number: int) -> Case:
    """Case `number` of a seed of Mixtral with the kernels of Liger."""
    return dataclasses.replace(draw(f"{seed}/liger", number * len(FAMILIES) + FAMILIES.index("mixtral")), liger=True)


@kind("int8-liger")
def draw_int8_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 8-bit weights and the kernels of Liger."""
    return dataclasses.replace(draw_int8(f"{seed}/liger", number), liger=True)


@kind("sharded-liger")
def draw_sharded_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters and the kernels of Liger under FSDP1; every third one has 4-bit weights."""
    families = len(FSDP_FAMILIES) - 1
    turn = number // families
    case = draw_flat_lora(seed + 7, turn * len(FSDP_FAMILIES) + number % families)
    if number % 3 == 2:
        case = dataclasses.replace(
            case, precision="bf16", fsdp=case.fsdp | {"param": "bf16", "reduce": "bf16"},
            quantized={"type": "nf4", "double": turn % 2 == 0, "prepared": False, "autocast": False})
    return dataclasses.replace(case, liger=True)


@kind("fsdp-liger")
def draw_fsdp_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training with the kernels of Liger under FSDP2 as accelerate prepares it, or under FSDP1 in
    every second case up to 30. From 45 on Mixtral, under FSDP1 in every second case."""
    families = len(FSDP_FAMILIES) - 1
    if number >= 45:
        draw_case = draw_flat if number % 2 else draw_accelerate
        return dataclasses.replace(draw_case(seed + 9, (number - 44) * len(FSDP_FAMILIES) - 1), liger=True)
    turn, flat = number // families, number < 30 and (number + number // families) % 2 == 0
    case = (draw_flat if flat else draw_accelerate)(seed + 9, turn * len(FSDP_FAMILIES) + number % families)
    return dataclasses.replace(case, liger=True)


@kind("zero-liger")
def draw_zero_liger(seed: int, number: int) -> Case:
    """Case `number` of a seed with the kernels of Liger under DeepSpeed: stage 3 in every second case; with adapters from 28 on."""
    families = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3")
    family, turn, third = families[number % len(families)], number // len(families), number % 2 == 0
    draw_case = (draw_zero3_lora if third else draw_zero_lora) if number >= 28 else draw_zero3 if third else draw_zero
    for n in range(1000):
        case = draw_case(f"{seed}/liger", turn * 40 + n)
        if case.family == family:
            return dataclasses.replace(case, liger=True)

CUT_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "mixtral")


@kind("cut")
def draw_cut(seed: int, number: int) -> Case:
    """Case `number` of a seed with Cut Cross Entropy, whose weights and hidden states have 16 bits; every third one has adapters
    over 4-bit weights. Half of the cases have few tokens."""
    r = random.Random(f"cut/{seed}/{number}")
    family, turn = CUT_FAMILIES[number % len(CUT_FAMILIES)], number // len(CUT_FAMILIES)
    case = draw(f"{seed}/cut", turn * len(FAMILIES) + FAMILIES.index(family))
    if turn % 3 == 2 and family != "mixtral":
        case = draw_quantized(f"{seed}/cut", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
        case = dataclasses.replace(case, quantized=dict(case.quantized, prepared=False, autocast=True))
    checkpoint = r.random() < 0.5
    return dataclasses.replace(
        case, cut=True, precision="bf16", checkpoint=checkpoint, sequence=between(r, 16, 200) if turn % 2 else case.sequence)


@kind("cut-kindred")
def draw_cut_kindred(seed: int, number: int) -> Case:
    """The same for families whose modules are like those of Llama or Mixtral but for a few operators."""
    families = ("granite", "olmo2", "olmo3", "qwen3_moe", "smollm3", "glm4", "seed_oss")
    family, turn = families[number % len(families)], number // len(families)
    r = random.Random(f"cut/kindred/{seed}/{number}")
    if family == "qwen3_moe":
        case = draw_qwen3_moe(f"{seed}/cut", turn * 3)
    elif family in ("glm4", "seed_oss"):
        case = draw_glm_seed(f"{seed}/cut", turn * 2 + (family == "seed_oss"))
    elif family == "smollm3":
        case = draw_smollm3(f"{seed}/cut", turn)
    else:
        case = draw_kindred(f"{seed}/cut", turn * len(KINDRED) + KINDRED.index(family))
    quantized = dict(case.quantized, prepared=False, autocast=True) if case.quantized else None
    return dataclasses.replace(case, cut=True, precision="bf16", quantized=quantized, checkpoint=r.random() < 0.5,
                               sequence=between(r, 16, 200) if turn % 2 else case.sequence)

AXOLOTL_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")


@kind("axolotl")
def draw_axolotl(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters that kernels of axolotl compute, over weights in 4 bits or in bf16, under autocast.
    Half of the cases have few tokens."""
    r = random.Random(f"axolotl/{seed}/{number}")
    family, turn = AXOLOTL_FAMILIES[number % len(AXOLOTL_FAMILIES)], number // len(AXOLOTL_FAMILIES)
    case = draw_quantized(f"{seed}/axolotl", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    quantized = dict(case.quantized, type="nf4", prepared=False, autocast=True) if (turn + number) % 2 else None
    checkpoint = r.random() < 0.5
    kernels = ["mlp", "qkv", "o"] if r.random() < 0.6 else r.choice([["mlp"], ["qkv"], ["o"], ["mlp", "o"], []])
    return dataclasses.replace(
        case, axolotl=kernels, quantized=quantized, precision="bf16", checkpoint=checkpoint, window=0,
        optimizer=OPTIMIZERS[number % 3], lora_targets="all" if r.random() < 0.7 else "qv",
        reentrant=True if checkpoint and r.random() < 0.6 else None)

FUSED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "gpt2", "granite", "smollm3")


@kind("fused")
def draw_fused(seed: int, number: int) -> Case:
    """Case `number` of a seed with the fused head of TRL; every third one, but for three families, has adapters over 4-bit weights.
    Every second case has few tokens."""
    r = random.Random(f"fused/{seed}/{number}")
    family, turn = FUSED_FAMILIES[number % len(FUSED_FAMILIES)], number // len(FUSED_FAMILIES)
    if turn % 3 == 2 and family in QUANTIZED_FAMILIES:
        case = draw_trl(f"{seed}/fused", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/fused", number * 5 + turn)
        model = model_of_family(f"{seed}/fused", family, turn)
        case = dataclasses.replace(case, **{name: getattr(model, name) for name in MODEL_FIELDS})
    few = {"sequence": between(r, 16, 200)} if (number + turn) % 2 else {}
    return dataclasses.replace(case, fused=True, attention="eager" if family == "gemma2" else "sdpa", layers=2,
                               vocab=between(r, 4000, 70000), **few)


@kind("fused-dpo")
def draw_fused_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by DPOTrainer with the fused head of TRL."""
    case = draw_dpo(seed + 30, number)
    return dataclasses.replace(case, fused=True, dpo=case.dpo | {"trainer": "trl"})
