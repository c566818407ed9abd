#!/usr/bin/env bash
# pack reads tables as pandas does: numbers, categories, means, labels, and a second table after the first one.
# label: slow
# seconds: 120
. "$(dirname "$0")/harness.sh"
peer=$(peer_python pandas h5py) || skip_all "no Python here has pandas and h5py (PEER_PYTHONS: others to try)"

cat >tables.py <<'END'
import sys
import numpy as np, pandas as pd
style = dict(sep=";", decimal=",") if sys.argv[1] == "german" else {}
words = ["red", "blue; dark", "green \"light\"", "ÄÖ", "-", "a,b", "zebra", "Zebra", "10th"]
for name, seed, rows, known in ("first", 1, 400, 9), ("second", 2, 150, 6):
    r = np.random.default_rng(seed)
    table = pd.DataFrame({
        "word": r.choice(words[:known], rows), "size [cm]": r.normal(100, 30, rows), "count": r.integers(-5, 100000, rows),
        "tiny": r.normal(0, 1e-12, rows), "flag": r.choice([True, False], rows), "label": r.choice([1, 2, 10], rows)})
    table.loc[r.random(rows) < 0.1, "size [cm]"] = np.nan
    table.loc[r.random(rows) < 0.1, "word"] = np.nan
    if name == "second":
        table = table[["flag", "label", "tiny", "count", "word", "size [cm]"]]
        table["label"] = table["label"].astype(float)
    table.to_csv(name + ".csv", index=False, **style)
END
cat >compare.py <<'END'
import glob, json, sys
import h5py, numpy as np, pandas as pd
style = dict(sep=";", decimal=",") if sys.argv[1] == "german" else {}
first, second = (pd.read_csv(name + ".csv", **style) for name in ("first", "second"))
classes = sorted(first["label"].unique())
def encoded(table):
    parts = []
    for column in first.columns.drop("label"):
        kind = pd.api.types
        if kind.is_bool_dtype(first[column]) or not kind.is_numeric_dtype(first[column]):
            for category in sorted(str(c) for c in first[column].dropna().unique()):
                parts.append((table[column].dropna().astype(str).reindex(table.index) == category).to_numpy(np.float32))
        else:
            parts.append(table[column].fillna(first[column].mean()).to_numpy(np.float32))
    return np.stack(parts, 1), np.array([classes.index(label) for label in table["label"]])
def packed(folder):
    with h5py.File(glob.glob(folder + "/*.h5")[0]) as f: return f["x"][:], f["y"][:]
for name, table in ("first", first), ("second", second):
    (x, y), (px, py) = packed(name), encoded(table)
    assert x.shape == px.shape, (name, x.shape, px.shape)
    assert np.allclose(x, px, rtol=1e-6, atol=0), (name, np.argwhere(~np.isclose(x, px, rtol=1e-6, atol=0))[:5])
    assert (y == py).all(), name
manifest = json.load(open("first/manifest.json"))
assert manifest["class_names"] == [str(c) for c in classes], manifest["class_names"]
assert manifest["table"]["columns"][1]["unit"] == "cm"
END
for style in plain german; do
  check "$style"
  rm -rf first second shuffled
  marks=$([ $style = german ] && echo '--separator ; --decimal ,')
  expect "$peer" tables.py $style
  # shellcheck disable=SC2086  # words
  succeeds pack --x first.csv --label-column label --missing mean $marks --out first
  # shellcheck disable=SC2086  # words
  succeeds pack --x second.csv --columns-from first --missing mean $marks --out second
  "$peer" compare.py $style 2>verdict || failed "$(tail -n 1 verdict)"
done

check "a table that was packed by itself is matched to the same numbers"
"$peer" -c '
import pandas as pd
table = pd.read_csv("second.csv", sep=";", decimal=",").dropna()
table.to_csv("whole.csv", index=False)
table[["size [cm]", "word", "label", "flag", "count", "tiny"]].to_csv("shuffled.csv", index=False)'
succeeds pack --x whole.csv --columns-from first --out whole
succeeds pack --x shuffled.csv --label-column label --out shuffled
must_run train --data first --model mlp --hidden 8 --steps 20 --batch 20 --progress off --run runs/first
for data in whole shuffled; do
  succeeds predict runs/first --data $data --out $data.h5
done
python3 -c '
import h5py
with h5py.File("whole.h5") as a, h5py.File("shuffled.h5") as b:
    assert (a["scores"][:] == b["scores"][:]).all() and (a["target"][:] == b["target"][:]).all()' || failed "other scores"
