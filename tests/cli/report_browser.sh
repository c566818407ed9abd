#!/usr/bin/env bash
# label: slow
# seconds: 300
# The page of `report` shows the numbers of metrics.jsonl in a browser (headless Chromium), with mouse and with
# keyboard.
. "$(dirname "$0")/harness.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip_all "there is no Chromium (apt-get install chromium)"
pack_small data/train
pack_small data/test --first 600
for rate in 0.1 0.01; do
  must_run train --data data --hidden 8 --batch 20 --epochs 3 --report-every 3 --optimizer sgd --learning-rate $rate --progress off --run runs/rate-$rate
done
values() { python3 "$tree/tests/cli/page_values.py" "$@"; }
# look PAGE OPTION...: prints the page as the browser renders it; it may read files alone.
look() {
  local page=$1
  shift
  timeout $((patience * 60)) "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/browser" \
    --host-resolver-rules='MAP * ~NOTFOUND' --virtual-time-budget=2000 "$@" "file://$work/$page" 2>browser.err
}

check "the browser shows the numbers of the records"
must_run report runs/rate-0.1 --out one.html
must_run report runs --out both.html
look one.html --dump-dom >one.dom && expect values one.dom runs/rate-0.1
look both.html --dump-dom >both.dom && expect values both.dom runs/rate-0.1 runs/rate-0.01

check "the arrow keys read the values of a chart"
last=$(metric runs/rate-0.1 train loss | tail -n 1)
sed 's#</body>#<script>const plot = document.querySelector("\#loss .plot"); plot.focus();'\
'plot.dispatchEvent(new KeyboardEvent("keydown", {key: "End"}));</script></body>#' one.html >keys.html
look keys.html --dump-dom >keys.dom
python3 - "$last" <<'PYTHON' || failed "what is read: $(grep -o 'class="read".*' keys.dom | head -n 1)"
import re, sys
step, loss = sys.argv[1].split()
read = re.search(r'class="read"[^>]*>(.*?)</div>', open("keys.dom").read(), re.S).group(1)
words = re.sub(r"<[^>]+>", " ", read)
assert f"step {step}" in words and f"{float(loss):.5g}" in words and "validation" in words, words
PYTHON

check "light and dark are different pictures, and neither is empty"
look one.html --window-size=1280,2400 --screenshot=light.png
look one.html --window-size=1280,2400 --screenshot=dark.png --blink-settings=preferredColorScheme=0
expect_file light.png; expect_file dark.png
! cmp -s light.png dark.png || failed "the page is the same in the dark"
