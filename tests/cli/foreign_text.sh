#!/usr/bin/env bash
# Names that others have chosen (of columns, classes, files, data sets, tensors, owners) reach no terminal and no log as
# they are: escapes, C1 controls, signs that turn text, ends of lines. Letters stay.
# label: more
. "$(dirname "$0")/harness.sh"
cat >make.py <<'END'
import h5py, json, numpy as np, os, struct, zlib
EVIL = "\x1b]0;owned\x07\u009b31m\u202eé"
r = np.random.default_rng(1)
with open("table.csv", "w") as f:
    f.write(f'a{EVIL},"b\nstep 1/1  loss 0",y\n')
    for i in range(120):
        f.write(f'{r.random()},{"uv"[i % 2]}{EVIL},{"c" if i % 3 else "d"}{EVIL}\n')
with h5py.File("foreign.h5", "w") as f:
    f["x" + EVIL] = r.random((60, 4), dtype=np.float32)
    f["y"] = r.integers(0, 3, 60).astype(np.int32)
    f["x" + EVIL].attrs["units"] = "m" + EVIL
    f["x" + EVIL].attrs["valid_range"] = EVIL
os.makedirs("folder\x1b[31m\nX/sub")

def png(size):
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)),
              (b"IDAT", zlib.compress((b"\0" + bytes(range(size))) * size)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)

for name in "cat" + EVIL, "dog\nsecond line":
    os.makedirs("images/" + name)
    for i in range(4):
        open(f"images/{name}/{i}{EVIL}.png", "wb").write(png(6))
os.makedirs("broken/" + EVIL)
open(f"broken/{EVIL}/bad{EVIL}.png", "wb").write(b"\x89PNG\r\n\x1a\nnothing")

def safetensors(name, tensors):
    entries = {n: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]} for i, n in enumerate(tensors)}
    header = json.dumps({"__metadata__": {}, **entries}).encode()
    open(name, "wb").write(struct.pack("<Q", len(header)) + header + bytes(8 * len(tensors)))

safetensors("tensors.safetensors", ["w" + EVIL])
safetensors("wte.safetensors", ["wte.weight", "h.0." + EVIL])
open("settings.txt", "w").write(f"--hidden 4 --data nowhere{EVIL}\n")
open("text.txt", "w").write("\x1b]0;o\x07é€" * 300)
END
cat >commands.py <<'END'
import re, sys
for name in sys.argv[1:]:
    text = open(name, "rb").read().decode()
    text = re.sub("\r[^\r\n\x1b]*\x1b\\[K", "", text)  # the progress bar, which a slow machine shows
    found = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]", text)
    if found:
        sys.exit(f"{name}: {text[max(0, found.start() - 60):found.end() + 20]!r}")
    for line in text.splitlines():
        if line.startswith(("step 1/1  loss 0", "second line", "X/sub")):
            sys.exit(f"{name}: {line!r}")
END
python3 make.py || exit 1

# nothing_commands FILE...: a terminal that shows them does nothing else.
nothing_commands() {
  local found
  found=$(python3 commands.py "$@" 2>&1) || failed "this commands a terminal: $found"
}
# harmless COMMAND...: whatever comes of it.
harmless() {
  run "$@"
  expect_status '[012]'
  nothing_commands out err
}

check "tables: their columns, categories and classes"
harmless info table.csv; expect_status 0; expect_out 'a\\x1B\]0;owned\\x07\\u009B31m\\u202Eé'; expect_out 'b\\nstep'
harmless pack --x table.csv --label-column y --validation 0.2 --out table; expect_status 0
harmless info table; expect_status 0; expect_out 'é'
harmless pack --x table.csv --label-column $'y\x1bz' --out elsewhere; expect_err 'y\\x1Bz'
harmless train --data table --hidden 4 --steps 4 --run runs/table --progress on; expect_status 0
harmless eval runs/table --report --json eval.json; expect_status 0; expect_out '^c\\x1B.*é'
harmless predict runs/table --out predictions.csv; expect_status 0
harmless info runs/table; expect_status 0
harmless info runs/table/checkpoints/latest; expect_status 0; expect_out 'é'
nothing_commands runs/table/log.txt
harmless report runs/table --out page.html; expect_status 0

check "HDF5: names and attributes of data sets"
harmless info foreign.h5
harmless train --data foreign.h5 --hidden 4 --steps 2 --run runs/hdf5 --progress off
harmless pack --x foreign.h5 --out packed
expect_err 'é'

check "pictures: names of folders and files"
harmless pack --format images --x images --out pictures; expect_status 0
harmless info pictures --verify; expect_status 0; expect_out 'dog\\nsecond line'
harmless train --data pictures --model mlp --hidden 4 --steps 2 --run runs/pictures --progress off; expect_status 0
harmless eval runs/pictures --data pictures --report; expect_status 0
harmless predict runs/pictures --data images --out pictures.csv; expect_status 0
harmless pack --format images --x broken --out elsewhere; expect_status 1; expect_err 'bad\\x1B'

check "tensors, settings, folders, words of the command line"
harmless import tensors.safetensors --out imported.h5; expect_status 1
harmless import wte.safetensors --out imported.h5; expect_status 1; expect_err 'h\.0\.\\x1B'
harmless sweep settings.txt --run runs/sweep
harmless info $'folder\x1b[31m\nX'; expect_status 1; expect_err 'folder\\x1B\[31m\\nX'
harmless train --data $'folder\x1b[31m\nX' --run runs/none
harmless $'comm\x1band'; expect_status 2; expect_err 'comm\\x1Band'
harmless train --data table --hidden $'4\x1b[0m'; expect_status 2; expect_err '4\\x1B'

check "two ranks say it in one line"
harmless -n 2 train --data foreign.h5 --x $'no\x1b[31m\nsuch' --run runs/two; expect_status "[12]"
expect_err 'no\\x1B\[31m\\nsuch'

check "owners, options and records of a run"
printf 'host a\x1b]0;owned\x07\npid 1\nsince \xc2\x9b31m\ntoken x\n' >runs/table/owner
printf '{"kind":"end","step":9,"how":"\\u001b]0;owned\\u0007\\u009b"}\n' >>runs/table/metrics.jsonl
harmless info runs/table; expect_out 'host a\\x1B'; expect_out 'how \\x1B'
harmless report runs/table --out page.html
printf '\x1b]0;o\x07 = 1\n' >>runs/table/config.ini
harmless info runs/table; harmless report runs/table --out page.html; harmless check --run runs/table
harmless train --config runs/table/config.ini --run runs/three

check "a host's name"
strange=(unshare --map-root-user --uts sh -c 'printf "a\033]0;b" >/proc/sys/kernel/hostname && exec "$@"' sh)
if "${strange[@]}" true 2>/dev/null; then
  "${strange[@]}" "$lockstep" bench all-reduce --max 4 --repeat 1 --json host.json >out 2>err
  status=$?
  expect_status 0; nothing_commands out; nothing_commands err
  expect grep -q '"host": *"a?]0;b"' host.json
else
  echo "not run: no host name can be set here"
fi

check "a model's own text: as it is for programs, visible on a terminal"
must_run pack --format text --tokenizer byte --x text.txt --out text
must_run train --data text --model gpt --layers 1 --width 16 --heads 1 --context 16 --steps 60 --batch 16 --run runs/text \
  --progress off
generate=(generate runs/text --prompt $'\x1b]0;' --tokens 60 --seed 1)
succeeds "${generate[@]}"
grep -q $'\x1b' out || failed "programs do not get the text itself"
on_terminal 80 "$lockstep" "${generate[@]}"
nothing_commands out
expect_out '^\\x1B\]0;'
