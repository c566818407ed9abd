#!/usr/bin/env bash
# import: no checkpoint is written that info and eval refuse, and weights that are no numbers are said.
# label: more
. "$(dirname "$0")/harness.sh"
pack_small data
pack_house house
must_run pack --format synthetic --samples 60 --features 4 --classes 2 --out small
must_run train --data data --hidden 8 --steps 4 --run runs/a --progress off
must_run train --data house --hidden 4 --steps 4 --run runs/house --progress off
must_run export runs/a --out a.safetensors
must_run export runs/house --out house.safetensors

# change FROM TO CODE: a safetensors file as FROM whose header (h), metadata (m), description of data (d) and bytes (b) CODE
# has changed.
cat >change.py <<'END'
import json, struct, sys
source, target, code = sys.argv[1:]
whole = open(source, "rb").read()
size = struct.unpack("<Q", whole[:8])[0]
h, b = json.loads(whole[8:8 + size]), bytearray(whole[8 + size:])
m = h["__metadata__"]
d = json.loads(m["lockstep_data"])
exec(code)
if m.get("lockstep_data"):
    m["lockstep_data"] = d if isinstance(d, str) else json.dumps(d)
header = json.dumps(h).encode()
open(target, "wb").write(struct.pack("<Q", len(header)) + header + bytes(b))
END
change() { python3 change.py "$@" || failed "the test's own change"; }

check "what was exported is read, and judged alike"
succeeds import a.safetensors --out a.h5; expect_silence
succeeds info a.h5
succeeds eval a.h5 --data data; tail -n 1 out | sed 's/.*: //' >imported
run eval runs/a --data data; tail -n 1 out | sed 's/.*: //' >trained; expect_same trained imported

check "a network over volumes with channels, too"
python3 - <<'END' || exit 1
import h5py, numpy as np
r = np.random.default_rng(1)
with h5py.File("volumes.h5", "w") as f: f["x"], f["y"] = r.normal(size=(20, 6, 6, 2, 3)).astype("f4"), r.integers(0, 2, 20)
END
cat >volumes.yaml <<'END'
name: volumes
inputs: {x: [any, any, any, any]}
network: [conv: {channels: 2, kernel: 2}, flatten, dense: $outputs]
END
must_run train volumes.h5 --x x --y y --model volumes.yaml --steps 2 --run runs/volumes --progress off
must_run export runs/volumes --out volumes.safetensors
succeeds import volumes.safetensors --out imported.h5
must_run export imported.h5 --out again.safetensors
expect_same volumes.safetensors again.safetensors

check "weights that are not finite are not imported"
for value in nan inf -inf; do
  change a.safetensors spoilt.safetensors "b[4:8] = struct.pack('<f', float('$value'))"
  fails 1 "spoilt.safetensors: 1 of 213 weights is not finite \(dense_1/bias has the first, $value\)" import spoilt.safetensors --out spoilt.h5
  expect_no_file spoilt.h5
done

# tests/io/fixtures/not_finite.h5: such a checkpoint, which a program wrote that did not look, of the same kind of data.
check "a checkpoint with such weights: export, predict and eval say it, and eval ends with it"
spoilt=$tree/tests/io/fixtures/not_finite.h5
said='not_finite.h5: 1 of 16 weights is not finite \(dense_1/bias has the first, nan\)'
succeeds export "$spoilt" --out exported.safetensors
expect_err "^warning: .*$said"
succeeds predict "$spoilt" --data small --out predictions.h5
expect_err "^warning: .*$said"
fails 1 "not_finite.h5: the loss on small is not finite: 1 of 16 weights is not finite" eval "$spoilt" --data small --json spoilt.json
expect_no_out 'accuracy'
[ ! -s spoilt.json ] || failed "a result is written"
fails 1 "the loss on small is not finite" -n 2 eval "$spoilt" --data small

# refused HOW [FROM]: with that change it is refused, in a sentence, and the file that was there stays.
refused() {
  change "${2:-a}.safetensors" changed.safetensors "$1"
  echo kept >kept.h5
  fails 1 'changed.safetensors: ' import changed.safetensors --out kept.h5 --force
  [ "$(cat kept.h5)" = kept ] || failed "written all the same: $1"
}
check "metadata that info or eval would refuse are refused"
refused "d = 'no JSON'"
refused "del d['labels']"
refused "d['labels'] = 'none such'"
refused "d['classes'] = 4"
refused "d['classes'], d['class_counts'] = 6, [1] * 6"
refused "d['class_names'] = ['only one']"
refused "d['class_counts'][0] = -1"
refused "d['sample']['shape'] = [21]"
refused "d['sample']['shape'] = []; d['sample']['type'] = 'float128'"
refused "d['feature_scale'] = {'mean': [0.0], 'deviation': [1.0]}"
refused "d['feature_scale']['deviation'][0] = 0.0" house
refused "d['target_scale']['mean'].append(1.0)" house
refused "d['target_means'] = [1.0, 2.0]" house
refused "del d['table']['columns'][0]" house
refused "m['lockstep_features'] = '19'"
refused "m['lockstep_tokens'] = '1'"
refused "m['lockstep_vocabulary'] = '{}'; m['lockstep_tokens'] = '1'"

check "a vocabulary that does not fit its network is refused"
"$python" -c 'print("to be or not to be " * 200)' >text.txt
must_run pack --format text --tokenizer char --x text.txt --out text
must_run train --data text --model gpt --layers 1 --width 8 --heads 1 --context 8 --steps 2 --run runs/text --progress off
must_run export runs/text --out text.safetensors
sed -i -e 's/^d = .*//' -e '/^if m.get/,+1d' change.py
refused "v = json.loads(m['lockstep_vocabulary']); v['texts'].append('X'); v['vocabulary'] += 1; m['lockstep_vocabulary'] = json.dumps(v)" text
refused "m['lockstep_data'] = m['lockstep_data'].replace('sample', 'simple')" text
succeeds import text.safetensors --out text.h5
succeeds generate text.h5 --prompt to --tokens 2
