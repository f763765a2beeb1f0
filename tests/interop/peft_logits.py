#!/usr/bin/env python3
"""Adapters that trainhost trained load in PEFT, give the same logits, to 1e-4, and are merged to the same weights.

  peft_logits.py BUILD_DIR

Trains adapters of two families of models with BUILD_DIR/bin/trainhost, as LoRA, as DoRA and with modules that are
trained whole, opens them with PEFT in float32, and compares the logits and the merged weights with those of trainhost
after `trainhost merge`. Then trainhost continues with an adapter that PEFT wrote, and merges others with ranks by
pattern and with adapters of embedding and LM head. Exit 77 (skipped, with the reason) where torch, transformers or peft is
missing.
"""
import json, os, subprocess, sys, tempfile

try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except Exception as e:  # not installed, or not usable here
    print(f"skipped: torch, transformers and peft are needed ({e})")
    sys.exit(77)

build = os.path.abspath(sys.argv[1])
SIZES = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512)
MODELS = {
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(tie_word_embeddings=True, **SIZES)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(attention_bias=True, mlp_bias=True, **SIZES)),
}
PATTERNS = dict(target_modules=["q_proj", "down_proj"], rank_pattern={"q_proj": 8, "layers.0.mlp.down_proj": 2},
                alpha_pattern={r"layers\.[12]\.mlp.down_proj": 3})
WRITTEN = {
    "qwen2": {"patterns": PATTERNS | dict(use_rslora=True),
              "embedding": dict(target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True),
              "head": dict(target_modules=["q_proj", "lm_head"]),
              "saved": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)},
    "llama": {"patterns": PATTERNS | dict(use_dora=True),
              "head": dict(target_modules=["q_proj", "lm_head"], use_dora=True),
              "ends": dict(target_modules=["embed_tokens", "lm_head"], rank_pattern={"lm_head": 7}),
              "saved": dict(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])},
}


TIED = {"qwen2-embedding", "qwen2-head", "qwen2-vocabulary", "qwen2-vocabulary-further", "qwen2-vocabulary-dora",
        "qwen2-vocabulary-tied", "qwen2-vocabulary-tied-dora"}


def run(*args):
    subprocess.run([f"{build}/bin/trainhost", *args], check=True, stdout=subprocess.DEVNULL)


def base(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()


def compare(name, source, adapter, work):
    """Logits and merged weights of an adapter."""
    model = peft.PeftModel.from_pretrained(base(source), adapter).eval()
    torch.manual_seed(1)
    ids = torch.randint(0, 256, (1, 48))
    with torch.no_grad():
        plain, theirs = base(source)(ids).logits[0], model(ids).logits[0]
    merged, out = os.path.join(work, name + "-merged"), os.path.join(work, "logits.bin")
    run("merge", adapter, "--model", source, "-o", merged)
    subprocess.run([f"{build}/tests/interop_dump_logits", merged, out] + [str(i) for i in ids[0].tolist()], check=True)
    ours = torch.frombuffer(bytearray(open(out, "rb").read()), dtype=torch.float32).view(48, -1)
    worst, change = (ours - theirs).abs().max().item(), (theirs - plain).abs().max().item()
    unloaded = model.merge_and_unload().state_dict()
    weights = max((v.float() - unloaded[k]).abs().max().item()
                  for k, v in safetensors.torch.load_file(os.path.join(merged, "model.safetensors")).items())
    print(f"{name}: the adapter changes logits by up to {change:.2f}; difference of logits {worst:.2e}, of merged weights "
          f"{weights:.2e}")
    assert change > 0.05, f"{name}: the adapter has no effect"
    # PEFT 0.21 adds the changes of a tied embedding and LM head to their one tensor when it merges; its logits have each
    # in its own place.
    assert worst < 1e-4 and (weights < 1e-5 or name in TIED), f"{name}: {worst}, {weights}"


with tempfile.TemporaryDirectory() as tmp:
    text = os.path.join(tmp, "text.txt")
    open(text, "w").write("The cat sat on the mat. " * 400)
    tune = ["--set", "data.seq_len=64", "--set", "data.tokenizer=bytes", "--set", "optimizer.lr=5e-3", "-q"]
    for family, make in MODELS.items():
        torch.manual_seed(0)
        source = os.path.join(tmp, family)
        make().save_pretrained(source)
        for kind in ("lora", "dora"):
            name, out = f"{family}-{kind}", os.path.join(tmp, f"{family}-{kind}")
            run("finetune", source, text, f"--{kind}", "--set", f"output.dir={out}", *tune)
            adapter = os.path.join(out, "adapter")
            assert json.load(open(os.path.join(adapter, "adapter_config.json")))["use_dora"] == (kind == "dora")
            compare(name, source, adapter, tmp)
        # Adapters of the vocabulary; of qwen2, whose embedding is the LM head, one of each. Then trained further.
        vocabulary = os.path.join(tmp, family + "-vocabulary")
        run("finetune", source, text, "--lora", "--set", 'lora.targets=["q_proj", "lm_head", "embed_tokens"]', "--set",
            f"output.dir={vocabulary}", *tune)
        compare(family + "-vocabulary", source, os.path.join(vocabulary, "adapter"), tmp)
        out = vocabulary + "-further"
        run("finetune", source, text, "--adapter", os.path.join(vocabulary, "adapter"), "--set", f"output.dir={out}", *tune)
        compare(family + "-vocabulary-further", source, os.path.join(out, "adapter"), tmp)
        # With magnitudes; and of qwen2 one adapter of both, which PEFT ties too.
        for kind, more in (("dora", []), ("tied", ["lora.ensure_weight_tying=true"]),
                           ("tied-dora", ["lora.ensure_weight_tying=true", "lora.dora=true"])):
            if "tied" in kind and family != "qwen2":
                continue
            out = os.path.join(tmp, f"{family}-vocabulary-{kind}")
            targets = 'lora.targets=["q_proj", "lm_head", "embed_tokens"]'
            settings = [x for s in [targets, *(more or ["lora.dora=true"]), f"output.dir={out}"] for x in ("--set", s)]
            run("finetune", source, text, "--lora", *settings, *tune)
            compare(f"{family}-vocabulary-{kind}", source, os.path.join(out, "adapter"), tmp)
        # Modules that are trained whole: PEFT must find all of them. In qwen2 embedding and LM head are one tensor.
        modules = ["embed_tokens"] if family == "qwen2" else ["lm_head", "embed_tokens", "norm"]
        out = os.path.join(tmp, family + "-modules")
        run("finetune", source, text, "--lora", "--set", f"lora.modules_to_save={json.dumps(modules)}", "--set",
            f"output.dir={out}", *tune)
        compare(family + "-modules", source, os.path.join(out, "adapter"), tmp)
        for name, settings in WRITTEN[family].items():
            torch.manual_seed(2)
            model = peft.get_peft_model(base(source), peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, **settings))
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data += 0.1 * torch.randn_like(parameter)
            written = os.path.join(tmp, f"{family}-{name}")
            model.save_pretrained(written)
            compare(f"{family}-{name}", source, written, tmp)
        # An adapter that PEFT wrote, trained further and read back.
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], use_dora=True,
                                 task_type="CAUSAL_LM")
        written = os.path.join(tmp, family + "-written")
        model = peft.get_peft_model(base(source), config)
        model.save_pretrained(written)
        out = os.path.join(tmp, family + "-further")
        run("finetune", source, text, "--adapter", written, "--set", f"output.dir={out}", *tune)
        compare(family + "-further", source, os.path.join(out, "adapter"), tmp)
print(f"adapters load in PEFT {peft.__version__} (transformers {transformers.__version__}, torch {torch.__version__})")
