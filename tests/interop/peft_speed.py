#!/usr/bin/env python3
"""Speed and memory of LoRA fine-tuning beside PEFT, in turn on one machine; prints one line per run.

  peft_speed.py BUILD_DIR [ROUNDS]

A model in the shape of SmolLM-135M with random weights, adapters of rank 16 on every matrix of the layers, f32, AdamW,
2 x 2 sequences of 256 tokens per step; trainhost by BUILD_DIR/bin/trainhost, PEFT with torch in a process of its own with
as many threads as there are processors. The first step of each is not counted. Exit 77 where torch, transformers or peft
is missing. A measurement, not a test.
"""
import json, os, resource, subprocess, sys, tempfile, time

SEQUENCES, LENGTH, ACCUMULATED, STEPS = 2, 256, 2, 4


def peft_run(folder, text):
    import peft
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float()
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0)
    data = torch.tensor(list(open(text, "rb").read()))
    times = []
    for step in range(STEPS):
        start = time.time()
        for micro in range(ACCUMULATED):
            first = (step * ACCUMULATED + micro) * SEQUENCES * LENGTH
            ids = data[first : first + SEQUENCES * LENGTH].view(SEQUENCES, LENGTH)
            (model(input_ids=ids, labels=ids).loss / ACCUMULATED).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.time() - start)
    rate = (STEPS - 1) * ACCUMULATED * SEQUENCES * LENGTH / sum(times[1:])
    print(f"peft       {rate:7.1f} tokens/s, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")


def trainhost_run(build, folder, text, out):
    command = [f"{build}/bin/trainhost", "finetune", folder, text, "--lora", "--json", "-q", "--steps", str(STEPS)]
    for setting in ("data.tokenizer=bytes", f"data.seq_len={LENGTH}", f"train.micro_batch={SEQUENCES}",
                    f"train.grad_accum={ACCUMULATED}", "train.precision=fp32", f"output.dir={out}"):
        command += ["--set", setting]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    steps = [e for e in events if e["event"] == "step"][1:]
    memory = next(e["memory"] for e in events if e["event"] == "done")
    rate = 1e3 * sum(e["tokens"] for e in steps) / sum(e["ms"] for e in steps)
    print(f"trainhost  {rate:7.1f} tokens/s, peak {memory['process_peak_bytes'] >> 20} MiB, predicted "
          f"{memory['predicted_bytes']} bytes, measured {memory['measured_bytes']}", flush=True)


def main():
    try:
        import peft  # noqa: F401
        import torch
        import transformers
    except Exception as e:  # not installed, or not usable here
        print(f"skipped: torch, transformers and peft are needed ({e})")
        sys.exit(77)
    build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                      num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
                                      tie_word_embeddings=True)
    with tempfile.TemporaryDirectory() as tmp:
        folder, text = os.path.join(tmp, "smollm"), os.path.join(tmp, "text.txt")
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        open(text, "w").write("The quick brown fox jumps over the lazy dog. " * 2000)
        for i in range(rounds):
            trainhost_run(build, folder, text, os.path.join(tmp, f"out{i}"))
            subprocess.run([sys.executable, os.path.abspath(__file__), "--peft", folder, text], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peft"]:
        peft_run(*sys.argv[2:])
    else:
        main()
