#!/usr/bin/env python3
"""Token ids and decoded texts of trainhost are those of the Hugging Face `tokenizers` package.

  tokenizers_test.py BUILD_DIR [--texts N] [--kind NAME] [--keep DIR] [--speed] [--shared DIR]
  tokenizers_test.py --fixture FILE

Trains a small tokenizer of each kind (the configurations of GPT-2, Llama 3, Qwen, SmolLM, Mistral, Gemma, T5, ...) on
generated text, writes random Unicode strings, and compares ids of the whole text, of the text in short pieces, with
special tokens, and the decoded text. Tokenizers in --shared [../shared/data] are compared too where they are present.
--speed prints MB per second of CPU time of both on English text. --fixture writes the small tokenizers and expected
ids that tests/core/tokenizer/json_test.cpp reads. Exit 77 (skipped, with the reason) where the package is missing.
"""
import argparse, base64, glob, json, os, random, struct, subprocess, sys, tempfile, time, unicodedata

try:
    import tokenizers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except Exception as e:
    print(f"skipped: the package tokenizers is needed ({e})")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so up said what its about
than into them can only other time new some could these two may first then do any like my now over such our man me even
most made after also did many off before must well back through years much where your way down should because long each
just state those people too mister little world good make very year still see work life get here between both being
under three never know same last another while us great go against don't can't it's I'll we've they're You'd""".split()


def english(rng, words):
    out = []
    for _ in range(words):
        w = rng.choice(WORDS)
        if rng.random() < 0.1:
            w = w.capitalize()
        if rng.random() < 0.05:
            w = str(rng.randrange(10 ** rng.randrange(1, 7)))
        out.append(w + rng.choice([" "] * 12 + [", ", ". ", ".\n", "\n\n", "  ", "; ", " (", ") "]))
    return "".join(out)


# One short text in each of several languages, and code: written for this test.
LANGUAGES = [
    "The quick brown fox didn't jump over 12,345 lazy dogs; it's 3.14159 o'clock, isn't it?",
    "Größere Straßenbahnen fahren übermorgen über die Brücke – „vielleicht“ sogar zweimal.",
    "L'été dernier, les élèves français ont mangé des crêpes à l'œuf près de la forêt.",
    "El niño pequeño corrió rápidamente hacia el árbol. ¿Quién lo vio? ¡Nadie!",
    "A menina não sabia que o avião já tinha saído às três horas da manhã.",
    "Сегодня утром мы долго гуляли по берегу реки и видели семь лодок.",
    "Σήμερα ο καιρός είναι πολύ καλός και πηγαίνουμε στη θάλασσα.",
    "今日は天気がとても良いので、友達と一緒に公園へ行きました。",
    "今天早上我和朋友一起去公园散步，看到了三只小鸟。",
    "오늘은 날씨가 매우 좋아서 친구와 함께 공원에 갔습니다.",
    "الطقس جميل اليوم وسنذهب إلى الحديقة بعد الظهر إن شاء الله.",
    "היום מזג האוויר יפה מאוד ואנחנו הולכים לים.",
    "आज मौसम बहुत अच्छा है और हम बगीचे में घूमने जाएँगे।",
    "আজ আবহাওয়া খুব ভালো এবং আমরা নদীর ধারে যাব।",
    "இன்று வானிலை மிகவும் நன்றாக உள்ளது, நாங்கள் கடற்கரைக்குச் செல்கிறோம்.",
    "วันนี้อากาศดีมากและเราจะไปเดินเล่นในสวนสาธารณะ",
    "Hôm nay thời tiết rất đẹp, chúng tôi sẽ đi dạo trong công viên.",
    "Bugün hava çok güzel, İstanbul'da deniz kıyısında yürüyeceğiz.",
    "Dzisiaj pogoda jest bardzo ładna, więc pójdziemy na spacer nad jezioro.",
    "ዛሬ አየሩ በጣም ጥሩ ነው።  ქართული ენა  Հայերեն լեզու",
    "def f(x):\n    if x > 0x1F:\n\t\treturn {'a': [1, 2.5e-3], \"b\": x ** 2}  # comment\r\n    return None\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; }   //   spaces\n\n\n\t}",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumb, 🇩🇪🇫🇷 flags, ❤️ heart, keycap 1️⃣",
    "e\u0301 o\u0308 A\u030a \u1e9b\u0323 ﬁ ﬀ ² ³ ½ Ⅷ ㎏ ｱ Ａ １２３ … \u00a0nbsp\u3000wide\u200bzero\ufeffbom",
    "<s> </s> <unk> <0x41> <|endoftext|> <|im_start|>user\nhi<|im_end|>\n[INST] x [/INST] ▁under ▁▁ Ġ Ċ",
    "\x00\x01\x02 \x07 \x0b\x0c \x1b[31m \x7f \x85 \u2028 \u2029 \u180e \ue000",
    "",
    " ",
    "  ",
    "\n",
    "a",
    " a",
    "a ",
    "IT'S THEY'RE we'LL ſ's 'S K's",
]

RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58A), (0x590, 0x5FF),
    (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x22FF), (0x2460, 0x24FF),
    (0x2580, 0x27BF), (0x3000, 0x30FF), (0x3300, 0x33FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFB00, 0xFDFF), (0xFE00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x20000, 0x2A6DF),
]


def characters(rng, lo, hi):
    """One assigned character: the versions of Unicode differ only in what was assigned later. The package's
    Punctuation and StripAccents have tables of Unicode 8 and 9, without U+09FD and U+09FE."""
    while True:
        c = chr(rng.randrange(lo, hi + 1))
        if unicodedata.category(c) not in ("Cn", "Cs") and c not in "\u09fd\u09fe":
            return c


def random_text(rng):
    out = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(12)
        if kind == 0:
            out.append(rng.choice([" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "▁"]) * rng.randrange(1, 6))
        elif kind == 1:
            out.append("".join(rng.choice("0123456789٣५Ⅳ²½") for _ in range(rng.randrange(1, 9))))
        elif kind == 2:
            out.append("".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~…—«»") for _ in range(rng.randrange(1, 6))))
        elif kind == 3:
            out.append(rng.choice(["'s", "'T", "'re", "'VE", "'m", "'ll", "'d", "ſ", "<s>", "</s>", "<|im_end|>", "<|x|>"]))
        elif kind == 4:
            out.append(rng.choice(LANGUAGES)[rng.randrange(20):][: rng.randrange(1, 30)])
        elif kind == 5:
            out.append("\u200d".join(characters(rng, 0x1F300, 0x1F64F) for _ in range(rng.randrange(1, 4))))
        elif kind == 6:
            out.append(rng.choice("aeounAOC가か") + "".join(characters(rng, 0x300, 0x36F) for _ in range(rng.randrange(1, 4))))
        elif kind == 7:
            out.append(chr(rng.choice([*range(0, 32), 127, 0x85, 0xAD, 0x200B, 0x200D, 0xFEFF, 0xFFFD, 0x180E])))
        elif kind == 8:
            out.append(english(rng, rng.randrange(1, 6)))
        else:
            lo, hi = rng.choice(RANGES)
            out.append("".join(characters(rng, lo, hi) for _ in range(rng.randrange(1, 7))))
    return "".join(out)


def corpus(rng, size):
    texts = [english(rng, 60) for _ in range(size)]
    texts += [t for t in LANGUAGES for _ in range(3)]
    texts += [random_text(rng) for _ in range(size // 2)]
    return texts


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def template(before, after, ids):
    single = [*before, "$A", *after]
    names = [*before, *after]
    return processors.TemplateProcessing(single=" ".join(single), special_tokens=[(n, ids(n)) for n in names])


class Builder:
    """The tokenizers of all kinds, trained on the same texts."""

    def __init__(self, texts, vocab):
        self.texts, self.vocab = texts, vocab

    def bpe(self, pre, normalizer=None, special=(), add=(), **options):
        t = Tokenizer(models.BPE(**options))
        t.pre_tokenizer = pre
        if normalizer:
            t.normalizer = normalizer
        t.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=list(special)
        )
        t.train_from_iterator(self.texts, trainer)
        t.add_tokens(list(add))
        return t

    def byte_level(self, *before, **options):
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not before or options.pop("regex", False))
        return pre_tokenizers.Sequence([*before, last]) if before else last

    def split(self, regex):
        return self.byte_level(pre_tokenizers.Split(Regex(regex), "isolated"))

    def gpt2(self):
        return self.bpe(self.byte_level(), special=["<|endoftext|>"])

    def gpt2_prefix_space(self):
        t = self.bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "</s>"])
        t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
        t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
        return t

    def llama3(self):
        t = self.bpe(self.split(LLAMA3), special=["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True)
        t.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), template(["<|begin_of_text|>"], [], t.token_to_id)]
        )
        return t

    def qwen(self):
        t = self.bpe(self.split(QWEN), normalizer=normalizers.NFC(), special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
        t.add_tokens([AddedToken("<think>", normalized=False, special=False), AddedToken("<tool_call>", special=False)])
        return t

    def o200k(self):
        return self.bpe(self.split(O200K), special=["<|endoftext|>"])

    def smollm(self):
        pre = self.byte_level(pre_tokenizers.Digits(individual_digits=True), regex=True)
        return self.bpe(pre, special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])

    def olmo(self):
        spaces = [AddedToken(" " * n, normalized=True, special=False) for n in range(24, 1, -1)]
        return self.bpe(self.byte_level(), normalizer=normalizers.NFC(), special=["<|endoftext|>"], add=spaces)

    def falcon(self):
        pre = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        )
        return self.bpe(pre, special=["<|endoftext|>"])

    def deepseek(self):
        pre = self.byte_level(
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
            pre_tokenizers.Split(
                Regex(
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
                    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                ),
                "isolated",
            ),
        )
        return self.bpe(pre, special=["<|endoftext|>"])

    def metaspace_bpe(self, special=("<unk>", "<s>", "</s>"), byte_fallback=True, pattern=" ", **options):
        """Trained with words that are split, as SentencePiece trains; used as the model's tokenizer.json is."""
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback, **options))
        t.normalizer = normalizers.Replace(pattern, "▁")
        t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        fallback = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab + 256, show_progress=False, special_tokens=[*special, *fallback, "▁▁", "▁▁▁▁"],
            limit_alphabet=300,
        )
        t.train_from_iterator(self.texts, trainer)
        j = json.loads(t.to_str())
        keep = set(special)
        j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in keep]
        j["model"]["merges"] += [["▁", "▁"], ["▁▁", "▁▁"]]
        return Tokenizer.from_str(json.dumps(j))

    LLAMA_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]

    def llama2(self):
        t = self.metaspace_bpe()
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        j = json.loads(t.to_str())
        j["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(j))
        t.decoder = decoders.Sequence(self.LLAMA_DECODER)
        t.post_processor = template(["<s>"], [], t.token_to_id)
        return t

    def mistral(self):
        t = self.metaspace_bpe()
        j = json.loads(t.to_str())
        j["normalizer"] = None
        j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
        t = Tokenizer.from_str(json.dumps(j))
        t.decoder = decoders.Sequence(self.LLAMA_DECODER)
        t.post_processor = template(["<s>"], ["</s>"], t.token_to_id)
        return t

    def gemma(self):
        t = self.metaspace_bpe(special=("<pad>", "<eos>", "<bos>", "<unk>"))
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        t.post_processor = template(["<bos>"], [], t.token_to_id)
        return t

    def bpe_unknown(self):
        t = self.metaspace_bpe(byte_fallback=False)
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
        t.decoder = decoders.Metaspace()
        t.add_tokens([AddedToken("world", single_word=True), AddedToken("Hello", lstrip=True, rstrip=True)])
        return t

    def unigram(self, normalizer, pre, **options):
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizer
        t.pre_tokenizer = pre
        t.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=self.vocab, show_progress=False, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"]
        )
        # All characters of the texts must fit the vocabulary.
        known = set("".join([*self.texts[:50], *LANGUAGES[:6]]))
        t.train_from_iterator([x for x in self.texts if set(x) <= known], trainer)
        if options:
            j = json.loads(t.to_str())
            j["model"].update(options)
            if options.get("byte_fallback"):
                j["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
            t = Tokenizer.from_str(json.dumps(j))
        return t

    def t5(self):
        t = self.unigram(
            normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
        )
        t.post_processor = template([], ["</s>"], t.token_to_id)
        return t

    def albert(self):
        return self.unigram(
            normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]),
        )

    def unigram_bytes(self):
        return self.unigram(normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="first"), byte_fallback=True)

    def unigram_whole(self):
        return self.unigram(normalizers.NFC(), pre_tokenizers.Metaspace(prepend_scheme="never", split=False))

    def precompiled(self):
        """With the table nmt_nfkc of SentencePiece, from the package of that name."""
        try:
            import io, sentencepiece
        except ImportError:
            return None
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([english(random.Random(1), 50)] * 20), model_writer=model, vocab_size=60,
            normalization_rule_name="nmt_nfkc", hard_vocab_limit=False, minloglevel=2,
        )
        from sentencepiece import sentencepiece_model_pb2 as pb

        proto = pb.ModelProto.FromString(model.getvalue())
        table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
        t = self.unigram(normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="always"))
        j = json.loads(t.to_str())
        j["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
        return Tokenizer.from_str(json.dumps(j))


KINDS = ["gpt2", "gpt2_prefix_space", "llama3", "qwen", "o200k", "smollm", "olmo", "falcon", "deepseek", "llama2",
         "mistral", "gemma", "bpe_unknown", "t5", "albert", "unigram_bytes", "unigram_whole", "precompiled"]


def packed(texts):
    return b"".join(struct.pack("<I", len(b)) + b for b in (t.encode() for t in texts))


def ours(program, path, texts_file, mode=""):
    r = subprocess.run([program, path, texts_file, *([mode] if mode else [])], capture_output=True)
    if r.returncode:
        raise SystemExit(f"{path}: {r.stderr.decode()}")
    out, at, results = r.stdout, 0, []
    while at < len(out):
        (n,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{n}i", out, at + 4))
        at += 4 + 4 * n
        (n,) = struct.unpack_from("<I", out, at)
        results.append((ids, out[at + 4 : at + 4 + n]))
        at += 4 + n
    return results


def replaced(raw):
    return raw.decode("utf-8", "replace")


def compare(program, name, path, texts, folder):
    t = Tokenizer.from_file(path)
    t.no_truncation(), t.no_padding()
    file = os.path.join(folder, "texts.bin")
    open(file, "wb").write(packed(texts))
    wrong = 0
    for mode, as_text in (("", True), ("special", False), ("pieces", True)):
        t.encode_special_tokens = as_text
        for text, (ids, raw) in zip(texts, ours(program, path, file, mode)):
            expected = t.encode(text, add_special_tokens=False).ids
            decoded = t.decode(ids, skip_special_tokens=False)
            # The package replaces each byte of a run of byte tokens that is not UTF-8.
            if ids == expected and (replaced(raw) == decoded or "\ufffd" in decoded):
                continue
            wrong += 1
            if wrong <= 3:
                print(f"{name} {mode}: {text!r}\n  expected {expected}\n  found    {ids}\n  {decoded!r}\n  {replaced(raw)!r}")
    print(f"{name:20} {'differs in ' + str(wrong) if wrong else 'equal'} ({len(texts)} texts, 3 modes)", flush=True)
    return wrong


def speed(program, name, path, folder, shared):
    text = open(os.path.join(shared, "corpus/tinyshakespeare.txt"), encoding="utf-8").read() * 5
    file = os.path.join(folder, "speed.bin")
    parts = [text[i : i + 100_000] for i in range(0, len(text), 100_000)]
    open(file, "wb").write(packed(parts))
    t = Tokenizer.from_file(path)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    start = time.process_time()
    for p in parts:
        t.encode(p)
    theirs = len(text.encode()) / 1e6 / (time.process_time() - start)
    mine = subprocess.run([program, path, file, "time"], capture_output=True, text=True).stdout.strip()
    print(f"{name:20} {mine}; tokenizers {theirs:.1f} MB/s", flush=True)


def fixture(path):
    rng = random.Random(7)
    texts = corpus(rng, 60)
    builder = Builder(texts, 420)
    samples = [t for t in LANGUAGES] + [random_text(rng) for _ in range(12)]
    kinds = {}
    for kind in FIXTURE_KINDS:
        # Read again, because reading rounds the scores of Unigram.
        t = Tokenizer.from_str(getattr(builder, kind)().to_str())
        entry = {"tokenizer": json.loads(t.to_str()), "ids": [], "special": []}
        t.encode_special_tokens = True
        entry["ids"] = [t.encode(s, add_special_tokens=False).ids for s in samples]
        t.encode_special_tokens = False
        found = {s: t.encode(s, add_special_tokens=False).ids for s in samples}
        entry["special"] = {str(i): found[s] for i, s in enumerate(samples) if found[s] != entry["ids"][i]}
        entry["around"] = t.encode("a").ids
        entry["decoded"] = [t.decode(i, skip_special_tokens=False) for i in entry["ids"]]
        kinds[kind] = entry
    dump = lambda v: json.dumps(v, ensure_ascii=True, separators=(",", ":"))
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'{{"made_by":"tests/interop/tokenizers_test.py --fixture, tokenizers {tokenizers.__version__}",\n')
        f.write(f'"texts":{dump(samples)},\n"kinds":{{\n')
        f.write(",\n".join(f"{dump(k)}:{dump(v)}" for k, v in kinds.items()) + "}}\n")


FIXTURE_KINDS = ["llama3", "qwen", "smollm", "olmo", "falcon", "llama2", "mistral", "gemma", "bpe_unknown", "t5", "unigram_bytes"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?")
    p.add_argument("--texts", type=int, default=600)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--kind", action="append")
    p.add_argument("--keep")
    p.add_argument("--speed", action="store_true")
    p.add_argument("--shared", default=os.path.join(HERE, "../../../shared/data"))
    p.add_argument("--fixture")
    a = p.parse_args()
    if a.fixture:
        return fixture(a.fixture)
    program = os.path.join(a.build, "tests/interop_encode_texts")
    rng = random.Random(a.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as tmp:
        folder = a.keep or tmp
        os.makedirs(folder, exist_ok=True)
        builder = Builder(corpus(random.Random(1), 1500), 1500)
        texts = LANGUAGES + [" ".join(LANGUAGES) * 3, english(rng, 3000)] + [random_text(rng) for _ in range(a.texts)]
        paths = {}
        for kind in a.kind or KINDS:
            path = os.path.join(folder, kind + ".json")
            if not os.path.exists(path):
                t = getattr(builder, kind)()
                if t is None:
                    print(f"{kind:20} skipped: no package sentencepiece")
                    continue
                t.save(path)
            paths[kind] = path
        if not a.kind:
            for path in sorted(glob.glob(os.path.join(a.shared, "tokenizers/*/tokenizer.json"))):
                paths[os.path.basename(os.path.dirname(path))] = path
        for kind, path in paths.items():
            wrong += compare(program, kind, path, texts, folder)
            if a.speed:
                speed(program, kind, path, folder, a.shared)
    sys.exit(1 if wrong else 0)


main()
