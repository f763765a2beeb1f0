#!/usr/bin/env python3
"""Speed and memory of LoRA fine-tuning on chats beside PEFT, in turn on one machine.

  peft_speed.py BUILD_DIR [ROUNDS [STEPS [THREADS]]]

A model in the shape of SmolLM-135M with random weights; 1,000 generated chats in JSONL; a byte-level BPE tokenizer that
is trained on them, with the chat template ChatML. Adapters of rank 16 on every matrix of the layers, f32, AdamW, 2 x 4
sequences per step. Both pad every chat to 256 tokens and read the same chats in the same order; the loss is of the
answers only, and its mean is over the counted tokens of a step. The losses of the first step must agree, so the tokens
and masks are the same. Tokens per second are tokens of chats, without padding; the first step of each is not counted.
trainhost by BUILD_DIR/bin/trainhost, PEFT with torch in a process of its own; THREADS of both: as many as there are
processors. Prints a line per run, then medians and ratios. On a machine with other work, one thread is compared more
fairly: several wait for each other, and the more often they meet, the longer. Exit 77 where torch, transformers, peft
or tokenizers is missing. A measurement, not a test.
"""
import json, os, random, resource, statistics, subprocess, sys, tempfile, time

CHATS, SEQUENCES, LENGTH, ACCUMULATED = 1000, 2, 256, 4
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_chats():
    """Conversations of one to three questions whose answers list properties of things."""
    draw = random.Random(16)
    things = ["kettle", "bridge", "harbour", "lantern", "orchard", "engine", "violin", "glacier", "market", "compass"]
    verbs = ["measure", "repair", "describe", "compare", "paint", "move", "clean", "build", "sell", "open"]
    words = ["small", "old", "heavy", "bright", "round", "quiet", "cold", "green", "narrow", "early", "wooden", "deep"]
    chats = []
    for _ in range(CHATS):
        messages = []
        for _ in range(draw.randint(1, 3)):
            thing, verb = draw.choice(things), draw.choice(verbs)
            messages.append({"role": "user", "content": f"How do I {verb} a {draw.choice(words)} {thing}?"})
            steps = [f"{i + 1}. {draw.choice(verbs).capitalize()} the {draw.choice(words)} {draw.choice(things)} of "
                     f"{draw.randint(2, 99)} parts." for i in range(draw.randint(2, 4))]
            messages.append({"role": "assistant", "content": f"To {verb} the {thing}:\n" + "\n".join(steps)})
        chats.append({"messages": messages})
    return chats


def write_model(folder, chats):
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                      num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
                                      tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=49152, special_tokens=SPECIAL, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator((m["content"] for c in chats for m in c["messages"]), trainer)
    bpe.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE},
                  out)


def encode(tokenizer, chat):
    """Token ids of a chat, and for each id whether it is counted in the loss."""
    ids, counted = [], []
    for m in chat["messages"]:
        trained = m["role"] == "assistant"
        for text, in_loss in ((f"<|im_start|>{m['role']}\n", False), (m["content"] + "<|im_end|>", trained),
                              ("\n", False)):
            part = tokenizer.encode(text).ids
            ids += part
            counted += [in_loss] * len(part)
    return ids, counted


def peft_run(folder, data, steps, threads):
    import peft
    import tokenizers
    import torch
    import transformers

    torch.set_num_threads(threads)
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4, weight_decay=0)
    chats = [encode(tokenizer, json.loads(line)) for line in open(data)]
    times, tokens, losses = [], [], []
    for step in range(steps):
        start = time.time()
        batch = chats[step * ACCUMULATED * SEQUENCES :][: ACCUMULATED * SEQUENCES]
        ids = torch.zeros(len(batch), LENGTH, dtype=torch.long)
        labels = torch.full((len(batch), LENGTH), -100)
        mask = torch.zeros(len(batch), LENGTH, dtype=torch.long)
        for i, (row, counted) in enumerate(batch):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
            labels[i, : len(row)] = torch.tensor([t if c else -100 for t, c in zip(row, counted)])
        total, loss = (labels[:, 1:] != -100).sum(), 0.0
        for i in range(0, len(batch), SEQUENCES):
            part = slice(i, i + SEQUENCES)
            out = model(input_ids=ids[part], attention_mask=mask[part], labels=labels[part], num_items_in_batch=total)
            out.loss.backward()
            loss += out.loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.time() - start)
        tokens.append(sum(len(row) for row, _ in batch))
        losses.append(loss)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": times, "tokens": tokens, "losses": losses, "peak": peak,
                      "lengths": [len(row) for row, _ in chats], "counted": sum(sum(c) for _, c in chats)}))


def result_of(name, seconds, tokens, losses, peak):
    """Rate of the steps after the first; `tokens` are those of chats in each step."""
    rate = sum(tokens[1:]) / sum(seconds[1:])
    print(f"{name:9}  {rate:7.1f} tokens/s, peak {peak >> 20} MiB, first loss {losses[0]:.4f}, load average "
          f"{os.getloadavg()[0]:.1f}", flush=True)
    return rate, peak, losses[0]


def trainhost_run(build, folder, data, out, steps, threads, tokens):
    command = [f"{build}/bin/trainhost", "finetune", folder, data, "--lora", "--json", "-q", "--steps", str(steps)]
    for setting in (f"data.seq_len={LENGTH}", "data.packing=false", "data.order=sequential",
                    f"train.micro_batch={SEQUENCES}", f"train.grad_accum={ACCUMULATED}", "train.precision=fp32",
                    f"train.threads={threads}", f"output.dir={out}"):
        command += ["--set", setting]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    done = [e for e in events if e["event"] == "step"]
    memory = next(e["memory"] for e in events if e["event"] == "done")
    if memory["predicted_bytes"] != memory["measured_bytes"]:
        sys.exit(f"predicted {memory['predicted_bytes']} bytes, measured {memory['measured_bytes']}")
    result = result_of("trainhost", [e["ms"] / 1e3 for e in done], tokens, [e["loss"] for e in done],
                       memory["process_peak_bytes"])
    return *result, memory["predicted_bytes"]


def main():
    try:
        import peft  # noqa: F401
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except Exception as e:  # not installed, or not usable here
        print(f"skipped: torch, transformers, peft and tokenizers are needed ({e})")
        sys.exit(77)
    build = os.path.abspath(sys.argv[1])
    rounds, steps, threads = (int(sys.argv[i]) if len(sys.argv) > i else default
                              for i, default in ((2, 3), (3, 4), (4, os.cpu_count())))
    with tempfile.TemporaryDirectory() as tmp:
        folder, data = os.path.join(tmp, "smollm"), os.path.join(tmp, "chat.jsonl")
        chats = make_chats()
        write_model(folder, chats)
        with open(data, "w") as out:
            out.writelines(json.dumps(c) + "\n" for c in chats)
        command = [f"{build}/bin/trainhost", "data", "stats", data, "--model", folder, "--json"]
        stats = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours, theirs = [], []
        for i in range(rounds):
            command = [sys.executable, os.path.abspath(__file__), "--peft", folder, data, str(steps), str(threads)]
            text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            r = json.loads(text.splitlines()[-1])
            if i == 0:
                print(f"{CHATS} chats of {min(r['lengths'])} to {max(r['lengths'])} tokens, {sum(r['lengths'])} in "
                      f"all, {r['counted']} of them in the loss; padded to {LENGTH}")
                same = (stats["tokens"], stats["counted"]) == (sum(r["lengths"]), r["counted"])
                if not same or max(r["lengths"]) > LENGTH + 1:
                    sys.exit(f"other tokens: trainhost counts {stats['tokens']}, {stats['counted']} in the loss")
            theirs.append(result_of("peft", r["seconds"], r["tokens"], r["losses"], r["peak"]))
            ours.append(trainhost_run(build, folder, data, os.path.join(tmp, f"out{i}"), steps, threads,
                                      r["tokens"]))
            if abs(ours[-1][2] - theirs[-1][2]) > 1e-3:
                sys.exit("the losses of the first step differ: other tokens or masks")
        rate, peak = (statistics.median(r[k] for r in ours) / statistics.median(r[k] for r in theirs) for k in (0, 1))
        each = ", ".join(f"{a[0] / b[0]:.2f}" for a, b in zip(ours, theirs))
        print(f"medians of {rounds} with {threads} threads: speed x {rate:.2f} (rounds: {each}), peak resident memory "
              f"x {peak:.2f}; predicted = measured, {ours[0][3]} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peft"]:
        peft_run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
