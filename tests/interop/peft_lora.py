#!/usr/bin/env python3
"""LoRA and DoRA of the PEFT library in float64: writes the golden runs tests/golden/runs/lora, lora-dropout, qlora,
dora, dora-dropout, qdora, lora-pattern, lora-modules, lora-modules-untied, lora-head, lora-head-dropout,
lora-vocabulary, dora-head, dora-head-dropout, dora-vocabulary, lora-tied and dora-tied.

    peft_lora.py [FOLDER]            (default: tests/golden/runs; needs torch, transformers, peft and bitsandbytes)

qlora is the run of lora after the matrices of the layers were quantized to NF4 with double quantization and
dequantized (bnb_nf4.py).

lora-pattern has other ranks and alphas in some matrices, and adapters in some layers only (PATTERNS).

lora-modules trains the norms and the embedding, which is the LM head too, beside adapters of q and v (MODULES).

lora-modules-untied trains embedding and LM head whole, of a model in which they are two tensors.

lora-head has an adapter of the LM head, which is the embedding too (HEAD), lora-head-dropout also with dropout, and
lora-vocabulary adapters of embedding and LM head of a model in which they are two tensors (VOCABULARY). The merged
weights have both tensors.

lora-tied has one adapter of embedding and LM head, which are one tensor (TIED): ensure_weight_tying. PEFT 0.21 makes two
parameters of one storage, which an optimizer changes twice, each time with moments and decay of its own. Here the
factors of the head are those of the embedding, transposed, so that the gradients of both uses add up (tie()); with
plain SGD both are the same. dora-head, dora-head-dropout, dora-vocabulary and dora-tied are the runs of LoRA of these
names with use_dora.

dora, dora-dropout and qdora are the same three runs with use_dora. Magnitudes, which are vectors, are not decayed,
like every vector in trainhost; with the Trainer of transformers they are.

Base weights and tokens are those of tests/golden/runs/gqa-tied, of untied models those of mha. Written are adapter_config.json and
adapter_model.safetensors, as PEFT saves them, with random A and B (B is 0 in a new adapter, which would hide half of
the gradients), and expected.json: losses and gradient norms of 20 steps of AdamW, the norms of A and B after them,
and those of the merged weights before them. tests/plugins/cpu/golden_test.cpp compares the CPU trainer with it, and
tests/tools/trainhost/adapter_peft_test.cpp the merged weights.

lora-dropout has the losses and norms of the same adapters with lora_dropout = 0.25. Instead of PEFT's random masks it
has those of trainhost, a function of seed, product, micro-batch and element (core/step/dropout.hpp), computed here from
the definition of Philox4x32-10.
"""
import json
import pathlib
import sys

import numpy as np
import bnb_nf4
import peft
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "tests/golden/runs/gqa-tied"
UNTIED = ROOT / "tests/golden/runs/mha"
LAYERS = 3  # of gqa-tied
STEPS, MICRO_BATCH, SEQ = 20, 2, 64
LR, BETAS, EPS, DECAY, CLIP = 0.001, (0.9, 0.95), 1e-8, 0.1, 0.5
DROPOUT, SEED = 0.25, 1337
PATTERNS = dict(target_modules=r".*\.(q_proj|v_proj|o_proj|down_proj)|model\.layers\.2\.mlp\.(gate|up)_proj",
                exclude_modules=["layers.1.self_attn.o_proj"],
                rank_pattern={"down_proj": 5, r"layers\.1\.self_attn\..*": 2}, alpha_pattern={"down_proj": 20})

HEAD = dict(target_modules=["q_proj", "v_proj", "lm_head"])
VOCABULARY = dict(target_modules=["q_proj", "embed_tokens", "lm_head"], rank_pattern={"lm_head": 5})
TIED = dict(target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True)
BOTH = dict(target_modules=["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"])
MODULES = dict(target_modules=["q_proj", "v_proj"], modules_to_save=["norm", "embed_tokens"], ensure_weight_tying=True)


def in_nf4(name, w):
    """The values that a matrix of a layer has in NF4."""
    return bnb_nf4.round_trip(w) if ".layers." in name and w.dim() == 2 else w


def base_model(nf4=False, base=BASE):
    config = transformers.AutoConfig.from_pretrained(base)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).to(torch.float64)
    weights = safetensors.torch.load_file(base / "model.safetensors")
    missing, unexpected = model.load_state_dict({k: (in_nf4(k, v) if nf4 else v).double() for k, v in weights.items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def adapted(model, dora=False, **changes):
    config = peft.LoraConfig(**{"r": 3, "lora_alpha": 12, "use_rslora": True, "use_dora": dora, "task_type": "CAUSAL_LM",
                                "target_modules": ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]} | changes)
    model = peft.get_peft_model(model, config)
    torch.manual_seed(0)
    for name, p in model.named_parameters():  # exact in float32, in which PEFT saves them
        # A new adapter has the norms of the rows, and the modules of the model.
        if p.requires_grad and ("lora_magnitude_vector" in name or "modules_to_save" in name):
            p.data = (p.data * (1 + 0.2 * torch.randn(p.shape))).float().double()
        elif p.requires_grad:
            # PEFT swaps the names of the factors of an embedding.
            small = "lora_B" in name or "lora_embedding_A" in name
            p.data = (torch.randn(p.shape) * (0.02 if small else 0.1)).double()
    return model


def tie(model):
    """The factors of the LM head become those of the embedding, whose gradients then are sums."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    a, b = embedding.lora_embedding_A["default"], embedding.lora_embedding_B["default"]
    for linear in (head.lora_A["default"], head.lora_B["default"]):
        del linear._parameters["weight"]

    def set_factors(*_):
        head.lora_A["default"].weight, head.lora_B["default"].weight = b.t(), a.t()

    set_factors()
    head.register_forward_pre_hook(set_factors)
    return model


def copy_to_head(model):
    """The values of the factors of the LM head, where PEFT has them as parameters."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    head.lora_A["default"].weight.data = embedding.lora_embedding_B["default"].data.t().contiguous()
    head.lora_B["default"].weight.data = embedding.lora_embedding_A["default"].data.t().contiguous()
    if head.use_dora["default"]:  # the norms of the rows, as in a new adapter, changed a little
        w = head.get_base_layer().weight + head.scaling["default"] * head.lora_B["default"].weight @ head.lora_A["default"].weight
        m = head.lora_magnitude_vector["default"].weight
        torch.manual_seed(3)
        m.data = (w.norm(dim=1) * (1 + 0.2 * torch.randn(m.shape))).float().double()
    return model


def philox(counter, key):
    """Four words for a counter of four arrays of 32 bits and a key of two numbers."""
    c, key = [x.astype(np.uint64) for x in counter], list(key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), q & low, (p >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]),
             p & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


class Dropout(torch.nn.Module):
    """The mask of trainhost: product = 4 * layer + (0: q, k, v; 1: o; 2: gate, up; 3: down); 4 * layers + 1 of the
    LM head."""

    step = 0

    def __init__(self, name):
        super().__init__()
        if name.endswith("lm_head"):
            self.product = 4 * LAYERS + 1
            return
        layer = int(name.split("layers.")[1].split(".")[0])
        kinds = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
        self.product = 4 * layer + next(i for i, names in enumerate(kinds) if name.split(".")[-1] in names)

    def forward(self, x):
        rows, columns = x.shape[0] * x.shape[1], x.shape[2]
        row, block = np.meshgrid(np.arange(rows), np.arange((columns + 3) // 4), indexing="ij")
        counter = (block, row, np.full_like(row, Dropout.step), np.full_like(row, self.product << 16))
        words = np.stack(philox(counter, (SEED & 0xFFFFFFFF, SEED >> 32)), -1).reshape(rows, -1)[:, :columns]
        keep = torch.from_numpy((words >= int(DROPOUT * 2**32)).astype(np.float64)).view(x.shape)
        # The factor is a float32 there.
        return x * keep * float(np.float32(1 / (1 - DROPOUT)))


def train(model, base=BASE):
    """Losses, gradient norms and final norms of 20 steps of AdamW."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    raw = (base / "tokens.bin").read_bytes()
    tokens = torch.tensor([raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)])
    expected = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        Dropout.step = step
        first = step % ((len(tokens) - 1) // (MICRO_BATCH * SEQ)) * MICRO_BATCH * SEQ  # mha has tokens for 5 steps
        batch = tokens[first : first + MICRO_BATCH * SEQ + 1]
        logits = model(batch[:-1].view(MICRO_BATCH, SEQ)).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), batch[1:])
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        expected["loss"].append(loss.item())
        expected["grad_norm"].append(norm.item())
    expected["final_weights"] = {k: {"l2": v.norm().item()} for k, v in state_of(model).items()}
    return expected


def state_of(model):
    """What PEFT saves, without its copies of frozen tensors and of tied factors."""
    state = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    tied = model.peft_config["default"].ensure_weight_tying and "embed_tokens" in model.peft_config["default"].target_modules
    return {k: v for k, v in state.items() if not (tied and "lm_head.lora_" in k and "magnitude" not in k)}


def run_settings():
    return {"steps": STEPS, "micro_batch": MICRO_BATCH, "seq_len": SEQ, "lr": LR, "betas": BETAS, "eps": EPS,
            "weight_decay": DECAY, "grad_clip": CLIP, "peft": peft.__version__, "torch": torch.__version__}


def write(folder, dora, base=BASE, **changes):
    tied = changes.get("ensure_weight_tying") and "embed_tokens" in changes["target_modules"]

    def make():
        model = adapted(base_model(base=base), dora, **changes)
        return copy_to_head(model) if tied else model

    model = make()
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.float().contiguous() for k, v in peft.get_peft_model_state_dict(model).items()}
    safetensors.torch.save_file(state, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = model.peft_config["default"]
    config.inference_mode = True
    config.base_model_name_or_path = "../" + base.name
    config.save_pretrained(folder)
    expected = train(tie(model) if tied else model, base)
    model = make()
    if config.target_modules & {"lm_head", "embed_tokens"} and not (tied and not dora):
        # merge_and_unload() would add the change of a tied LM head to the embedding too.
        head = model.get_output_embeddings()
        head = getattr(head, "base_layer", head)
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    if tied and not dora:  # one tensor, whose change is added once
        model.get_output_embeddings().lora_B["default"].weight.data.zero_()
    merged = model.merge_and_unload()
    expected["merged_weights"] = {k: {"l2": v.norm().item(), "sum": v.sum().item()}
                                  for k, v in merged.state_dict().items()
                                  if not model.config.tie_word_embeddings or k != "lm_head.weight"}
    expected["run"] = run_settings()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def write_nf4(folder, dora):
    model = adapted(base_model(nf4=True), dora)
    same = adapted(base_model(), dora).state_dict()  # magnitudes are made from the norms of the base
    model.load_state_dict({k: v for k, v in same.items() if "lora_" in k}, strict=False)
    folder.mkdir(parents=True, exist_ok=True)
    expected = train(model)
    expected["run"] = run_settings()
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def write_dropout(folder, dora, **changes):
    model = adapted(base_model(), dora, **changes)
    for name, module in model.named_modules():
        if hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = Dropout(name)
    folder.mkdir(parents=True, exist_ok=True)
    expected = train(model)
    expected["run"] = run_settings() | {"lora_dropout": DROPOUT, "seed": SEED}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    runs = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/golden/runs"
    write(runs / "lora-pattern", False, **PATTERNS)
    write(runs / "lora-modules", False, **MODULES)
    write(runs / "lora-modules-untied", False, UNTIED, **BOTH)
    write(runs / "lora-head", False, **HEAD)
    write_dropout(runs / "lora-head-dropout", False, **HEAD)
    write(runs / "dora-head", True, **HEAD)
    write_dropout(runs / "dora-head-dropout", True, **HEAD)
    write(runs / "lora-vocabulary", False, UNTIED, **VOCABULARY)
    write(runs / "dora-vocabulary", True, UNTIED, **VOCABULARY)
    write(runs / "lora-tied", False, **TIED)
    write(runs / "dora-tied", True, **TIED)
    for dora in (False, True):
        write(runs / ("dora" if dora else "lora"), dora)
        write_dropout(runs / ("dora-dropout" if dora else "lora-dropout"), dora)
        write_nf4(runs / ("qdora" if dora else "qlora"), dora)
