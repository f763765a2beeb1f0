#!/usr/bin/env python3
"""Compares `trainhost eval` with log probabilities of transformers and the choices of lm-evaluation-harness.

  eval_scores.py BUILD_DIR        compare the program with transformers; exit 77 (skipped) where torch is missing
  eval_scores.py --write FOLDER   write the models, data and expected scores of tests/golden/eval

Small random models of three families, in float32: two with byte ids, one with a tokenizer.json that has a begin token.
Each window, document or choice is scored by one forward pass of transformers:
- text: windows of the perplexity page of transformers; every token but the first is scored once;
- records: the tokens of the completion and the end token;
- questions: lm-evaluation-harness's rules. White space at the end of the context belongs to the choice, both are
  encoded together and divided after the tokens of the context, and the first ids are dropped if the sequence is
  longer than the window. acc_norm divides by characters and acc_bytes by bytes of the choice.
tests/tools/trainhost/eval_test.cpp compares the program with the written scores.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import tokenizers
    import torch
    import transformers
except Exception as e:  # not installed, or not usable here
    print(f"skipped: torch, transformers and tokenizers are needed ({e})")
    sys.exit(77)

WINDOW, STRIDE = 48, 20
BASE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
            max_position_embeddings=256, initializer_range=0.6, pad_token_id=None)
TEXT = """A training step has three phases. The forward pass computes 12 layers, and the backward pass follows it.
Gradients are 4 bytes per element; there are two moments for each of them, and a master weight if the model is in bf16.
The optimizer updates the weights last. In German the word for memory is "Speicher", and the plural of "Gerät" is "Geräte".
"""
RECORDS = [
    {"prompt": "Translate to German: late\n", "completion": "spät"},
    {"prompt": "", "completion": "The forward pass computes the loss."},
    {"prompt": "How many moments are there for each gradient, when the optimizer is AdamW and the model is in bf16?", "completion": " two"},
]
QUESTIONS = [
    {"question": "The forward pass computes 12", "choices": ["layers", "moments", "bytes per step"], "answer": 0},
    {"query": "A training step has three", "choices": {"text": ["phases", "weights"], "label": ["A", "B"]}, "answerKey": "A"},
    {"ctx": "The plural of Gerät is ", "endings": ["Gerät", "a master weight", "Geräte"], "label": "2"},
    {"prompt": "Gradients are 4 bytes per element; there are two moments for each of them, and a master weight. The optimizer updates the",
     "choices": ["layers", "weights"], "gold": 1},
    {"question": "What follows?", "options": {"A": "the backward pass", "B": "the memory"}, "answer_idx": "B"},
]


def configs():
    return {
        "llama": transformers.LlamaConfig(**BASE, vocab_size=256, bos_token_id=None, eos_token_id=None),
        "qwen2": transformers.Qwen2Config(**BASE, vocab_size=320, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1),
        "qwen3": transformers.Qwen3Config(**BASE, vocab_size=256, head_dim=8, bos_token_id=None, eos_token_id=None),
    }


def make_tokenizer(folder):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=318, special_tokens=["<s>", "</s>"], initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    t.save(str(folder / "tokenizer.json"))
    with open(folder / "tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}, f)


class Scorer:
    """Log probabilities by transformers, in float32."""

    def __init__(self, folder):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                       attn_implementation="eager")
        has_tokenizer = (folder / "tokenizer.json").exists()
        # Not AutoTokenizer: for a qwen2 model, transformers 5 replaces the pre-tokenizer of tokenizer.json by Qwen2's.
        self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder) if has_tokenizer else None

    def encode(self, text):
        return self.tokenizer(text)["input_ids"] if self.tokenizer else list(text.encode())

    def log_probabilities(self, ids, first):
        """Of ids[first:], each given all ids before it."""
        with torch.no_grad():
            logits = self.model(torch.tensor([ids[:-1]])).logits[0].double()
        every = torch.log_softmax(logits, -1)
        return [float(every[i - 1, ids[i]]) for i in range(first, len(ids))]

    def text(self, text):
        ids, result, done = self.encode(text), [], 0
        for begin in range(0, len(ids), STRIDE):
            end = min(begin + WINDOW, len(ids))
            result.append(self.log_probabilities(ids[begin:end], max(done, 1) - begin))
            done = end
            if end == len(ids):
                return result

    def record(self, r):
        # Without text before it the first byte has nothing before it.
        first = len(self.encode(r["prompt"]))
        ids = self.encode(r["prompt"] + r["completion"])
        if self.tokenizer:
            # An id with text of both is counted.
            offsets = self.tokenizer(r["prompt"] + r["completion"], return_offsets_mapping=True)["offset_mapping"]
            first = next(i for i, (_, end) in enumerate(offsets) if end > len(r["prompt"]))
            ids.append(self.tokenizer.eos_token_id)
        return self.long_document(ids, max(first, 1))

    def long_document(self, ids, first):
        result, done = [], 0
        for begin in range(0, len(ids), STRIDE):
            end = min(begin + WINDOW, len(ids))
            if end > max(done, first):
                result += self.log_probabilities(ids[begin:end], max(done, first) - begin)
            done = end
            if end == len(ids):
                return result

    def question(self, context, choices):
        values = []
        for choice in choices:
            continuation = " " + choice
            stripped = context.rstrip()
            continuation, start = context[len(stripped):] + continuation, stripped
            ids = self.encode(start + continuation)
            scored = len(ids) - len(self.encode(start))
            ids = ids[-(WINDOW + 1):]
            values.append(sum(self.log_probabilities(ids, len(ids) - scored)))
        return values


def layout(q):
    """Context, choices and answer of the layouts above."""
    context = next(q[k] for k in ("question", "query", "ctx", "prompt") if k in q)
    choices = next(q[k] for k in ("choices", "endings", "options") if k in q)
    if isinstance(choices, dict):
        choices = choices["text"] if "text" in choices else list(choices.values())
    answer = next(q[k] for k in ("answerKey", "answer_idx", "answer", "label", "gold") if k in q)
    return context, choices, "AB".index(answer) if answer in ("A", "B") else int(answer)


def write(folder):
    (folder / "text.txt").write_text(TEXT)
    for name, lines in (("records", RECORDS), ("questions", QUESTIONS)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines))
    for name, config in configs().items():
        torch.manual_seed(len(name) + 3)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for p in model.parameters():
            if p.dim() == 1:  # norms other than one, biases other than zero
                p.data += torch.randn_like(p) * 0.2
        path = folder / name
        path.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(path)
        (path / "generation_config.json").unlink(missing_ok=True)  # contains only the version of transformers
        if config.vocab_size != 256:
            make_tokenizer(path)
        scorer = Scorer(path)
        questions, right = [], []
        for q in QUESTIONS:
            context, choices, answer = layout(q)
            values = np.array(scorer.question(context, choices))
            chosen = [int(np.argmax(values / np.array(n, dtype=float))) for n in
                      ([1] * len(choices), [len(c) for c in choices], [len(c.encode()) for c in choices])]
            questions.append(dict(log_likelihoods=values.round(7).tolist(), answer=answer, chosen=chosen[0],
                                  chosen_norm=chosen[1], chosen_bytes=chosen[2]))
            right.append([c == answer for c in chosen])
        right = np.array(right, dtype=float)
        expected = dict(window=WINDOW, stride=STRIDE, text=[np.round(w, 7).tolist() for w in scorer.text(TEXT)],
                        records=[np.round(scorer.record(r), 7).tolist() for r in RECORDS], questions=questions,
                        accuracy=right.mean(0).tolist(), accuracy_error=(right.std(0, ddof=1) / len(right) ** 0.5).tolist())
        (path / "expected.json").write_text(json.dumps(expected))


def compare(build, folder, name, *options):
    path, details = folder / name, folder / "details.jsonl"
    expected = json.loads((path / "expected.json").read_text())
    data = [folder / "text.txt", folder / "records.jsonl", folder / "questions.jsonl"]
    r = subprocess.run([build / "bin/trainhost", "eval", path, "--data", *data, "--backend=cpu", "-q", "--json",
                        f"--window={WINDOW}", f"--stride={STRIDE}", "--details", details, *options],
                       check=True, capture_output=True, text=True)
    results = [f["results"][0] for f in json.loads(r.stdout)["files"]]
    lines = [json.loads(line) for line in details.read_text().splitlines()]
    of = [[line for line in lines if line["file"] == str(d)] for d in data]
    worst = 0.0
    for got, want in [(of[0], expected["text"]), (of[1], expected["records"]),
                      (of[2], [q["log_likelihoods"] for q in expected["questions"]])]:
        assert len(got) == len(want), (name, len(got), len(want))
        for g, w in zip(got, want):
            values = g.get("log_probabilities", g.get("log_likelihoods"))
            assert len(values) == len(w), (name, g, w)
            worst = max(worst, float(np.abs(np.array(values) - np.array(w)).max()))
    for g, w in zip(of[2], expected["questions"]):
        assert all(g[k] == w[k] for k in ("answer", "chosen", "chosen_norm", "chosen_bytes")), (name, g, w)
    for key, value, error in zip(("accuracy", "accuracy_norm", "accuracy_bytes"), expected["accuracy"],
                                 expected["accuracy_error"]):
        assert abs(results[2][key]["value"] - value) < 1e-12 and abs(results[2][key]["error"] - error) < 1e-12
    loss = -sum(map(sum, expected["text"])) / sum(map(len, expected["text"]))
    assert abs(results[0]["loss"]["value"] - loss) < 1e-5, (results[0], loss)
    assert worst < 2e-4, (name, worst)
    print(f"{name} {' '.join(options)}: largest difference {worst:.1e} nats, the same choices")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write(pathlib.Path(sys.argv[2]))
    else:
        build = pathlib.Path(sys.argv[1]).resolve()
        with tempfile.TemporaryDirectory() as tmp:
            folder = pathlib.Path(tmp)
            write(folder)
            for name in configs():
                for options in (["--batch=1", "--threads=1"], ["--batch=5"]):
                    compare(build, folder, name, *options)
        print(f"the scores are those of transformers {transformers.__version__} (torch {torch.__version__})")
