"""Random cases of adapters of peft, mostly over weights of bitsandbytes: as Trainer, TRL and LLaMA-Factory train them."""
import dataclasses
import random

from cases import Case, FAMILIES, OPTIMIZERS, TARGETS, between, draw, kind

QUANTIZED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")

# (precision in which the model is loaded and its products compute, prepared by peft, autocast)
QUANTIZED_TYPES = (("bf16", True, True), ("bf16", False, True), ("bf16", True, True), ("fp32", True, False), ("bf16", False, False))


@kind("quantized")
def draw_quantized(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights of bitsandbytes. Half of the cases have few tokens, so that
    weights set their peaks, not logits. Every second case from 42 on has AdamW of bitsandbytes in 8 bits."""
    r = random.Random(f"quantized/{seed}/{number}")
    family = QUANTIZED_FAMILIES[number % len(QUANTIZED_FAMILIES)]
    turn = number // len(QUANTIZED_FAMILIES)
    base = draw(f"{seed}/quantized", number // len(QUANTIZED_FAMILIES) * 9 + FAMILIES.index(family))
    precision, prepared, autocast = QUANTIZED_TYPES[(turn + number) % len(QUANTIZED_TYPES)]
    few = (turn + number) % 2 == 1
    optimizer = "adamw-8bit" if number >= 42 and number % 2 else OPTIMIZERS[(turn + number) % 3]
    return dataclasses.replace(
        base, precision=precision, attention="eager" if family == "gemma2" or number % 3 == 0 else "sdpa",
        checkpoint=r.random() < 0.6, optimizer=optimizer, lora=r.choice([4, 8, 16, 32]),
        lora_targets=TARGETS[number // 2 % 2], lora_dropout=r.choice([0.0, 0.05]), batch=1 if few else base.batch,
        sequence=between(r, 4, max(8, base.hidden // 16)) if few else base.sequence,
        vocab=between(r, 500, 4000) if few else base.vocab,
        quantized={"type": r.choice(["nf4", "nf4", "fp4"]), "double": r.random() < 0.6, "prepared": prepared, "autocast": autocast})


@kind("int8")
def draw_int8(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 8-bit weights of bitsandbytes. A third of the cases has no outliers. Checkpoints
    are reentrant in every second case that has them. From 56 on the adapters are in bf16, as TRL casts them."""
    r = random.Random(f"int8/{seed}/{number}")
    case = draw_quantized(f"{seed}/int8", number)
    turn = number // len(QUANTIZED_FAMILIES)
    types = {"prepared": case.quantized["prepared"], "autocast": case.quantized["autocast"]}
    checkpoint = (turn + number) % 3 != 0
    if number >= 56:
        case = dataclasses.replace(case, precision="bf16")
        types = {"prepared": False, "autocast": True, "adapters": "bf16"}
    return dataclasses.replace(
        case, checkpoint=checkpoint, reentrant=True if checkpoint and r.random() < 0.4 else None, layers=r.choice([2, 3]),
        quantized={"type": "int8", "outliers": r.choice([0, 1, 3, 24]), **types})

FACTORY_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")


@kind("factory")
def draw_factory(seed: int, number: int) -> Case:
    """Case `number` of a seed with the loss of the Trainer of LLaMA-Factory's format v1: full training in f32, adapters over bf16,
    or adapters over 4-bit weights, without autocast."""
    r = random.Random(f"factory/{seed}/{number}")
    family, turn = FACTORY_FAMILIES[number % len(FACTORY_FAMILIES)], number // len(FACTORY_FAMILIES)
    kind = (number + turn) % 3
    if kind == 2:
        case = draw_quantized(f"{seed}/factory", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
        case = dataclasses.replace(case, precision="bf16", quantized=dict(case.quantized, prepared=False, autocast=False))
    else:
        case = draw(f"{seed}/factory", turn * len(FAMILIES) + FAMILIES.index(family))
        adapters = {"lora": r.choice([4, 8, 16]), "lora_targets": "all", "lora_dropout": 0.05} if kind else {"lora": 0, "lora_targets": "", "lora_dropout": 0.0}
        case = dataclasses.replace(case, precision="bf16" if kind else "fp32", **adapters)
    return dataclasses.replace(case, factory=True, checkpoint=r.random() < 0.7, optimizer="adamw-foreach",
                               batch=1 if number % 2 else case.batch, vocab=between(r, 2000, 30000))


@kind("ranks")
def draw_ranks(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters of different ranks; every second one has 4-bit weights. Half of them are the same in
    each layer."""
    r = random.Random(f"ranks/{seed}/{number}")
    case = draw_quantized(f"{seed}/ranks", number // 6 * len(QUANTIZED_FAMILIES) + number % 6)
    if number % 2:
        case = dataclasses.replace(case, quantized=None, precision="bf16")
    layer = "layers.1.self_attn." if number % 4 < 2 else ""
    return dataclasses.replace(case, lora_targets="all", optimizer=OPTIMIZERS[number % 3], sequence=between(r, 8, 100),
                               ranks={layer + "q_proj": r.choice([4, 48]), "down_proj": r.choice([2, 64]), "v_proj": 24})


@kind("reentrant")
def draw_reentrant(seed: int, number: int) -> Case:
    """Case `number` of a seed with reentrant checkpoints; every second one has adapters over 4-bit weights. Half of the cases
    have few tokens and a small vocabulary, so that layers set their peaks, not logits."""
    r = random.Random(f"reentrant/{seed}/{number}")
    turn = number // 2
    draw_case = draw_quantized if number % 2 else draw
    case = draw_case(f"{seed}/reentrant", turn)
    few = turn % 2 == turn // 9 % 2
    return dataclasses.replace(
        case, checkpoint=True, reentrant=True, layers=r.choice([2, 3]),
        sequence=between(r, 16, 200) if few else case.sequence, vocab=between(r, 500, 1500) if few else case.vocab)


@kind("trl")
def draw_trl(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights as SFTTrainer of TRL 1.16 prepares them: cast to bf16. Embedding,
    norms and head are in f32 or bf16."""
    case = draw_quantized(f"{seed}/trl", number)
    return dataclasses.replace(
        case, precision="bf16", quantized=dict(case.quantized, prepared=number % 2 == 0, autocast=True, adapters="bf16"))


@kind("trl-norms")
def draw_trl_norms(seed: int, number: int) -> Case:
    """Case `number` of a seed with adapters over 4-bit weights as SFTTrainer of TRL before 1.0 prepares them: norms in f32,
    embedding and head in bf16."""
    case = draw_quantized(f"{seed}/trl/norms", number)
    return dataclasses.replace(case, precision="bf16", quantized=dict(case.quantized, prepared="trl", autocast=True))


@kind("eight-bit")
def draw_eight_bit(seed: int, number: int) -> Case:
    """Case `number` of a seed in full training with AdamW of bitsandbytes in 8 bits, with few tokens, so that weights and moments
    set the peaks."""
    r = random.Random(f"eight/{seed}/{number}")
    case = draw(f"{seed}/eight", number)
    return dataclasses.replace(case, optimizer="adamw-8bit", lora=0, lora_targets="", lora_dropout=0.0, batch=1,
                               sequence=between(r, 8, 64))

DPO_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3")


@kind("dpo")
def draw_dpo(seed: int, number: int) -> Case:
    """Case `number` of a seed trained by preferences: in turn as a whole, with adapters, and with adapters over 4-bit weights. Every
    sixth has no reference in its step."""
    r = random.Random(f"dpo/{seed}/{number}")
    family, turn = DPO_FAMILIES[number % len(DPO_FAMILIES)], number // len(DPO_FAMILIES)
    way = (turn + number) % 3
    if way == 2:
        case = draw_quantized(f"{seed}/dpo", turn * len(QUANTIZED_FAMILIES) + QUANTIZED_FAMILIES.index(family))
    else:
        case = draw(f"{seed}/dpo", turn * len(FAMILIES) + FAMILIES.index(family))
        case = dataclasses.replace(case, lora=r.choice([4, 8, 16]) if way else 0, lora_targets="all" if way else "")
    checkpoint = r.random() < 0.6
    return dataclasses.replace(
        case, lora_dropout=0.0, batch=r.choice([1, 1, 2]), vocab=between(r, 4000, 30000), sequence=between(r, 48, 600), checkpoint=checkpoint,
        reentrant=True if checkpoint and r.random() < 0.5 else None,
        dpo={"trainer": ("trl", "factory")[turn % 2], "reference": number % 6 != 5})
