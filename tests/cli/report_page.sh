#!/usr/bin/env bash
# report and plot make a page and a picture of runs, with the numbers of their metrics.
. "$(dirname "$0")/harness.sh"
pack_small data/train
pack_small data/test --first 600
train=(train --data data --hidden 8 --batch 20 --epochs 2 --report-every 4 --progress off)
must_run "${train[@]}" --optimizer sgd --run runs/a
must_run "${train[@]}" --run runs/b --optimizer adam --learning-rate 0.01
values() { python3 "$tree/tests/cli/page_values.py" "$@"; }

check "a page of one run shows its records"
succeeds report runs/a --out a.html
expect_silence; expect_out '^a.html: 1 run$'
expect values a.html runs/a
sed 's/data-y="\([0-9]\)/data-y="9\1/' a.html >other.html
! values other.html runs/a 2>/dev/null || failed "the comparison sees no difference"
expect grep -q 'data: 600 samples in 3 files' a.html # the plan
for words in 'launched with 1 rank' 'ended: done' 'hidden = 8'; do expect grep -q "$words" a.html; done

check "several are compared and ranked, with what differs"
succeeds report runs --out both.html
expect_silence
expect_out '^1\. '; expect_out '--optimizer'; expect_no_out '--hidden'
expect values both.html runs/a runs/b

check "a run that goes on: the page knows its launches"
must_run train --config runs/a/config.ini --epochs 3 --resume --progress off
succeeds report runs/a --out a.html
expect values a.html runs/a
expect grep -q 'launched with 1 rank, going on' a.html
expect grep -q '<text[^>]*>restart</text>' a.html

check "the same pictures as SVG"
succeeds plot runs/a runs/b --svg both.svg
expect_silence; expect_out '^both.svg: [0-9]+ pictures of 2 runs$'
python3 - <<'PYTHON' || failed "the SVG"
import xml.etree.ElementTree as tree
words = [e.text for e in tree.parse("both.svg").iter("{http://www.w3.org/2000/svg}text")]
assert {"Validation loss", "Training accuracy", "Gradient norm", "Time in steps", "a", "b"} <= set(words), words
PYTHON
expect grep -q 'prefers-color-scheme: dark' both.svg

check "along epochs or time"
succeeds report runs/a --out epochs.html --along epoch
expect grep -q '<th scope="col">epoch</th>' epochs.html
succeeds report runs --out time.html --along time
expect grep -q '<th scope="col">time</th>' time.html
! grep -q '<th scope="col">step</th><th scope="col">loss' time.html || failed "a chart along steps"
fails 2 '--along' plot runs/a --svg time.svg --along day

check "on a telephone other pictures are shown, whose text is not shrunk"
python3 - <<'PYTHON' || failed "the narrow pictures"
import re
page = open("a.html").read()
narrow = re.findall(r'<div class="when-narrow"><svg[^>]*viewBox="0 0 (\d+) \d+"', page)
assert len(narrow) == page.count("<figure") and max(map(int, narrow)) <= 350, narrow
assert re.search(r"@media \(max-width:36rem\)\{\.when-wide\{display:none\}", page)
assert len(re.findall(r'id="([^"]+)"', page)) == len(set(re.findall(r'id="([^"]+)"', page))), "an id stands twice"
PYTHON

check "runs on other data, or of another metric, are not compared"
python3 - <<'PYTHON'
import h5py, numpy
random = numpy.random.default_rng(1)
with h5py.File("numbers.h5", "w") as f:
    f["x"] = random.normal(size=(80, 5)).astype("f4")
    f["y"] = random.normal(size=80).astype("f4")
PYTHON
must_run train --data numbers.h5 --validation 0.2 --hidden 8 --epochs 2 --progress off --run runs/numbers
must_run train --data data/train --validation 0.2 --hidden 8 --batch 20 --epochs 2 --progress off --run runs/share
succeeds report runs --out groups.html
expect_out '^accuracy on data/test:$'; expect_out '^accuracy on 20 % of data/train:$'
expect_out '^mean absolute error on 20 % of numbers.h5:$'
[ "$(grep -c '^1\. ' out)" = 3 ] || failed "not three rankings"
expect grep -q '3 groups: only runs with the same metric on the same data are compared' groups.html
cp -r data/test moved
must_run train --data data/train --validation moved --hidden 8 --batch 20 --epochs 2 --progress off --run runs/moved
succeeds report runs/a runs/moved --out moved.html
expect_out '^2\. '

check "what is no run"
fails 1 'data is no run folder: it holds no metrics.jsonl' report data --out c.html
expect_no_file c.html
fails 2 '--run is missing' plot
fails 1 'nowhere' report runs/a --out nowhere/c.html
