#!/usr/bin/env bash
# Byte pair tokenizers learn from text, pack it, train models and write text.
# label: more
. "$(dirname "$0")/harness.sh"

for i in $(seq 60); do echo "The quick brown fox $i jumps over the lazy dog; it's naïve — don't!"; done >corpus.txt
printf 'another text, which says that the dog is lazy<|endoftext|>the fox\n' >more.txt

check "a vocabulary is learnt, the same each time"
succeeds tokenizer train --vocabulary 304 --out one corpus.txt more.txt
expect_out '304 tokens: 256 bytes, 47 merges'; expect_file one/vocab.json; expect_file one/merges.txt
run tokenizer train --vocabulary 304 --out two corpus.txt more.txt
expect_same one/vocab.json two/vocab.json; expect_same one/merges.txt two/merges.txt
expect python3 -c 'import json; v = json.load(open("one/vocab.json")); assert sorted(v.values()) == list(range(304)) and v["<|endoftext|>"] == 303'
check "what is there is replaced only on demand"
fails 2 'one/vocab.json exists; --force' tokenizer train --vocabulary 300 --out one corpus.txt
succeeds tokenizer train --vocabulary 290 --out two --force corpus.txt
check "more tokens than the text has pairs"
succeeds tokenizer train --vocabulary 5000 --out small more.txt
expect_err 'warning: 5,000 tokens were asked for'
check "options that make no sense"
fails 2 'vocabulary is missing or too small' tokenizer train --out x corpus.txt
fails 2 '--text is missing' tokenizer train --vocabulary 300 --out x
fails 1 'nowhere\.txt' tokenizer train --vocabulary 300 --out x nowhere.txt
fails 2 '--tokenizer-files is missing' pack --x corpus.txt --tokenizer bpe --out x
fails 2 '--tokenizer-files has an effect only with --tokenizer bpe' pack --x corpus.txt --tokenizer word --tokenizer-files one --out x

check "a corpus carries its tokenizer"
succeeds pack --x corpus.txt,more.txt --tokenizer bpe --tokenizer-files one --out text --validation 0.1
expect_out 'tokens \(bpe\); vocabulary of 304'
mv one elsewhere
succeeds info text/train
expect_out 'vocabulary  304 of kind bpe, 2 bytes stored per token'; expect_out 'begins      The quick brown fox 1 '
expect_out "added       token 303 is '<.endoftext.>'"
succeeds pack --x more.txt --vocabulary-from text --out again
expect_out 'vocabulary of 304'
check "several texts without --x; tokenizer.json itself"
succeeds pack corpus.txt more.txt --vocabulary-from text --out both
expect_out 'text corpus.txt more.txt'
cp more.txt 'b,c.txt'
succeeds pack corpus.txt b,c.txt --vocabulary-from text --out commas
fails 2 'corpus.txt and ids.npy: their names do not tell the same format' pack corpus.txt ids.npy --vocabulary-from text --out no
check "a corpus of another tokenizer is no validation of this one"
run pack --x corpus.txt --tokenizer bpe --tokenizer-files two --out other
fails 2 'another vocabulary' train --data text/train --validation other --model gpt --context 8 --layers 1 --heads 2 --width 16 --steps 1 --run no

check "a model is trained on it and writes with it, on one rank as on two the same"
succeeds -n 2 train --data text --model gpt --context 16 --layers 1 --heads 2 --width 16 --global-batch 4 --steps 30 --run run
succeeds generate run --prompt "The quick" --tokens 20 --top-p 0.9 --seed 5
expect_out '^The quick'; cp out first
run generate run --prompt "The quick" --tokens 20 --top-p 0.9 --seed 5
expect_same out first
check "several texts"
succeeds generate run --prompt "The quick" --tokens 20 --top-p 0.9 --seed 5 --samples 2
expect_out '^--- 1 of 2 ---'; expect_out '^--- 2 of 2 ---'
check "a text ends before the stop text"
succeeds generate run --prompt "The" --tokens 200 --top-k 0 --seed 5 --stop "o"
expect_no_out '^The.*o'
check "the tokenizer of another model"
fails 2 'has its own vocabulary' generate run --prompt "The" --tokenizer-files two
check "tokens made elsewhere need their tokenizer"
python3 -c 'import sys, struct; sys.stdout.buffer.write(struct.pack("<3000H", *[i * 7 % 303 for i in range(3000)]))' >ids.bin
must_run pack --x ids.bin --format tokens --vocabulary 304 --out ids
must_run train --data ids --model gpt --context 8 --layers 1 --heads 2 --width 16 --steps 2 --batch 2 --run ids-run
fails 2 'made elsewhere.*--tokenizer-files' generate ids-run --prompt "The"
succeeds generate ids-run --prompt "The" --tokens 5 --tokenizer-files elsewhere
expect_out '^The'
must_run tokenizer train --vocabulary 306 --out large corpus.txt more.txt
fails 2 "large has 306 tokens, .* knows 304" generate ids-run --prompt "The" --tokenizer-files large

check "tokens in HDF5 are packed with the vocabulary that the files do not tell"
python3 - <<'END' || exit 1
import h5py, numpy as np
ids = np.arange(3000) * 7 % 303
with h5py.File("ids.h5", "w") as f: f["tokens"], f["other"], f["rows"] = ids, ids[::-1].astype("u2"), ids.reshape(-1, 3)
END
must_run pack ids.h5 --format tokens --vocabulary 304 --validation 0.1 --out stored
must_run pack ids.bin --format tokens --vocabulary 304 --validation 0.1 --out flat
expect_same <(python3 -c 'import h5py; print(list(h5py.File("stored/train/shard-00000.h5")["tokens"][:]))') \
  <(python3 -c 'import h5py; print(list(h5py.File("flat/train/shard-00000.h5")["tokens"][:]))')
succeeds train stored --model gpt --context 8 --layers 1 --heads 2 --width 16 --steps 2 --batch 2 --run stored-run
must_run pack ids.h5 --format tokens --x-name other --vocabulary 304 --out other-stored
fails 1 "rows is no corpus of tokens" pack ids.h5 --format tokens --x-name rows --vocabulary 304 --out no
fails 1 "ids.h5: token 43 is 301, outside the vocabulary of 300" pack ids.h5 --format tokens --vocabulary 300 --out no

check "damaged files are refused with their place"
cp -r elsewhere bad; sed -i '5s/.*/broken/' bad/merges.txt
fails 1 'bad/merges\.txt: line 5 .*copy it again' pack --x corpus.txt --tokenizer bpe --tokenizer-files bad --out x
expect_no_file x
cp elsewhere/vocab.json bad/vocab.json; cp elsewhere/merges.txt bad; truncate -s 900 bad/vocab.json
fails 1 'bad/vocab\.json: it is no JSON: .*ends too early' pack --x corpus.txt --tokenizer bpe --tokenizer-files bad --out x
fails 1 'nowhere: holds no tokenizer' pack --x corpus.txt --tokenizer bpe --tokenizer-files nowhere --out x
