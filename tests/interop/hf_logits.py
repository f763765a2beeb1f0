#!/usr/bin/env python3
"""Trained models load in Hugging Face transformers and give the same logits, to 1e-4.

  hf_logits.py BUILD_DIR

Trains a few steps of each trainable family with BUILD_DIR/bin/trainhost, opens the model/ it wrote with transformers
in float32, and compares logits token by token with those of trainhost itself. The last model is one that transformers
wrote, in bf16 and in three files, with generation settings, and that `trainhost finetune` has trained further. Exit 77 (skipped, with the reason) where
torch or transformers is missing; `pip install torch transformers` provides them.
"""
import json, os, subprocess, sys, tempfile

try:
    import torch
    import transformers
except Exception as e:  # not installed, or not usable here
    print(f"skipped: torch and transformers are needed ({e})")
    sys.exit(77)

build = os.path.abspath(sys.argv[1])
BASE = dict(vocab_size=256, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=96, max_position_embeddings=256, hidden_act="silu", initializer_range=0.2)
LLAMA3 = dict(
    rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
CASES = {
    "llama": dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"], rms_norm_eps=1e-5),
    "llama-tied-bias-scaled": dict(
        BASE,
        model_type="llama",
        architectures=["LlamaForCausalLM"],
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        head_dim=32,
        rope_theta=500000.0,
        rope_scaling=LLAMA3,
    ),
    "llama-linear-rope": dict(
        BASE, model_type="llama", architectures=["LlamaForCausalLM"], rope_scaling=dict(rope_type="linear", factor=2.0)
    ),
    "mistral-window": dict(BASE, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=16),
    "qwen2": dict(
        BASE, model_type="qwen2", architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True, rms_norm_eps=1e-6
    ),
    "qwen3": dict(
        BASE,
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        head_dim=32,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    ),
}


def compare(name, model_dir, work):
    """The largest difference of logits between trainhost and transformers for 48 tokens."""
    torch.manual_seed(1)
    ids = torch.randint(0, 256, (1, 48))
    out = os.path.join(work, "logits.bin")
    subprocess.run(
        [f"{build}/tests/interop_dump_logits", model_dir, out] + [str(i) for i in ids[0].tolist()], check=True
    )
    ours = torch.frombuffer(bytearray(open(out, "rb").read()), dtype=torch.float32).view(48, -1)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, output_loading_info=True, attn_implementation="eager"
    )
    stored, model = model.dtype, model.float()
    bad = [k for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info[k]]
    assert not bad, f"{name}: {[(k, info[k]) for k in bad]}"
    with torch.no_grad():
        theirs = model(ids).logits[0].float()
    worst = (ours - theirs).abs().max().item()
    print(f"{name}: {type(model).__name__}, {stored}, largest logit {theirs.abs().max():.2f}, "
          f"largest difference {worst:.2e}")
    assert worst < 1e-4, f"{name}: logits differ by {worst}"
    return worst, model


def finetuned(tmp):
    """A folder of transformers, trained further by trainhost: the weights change, all else is kept."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                                      tie_word_embeddings=True, bos_token_id=5, eos_token_id=7)
    source = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    source.generation_config.update(do_sample=True, temperature=0.6, eos_token_id=[7, 9])
    folder, text = os.path.join(tmp, "source"), os.path.join(tmp, "text.txt")
    source.save_pretrained(folder, max_shard_size="100KB")
    assert len([f for f in os.listdir(folder) if f.endswith(".safetensors")]) == 3
    open(text, "w").write("The cat sat on the mat. " * 400)
    out = os.path.join(tmp, "finetuned")
    subprocess.run([f"{build}/bin/trainhost", "finetune", folder, text, "-q", "--set", "data.seq_len=64", "--set",
                    "data.tokenizer=bytes", "--set", "optimizer.lr=1e-3", "--set", f"output.dir={out}"], check=True)
    worst, model = compare("finetuned qwen2", os.path.join(out, "model"), tmp)
    kept = transformers.GenerationConfig.from_pretrained(os.path.join(out, "model"))
    assert kept.temperature == 0.6 and kept.eos_token_id == [7, 9], kept
    assert model.config.eos_token_id == 7 and model.config.bos_token_id == 5
    ids = torch.tensor([list(b"The cat sat on the mat. The cat sat on the mat. ")])
    with torch.no_grad():
        before, after = source.float()(ids, labels=ids).loss, model(ids, labels=ids).loss
    assert after < before - 1, f"loss {before} before, {after} after"
    return worst


with tempfile.TemporaryDirectory() as tmp:
    worst_of_all = finetuned(tmp)
    for name, config in CASES.items():
        d = os.path.join(tmp, name)
        os.makedirs(d)
        json.dump(config, open(os.path.join(d, "config.json"), "w"))
        open(os.path.join(d, "run.toml"), "w").write(
            '[model]\nconfig = "config.json"\n[data]\nseq_len = 64\n[train]\nmicro_batch = 2\nsteps = 5\n'
            '[optimizer]\nwarmup_steps = 1\n[output]\ndir = "out"\n'
        )
        subprocess.run([f"{build}/bin/trainhost", "train", os.path.join(d, "run.toml"), "-q"], check=True)
        worst_of_all = max(worst_of_all, compare(name, os.path.join(d, "out", "model"), d)[0])
print(
    f"{len(CASES) + 1} models load in transformers {transformers.__version__} (torch {torch.__version__}); "
    f"largest difference {worst_of_all:.2e}"
)
