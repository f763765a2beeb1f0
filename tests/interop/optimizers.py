#!/usr/bin/env python3
"""Optimizers of other packages in float64: writes the golden runs tests/golden/runs/optimizers/expected.json.

    optimizers.py [FILE] [NAME ...]     (needs torch 2.15, transformers 5.23, lion-pytorch 0.2.5, bitsandbytes 0.50)

20 steps from the weights and tokens of tests/golden/runs/gqa-tied, in float64, with clipped gradients and weight decay
for matrices only. By name of the run file:
  lion        lion_pytorch.Lion
  adafactor   torch.optim.Adafactor; its eps1 is that of float32
  muon        torch.optim.Muon for the matrices of the layers, in float64 where torch rounds to bfloat16; AdamW for the rest
  adamw-8bit  bitsandbytes.optim.AdamW8bit on float32 copies of the weights, its CPU backend with the nearest codes
Without names all are computed; those that are not named stay as they are in FILE. tests/plugins/cpu/golden_test.cpp
compares the CPU trainer with the file.
"""
import json
import pathlib
import sys

import torch

import peft_lora
from peft_lora import BASE, MICRO_BATCH, ROOT, SEQ, STEPS

CLIP, DECAY = 0.5, 0.1
BLOCK_OF = "model.layers.0.mlp.down_proj.weight"
RUNS = {
    "lion": {"lr": 1e-4, "betas": [0.9, 0.99], "eps": 1e-8},
    "adafactor": {"lr": 1e-2, "betas": [0.9, 0.95], "eps": 1e-3},
    "muon": {"lr": 1e-3, "betas": [0.95, 0.98], "eps": 1e-8},
    "adamw-8bit": {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8},
}


def newton_schulz(grad, coefficients, steps, eps):
    """torch.optim._muon._zeropower_via_newtonschulz in the type of the gradient."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


class Float32Copies:
    """An optimizer that needs float32: it updates copies, which are then copied back."""

    def __init__(self, groups, make):
        self.pairs, copies = [], []
        for group in groups:
            params = [torch.nn.Parameter(p.detach().float()) for p in group["params"]]
            self.pairs += zip(group["params"], params)
            copies.append(dict(group, params=params))
        self.optimizer = make(copies)

    def step(self):
        for p, copy in self.pairs:
            copy.grad = p.grad.float()
        self.optimizer.step()
        with torch.no_grad():
            for p, copy in self.pairs:
                p.copy_(copy.double())


    def first_block(self, param):
        """Numbers and scale of the first block of both moments."""
        state = self.optimizer.state[next(copy for p, copy in self.pairs if p is param)]
        return {"of": BLOCK_OF, "moments": [
            {"absmax": state[f"absmax{i}"][0].item(),
             "values": state[f"qmap{i}"][state[f"state{i}"].flatten()[:256].long()].tolist()} for i in (1, 2)]}


def encode_nearest(values, code, absmax, out, blocksize):
    """The nearest code, as the torch backend of bitsandbytes; its CPU library takes a neighbour for 4 % of them."""
    blocks = values.flatten().split(blocksize)
    absmax.copy_(torch.stack([b.abs().max() for b in blocks]))
    bounds = (code[:-1] + code[1:]) / 2
    scaled = torch.cat([(b * (1.0 / s.clamp(min=1e-38))).clamp(-1, 1) for b, s in zip(blocks, absmax)])
    out.copy_(torch.bucketize(scaled, bounds).to(torch.uint8).view(out.shape))


def optimizers(name, model, r):
    named = list(model.named_parameters())
    groups = [{"params": [p for _, p in named if p.ndim > 1], "weight_decay": DECAY},
              {"params": [p for _, p in named if p.ndim == 1], "weight_decay": 0.0}]
    if name == "lion":
        import lion_pytorch
        return [lion_pytorch.Lion(groups, lr=r["lr"], betas=r["betas"])]
    if name == "adafactor":
        return [torch.optim.Adafactor(groups, lr=r["lr"], eps=(torch.finfo(torch.float32).eps, r["eps"]), foreach=False)]
    if name == "muon":
        torch.optim._muon._zeropower_via_newtonschulz = newton_schulz
        hidden = [p for n, p in named if p.ndim > 1 and ".layers." in n]
        rest = [dict(g, params=[p for p in g["params"] if all(p is not h for h in hidden)]) for g in groups]
        return [torch.optim.Muon(hidden, lr=r["lr"], weight_decay=DECAY, momentum=r["betas"][0],
                                 adjust_lr_fn="match_rms_adamw"),
                torch.optim.AdamW(rest, lr=r["lr"], betas=r["betas"], eps=r["eps"])]
    import bitsandbytes
    bitsandbytes.backends.cpu.ops._quant_blockwise_fp32_direct = encode_nearest
    return [Float32Copies(groups, lambda g: bitsandbytes.optim.AdamW8bit(g, lr=r["lr"], betas=r["betas"], eps=r["eps"]))]


def train(name):
    r = RUNS[name]
    model = peft_lora.base_model()
    chosen = optimizers(name, model, r)
    raw = (BASE / "tokens.bin").read_bytes()
    tokens = torch.tensor([raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)])
    out = {"run": dict(r, steps=STEPS, micro_batch=MICRO_BATCH, seq_len=SEQ, weight_decay=DECAY, grad_clip=CLIP),
           "loss": [], "grad_norm": []}
    for step in range(STEPS):
        first = step * MICRO_BATCH * SEQ
        batch = tokens[first : first + MICRO_BATCH * SEQ + 1]
        logits = model(batch[:-1].view(MICRO_BATCH, SEQ)).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), batch[1:])
        model.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for o in chosen:
            o.step()
        if name == "adamw-8bit" and step == 0:
            out["first_block"] = chosen[0].first_block(dict(model.named_parameters())[BLOCK_OF])
        out["loss"].append(loss.item())
        out["grad_norm"].append(norm.item())
    out["final_weights"] = {n: p.norm().item() for n, p in model.named_parameters()}
    return out


if __name__ == "__main__":
    arguments = sys.argv[1:]
    file = ROOT / "tests/golden/runs/optimizers/expected.json"
    if arguments and arguments[0].endswith(".json"):
        file = pathlib.Path(arguments.pop(0))
    expected = json.loads(file.read_text()) if file.exists() else {}
    for name in arguments or RUNS:
        expected[name] = train(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(expected, indent=1) + "\n")
