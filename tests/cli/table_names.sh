#!/usr/bin/env bash
# Tables have names: columns, categories, classes and targets are found by name, in any order in the file.
# seconds: 300
. "$(dirname "$0")/harness.sh"

# trees.py FILE SEED COLUMN...: writes a class, and two numbers, that follow from some of the columns.
cat >trees.py <<'END'
import csv, os, random, sys
file, seed, *columns = sys.argv[1:]
draw = random.Random(int(seed))
colours = os.environ.get("COLOURS", "red green blue").split()
rows = []
for i in range(int(os.environ.get("ROWS", 240))):
    colour = colours[i % len(colours)]
    size, age = draw.gauss(0, 1), draw.gauss(3, 1)
    score = {"red": -2, "green": 0, "blue": 2, "pink": 0}[colour] + size - (age - 3)
    kind = 0 if score < -1 else 1 if score < 1 else 2
    row = {"id": f"t{i:03}", "colour": colour, "size": f"{size:.4f}", "age": f"{age:.4f}", "extra": "7.5", "": str(i),
           "kind": os.environ.get("KIND", "{}").format(kind), "price": f"{3 * size + age:.4f}", "rent": f"{-size:.4f}"}
    if os.environ.get("HOLES") and i % 10 == 3: row["size"] = ""
    rows.append([row[c] for c in columns])
with open(file, "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(rows)
END
short=(train --model mlp --hidden 16 --optimizer adam --learning-rate 0.01 --batch 20 --progress off --no-tensorboard)
train=("${short[@]}" --epochs 40)
accuracy() { sed -nE 's/.*accuracy ([0-9.]+) %.*/\1/p' out | tail -n 1; }
good() { awk -v a="$(accuracy)" 'BEGIN { exit !(a > 88) }' || failed "accuracy $(accuracy) %"; }

python3 trees.py train.csv 1 colour size age kind
must_run pack --x train.csv --label-column kind --out train
must_run "${train[@]}" --data train --run runs/a
must_run eval runs/a --data train; good

check "the manifest and the checkpoint hold columns, categories, means and the label"
python3 - <<'END' || failed "the manifest"
import json
table = json.load(open("train/manifest.json"))["table"]
assert [c["name"] for c in table["columns"]] == ["colour", "size", "age"] and table["labels"] == ["kind"], table
assert table["columns"][0]["categories"] == ["blue", "green", "red"] and abs(table["columns"][2]["fill"] - 3) < 0.3, table
END
succeeds info train
expect_out "columns  colour: blue, green, red"; expect_out "label    kind"
succeeds info "$(newest_checkpoint runs/a)"
expect_out "columns +colour: blue, green, red"

check "columns in another order, categories in another order, at any number of ranks"
COLOURS="blue red green" python3 trees.py other.csv 2 age kind size colour
must_run pack --x other.csv --label-column kind --out other
succeeds eval runs/a --data other --json one.json
good; expect_out "columns are matched by name: the 3 of other with the network's"; expect_silence
succeeds -n 2 eval runs/a --data other --json two.json
expect_same one.json two.json
check "a file with some of the categories"
COLOURS="red blue" python3 trees.py some.csv 3 colour size age kind
must_run pack --x some.csv --label-column kind --out some
succeeds eval runs/a --data some
good; expect_silence
check "the data of the run need no word"
succeeds eval runs/a --data train
expect_no_out "matched"; expect_silence
check "a surplus column is said and left out, in the middle of the others"
python3 trees.py surplus.csv 4 colour extra size age kind
must_run pack --x surplus.csv --label-column kind --out surplus
succeeds eval runs/a --data surplus
good; expect_out "columns that the network does not know are left out: extra"
check "a missing column is an error that names it"
python3 trees.py lacks.csv 5 colour size extra kind
must_run pack --x lacks.csv --label-column kind --out lacks
for n in 1 2; do
  fails 2 "lacks lacks a column that the network was trained on: age; it has colour, size, extra" -n $n eval runs/a --data lacks
done
fails 2 "lacks a column" predict runs/a --data lacks --out lacks.h5; expect_no_file lacks.h5
check "a category that the network does not know is an error, or none of them by choice"
COLOURS="red pink green blue" python3 trees.py pink.csv 6 colour size age kind
must_run pack --x pink.csv --label-column kind --out pink
fails 2 "its column colour has categories that the network does not know: pink; it knows blue, green, red: --unknown-categories none" \
  -n 2 eval runs/a --data pink
succeeds eval runs/a --data pink --unknown-categories none
expect_out "categories of colour that the network does not know count as none: pink"
check "cells that are filled with another mean are refused, and the remedy helps"
HOLES=1 python3 trees.py holes.csv 7 colour size age kind
must_run pack --x holes.csv --label-column kind --missing mean --out holes
fails 2 "holes: 24 missing cells of its column size hold its own mean, [0-9.e-]+, and the network was trained with [0-9.e-]+ there" \
  eval runs/a --data holes
must_run pack --x holes.csv --columns-from runs/a --missing mean --out holes2
succeeds eval runs/a --data holes2
good; expect_silence
check "labels 0.0, 1.0, 2.0 are the classes 0, 1, 2"
KIND="{}.0" python3 trees.py float.csv 8 colour size age kind
must_run pack --x float.csv --label-column kind --out float
succeeds eval runs/a --data float
good; expect_silence
check "labels from 1 on are as many classes as there are, and said"
python3 - <<'END'
import csv
rows = list(csv.DictReader(open("train.csv")))
with open("from_one.csv", "w", newline="") as f:
    writer = csv.DictWriter(f, rows[0]); writer.writeheader()
    for row in rows: writer.writerow({**row, "kind": int(row["kind"]) + 1})
END
succeeds pack --x from_one.csv --label-column kind --out from_one
expect_out "holds 3 different whole numbers, 1 to 3: 3 classes"; expect_out "^classes  3"
must_run "${train[@]}" --data from_one --run runs/from_one
run eval runs/from_one --data from_one
good
fails 2 "does not know: 0; it knows 1, 2, 3" eval runs/from_one --data train
check "labels of arrays that begin at 1 are said"
python3 -c '
import h5py, numpy as np
r = np.random.default_rng(1)
x, y = r.random((60, 4), np.float32), r.integers(1, 6, 60)
np.save("one_x.npy", x), np.save("one_y.npy", y)
with h5py.File("one.h5", "w") as f: f["x"], f["y"] = x, y'
succeeds pack --format npy --x one_x.npy --y one_y.npy --out one_npy
expect_out "^labels   begin at 1: the classes below have no samples"
succeeds train --data one.h5 --dry-run
expect_err "one.h5: labels begin at 1: the classes below have no samples"
check "validation data are matched, too, also with holes in the classes"
python3 - <<'END'
import csv
rows = [row for row in csv.DictReader(open("other.csv")) if row["kind"] != "1"]
with open("two.csv", "w", newline="") as f:
    writer = csv.DictWriter(f, rows[0]); writer.writeheader(); writer.writerows(rows)
END
must_run pack --x two.csv --label-column kind --out two
succeeds "${train[@]}" --data train --validation two --run runs/validated
expect_out "columns are matched by name: the 3 of two"; expect_out "classes are matched by name: the 2 of two"
[ "$(metric runs/validated validation accuracy | awk 'END { print ($2 > 0.85) }')" = 1 ] || failed "validation accuracy"
fails 2 "lacks lacks a column that the network was trained on: age" "${train[@]}" --data train --validation lacks --run runs/none
expect_no_file runs/none/config.ini
check "a run that begins with the weights of another one has its columns and classes"
python3 - <<'END'
import csv
rows = list(csv.DictReader(open("other.csv")))
with open("words.csv", "w", newline="") as f:
    writer = csv.DictWriter(f, rows[0]); writer.writeheader()
    for row in rows: writer.writerow({**row, "kind": ["low", "medium", "high"][int(row["kind"])]})
END
head -n 1 words.csv | tr -d '\r' | grep -qx age,kind,size,colour || failed "another table"
succeeds -n 2 "${short[@]}" --data other --initialize-from runs/a --steps 1 --run runs/b
expect_out "columns are matched by name: the 3 of other"
succeeds eval runs/b --data train
good; expect_no_out "matched"
succeeds -n 2 "${short[@]}" --data other --initialize-from runs/a --steps 2 --resume --run runs/b
expect_out "continuing after step 1"
succeeds eval runs/b --data other
good; expect_out "matched by name"
fails 2 "lacks lacks a column that the network was trained on: age" "${short[@]}" --data lacks --initialize-from runs/a --steps 1 --run runs/none
expect_no_file runs/none/checkpoints
succeeds "${short[@]}" --data lacks --initialize-from runs/a --reinitialize 'dense_1/*' --steps 1 --run runs/new_columns
expect_err "lacks a column .*: the columns are taken as they are"
check "data of which only one side has names are taken in order, with a warning"
python3 - <<'END'
import json, os, shutil
shutil.copytree("train", "nameless")
manifest = json.load(open("nameless/manifest.json"))
del manifest["table"], manifest["checksum"]
json.dump(manifest, open("nameless/manifest.json", "w"))
END
succeeds eval runs/a --data nameless
good; expect_err "nameless: its columns cannot be compared .* only the network knows their names \(colour, size, age\)"
must_run "${short[@]}" --data nameless --epochs 1 --run runs/nameless
succeeds eval runs/nameless --data train
expect_err "only the data know their names"
succeeds eval runs/nameless --data nameless
expect_silence

check "--columns-from: packed data, a run, a checkpoint; order, categories and classes are theirs"
for source in train runs/a "$(newest_checkpoint runs/a)"; do
  succeeds pack --x other.csv --columns-from "$source" --out from --force
  succeeds eval runs/a --data from
  good; expect_no_out "matched"; expect_silence
done
python3 - <<'END' || failed "the manifests differ"
import json
a, b = (json.load(open(f + "/manifest.json")) for f in ("train", "from"))
assert a["table"]["columns"] == b["table"]["columns"] and a["classes"] == b["classes"] == 3
END
check "--columns-from without labels, and with a surplus column"
python3 trees.py bare.csv 9 id size extra age colour
succeeds pack --x bare.csv --columns-from runs/a --id-column id --out bare
expect_out "without labels: there is no column kind"; expect_out "not used, .*: extra"
succeeds predict runs/a --data bare --out bare.h5 --csv bare.csv.out
head -n 2 bare.csv.out | tr -d '\r' | grep -Eq '^index,id,class,score_0' || failed "$(head -n 1 bare.csv.out)"
sed -n 3p bare.csv.out | grep -q '^1,t001,' || failed "$(sed -n 3p bare.csv.out)"
python3 -c '
import h5py
with h5py.File("bare.h5") as f: assert bytes(f["id"][5]).rstrip(b"\0") == b"t005" and f.attrs["id_column"] == b"id", f["id"][5]' || failed "/id"
check "--columns-from: what does not fit is an error that names it"
fails 1 "lacks.csv: lacks a column, which train has: age; it has colour, size, extra, kind" pack --x lacks.csv --columns-from train --out no
expect_no_file no
fails 1 "pink.csv:3: column 0 \(colour\) holds \"pink\", a category that is not known; known are blue, green, red" \
  pack --x pink.csv --columns-from train --out no
succeeds pack --x pink.csv --columns-from train --unknown-categories none --out pink2
expect_out "60 cells with categories that train does not know get none"
sed '5s/[0-9]\r$/7/' train.csv >seven.csv
fails 1 "seven.csv:5: column 3 \(kind\) holds \"7\", a class that train does not know; it knows 0, 1, 2" \
  pack --x seven.csv --columns-from train --out no
fails 1 "nameless: knows no names of columns" pack --x train.csv --columns-from nameless --out no
fails 1 "nowhere" pack --x train.csv --columns-from nowhere --out no
fails 2 "--columns-from" pack --x train.csv --columns-from train --regression --label-column kind --out no
check "--columns-from writes the same bytes on two ranks and split"
run pack --x other.csv --columns-from train --shards 2 --validation 0.25 --out alone
succeeds -n 2 pack --x other.csv --columns-from train --shards 2 --validation 0.25 --out together
expect diff -r alone together

check "several targets in another order, in reports and predictions by their names"
python3 trees.py targets.csv 10 size age price rent
python3 trees.py swapped.csv 10 rent age id price size
must_run pack --x targets.csv --label-column price,rent --regression --out targets
must_run pack --x swapped.csv --label-column rent,price --regression --id-column id --out swapped
must_run "${train[@]}" --data targets --run runs/targets
succeeds eval runs/targets --data targets --report --json targets.json
expect_out "^price +240"; expect_out "^rent +240"
succeeds eval runs/targets --data swapped --report --json swapped.json
expect_out "targets of swapped are matched by name"
python3 - <<'END' || failed "the two reports differ"
import json
a, b = ([{k: v for k, v in json.loads(line).items() if k not in ("data", "checkpoint")} for line in open(f)] for f in ("targets.json", "swapped.json"))
assert a == b and a[1]["name"] == "price" and a[1]["r_squared"] > 0.8, (a, b)
END
succeeds predict runs/targets --data swapped --out swapped.h5 --csv swapped.out
[ "$(head -n 1 swapped.out)" = "index,id,target_price,target_rent,predicted_price,predicted_rent" ] || failed "$(head -n 1 swapped.out)"
check "a network that learns other targets"
run eval runs/a --data targets
expect_status 2
python3 trees.py rent.csv 10 size age rent
must_run pack --x rent.csv --label-column rent --regression --out rent
python3 trees.py price.csv 10 size age price
must_run pack --x price.csv --label-column price --regression --out price
must_run "${short[@]}" --data price --epochs 2 --run runs/price
fails 2 "rent lacks a column that the network predicts: price; its targets are rent" eval runs/price --data rent

check "formulas in cells are defused"
python3 - <<'END'
import csv
with open("evil.csv", "w", newline="") as f:
    w = csv.writer(f); w.writerow(["=name", "x", "kind"])
    names = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "-5", "+7.5", "plain"]
    for i in range(42): w.writerow([names[i % 7], i % 5, ["=HYPERLINK(\"x\")", "oak"][i % 2]])
END
must_run pack --x evil.csv --id-column 0 --label-column kind --out evil
must_run train --data evil --steps 3 --progress off --run runs/evil
succeeds predict runs/evil --data evil --out evil.h5 --csv evil.out
python3 - <<'END' || failed "a formula is left: $(head -n 4 evil.out)"
import csv
rows = list(csv.reader(open("evil.out")))
assert rows[0][1] == "'=name", rows[0]
for row in rows[:9]:
    for cell in row:
        number = True
        try: float(cell)
        except ValueError: number = False
        assert number or cell[0] not in "=+-@", cell
assert [row[1] for row in rows[5:8]] == ["-5", "+7.5", "plain"], rows[5:8]
END

check "headers that name nothing"
python3 trees.py unnamed.csv 11 "" size kind
fails 1 "unnamed.csv: column 0 has no name; pandas writes its index so: leave it out with --ignore-columns 0" \
  pack --x unnamed.csv --label-column kind --out no
succeeds pack --x unnamed.csv --label-column kind --ignore-columns 0 --out unnamed
sed '1s/age/size/' train.csv >twice.csv
fails 1 "twice.csv: columns 1 and 2 are both called size" pack --x twice.csv --label-column kind --out no
sed 1d train.csv | cut -d, -f2-4 >headless.csv
fails 1 "headless.csv: its first line, which names the columns, holds numbers .*--no-header takes it for data" \
  pack --x headless.csv --label-column -1 --out no
succeeds pack --x headless.csv --label-column -1 --no-header --out headless
expect_out "240 samples"
check "numbers in other spellings are asked for, never categories"
while IFS='|' read -r cells words options; do
  printf 'a;y\n%s;0\n%s;1\n' "${cells% *}" "${cells#* }" >odd.csv
  fails 1 "odd.csv:2: column 0 \(a\) holds .*$words" pack --x odd.csv --separator ';' --label-column y --out no
  expect_no_file no
  [ -n "$options" ] || continue
  # shellcheck disable=SC2086  # words
  succeeds pack --x odd.csv --separator ';' --label-column y $options --out odd --force
  expect_out "x float32 \[1\]"
done <<'END'
1,5 2,5|--decimal ,|--decimal ,
1,234 5,678|--thousands ,|--thousands ,
12% 13%|a percentage|
$5 $6|an amount of money|
1'234 5'678|--thousands|--thousands '
1.234,5 2.345,6|--thousands . --decimal ,|--thousands . --decimal ,
5kg 6kg|numbers with "kg" behind each|
END
printf 'a;b;y\n1;2;0\n3;4;1\n' >semicolons.csv
fails 1 'semicolons.csv: has a single column. Its cells look separated by ;: --separator ";"' pack --x semicolons.csv --label-column y --out no
printf 'a, b,y\n1, "2.5",0\n3, "4.5",1\n' >blanks.csv
succeeds pack --x blanks.csv --label-column y --out blanks
expect_out "x float32 \[2\]"; expect_no_out "different texts"

check "codes with zeros in front, and an input that is the label, are told"
python3 - <<'END'
def write(name, of):
    open(name, "w").write("zip,hour,tenth,copy,y\n" + "".join(",".join(map(str, of(i))) + "\n" for i in range(20)))
write("codes.csv", lambda i: ["00501" if i % 3 else 12345, i % 7, f"0.{i % 5}", 1 + i % 2, i % 2])
write("copied.csv", lambda i: [i * i, i % 7, f"0.{i % 5}", i % 2, i % 2])
write("almost.csv", lambda i: [i * i, i % 7, f"0.{i % 5}", i % 2 if i < 19 else 2, i % 2])
END
run pack --x codes.csv --label-column y --out codes
expect_status 0; expect_out 'column 0 .zip. holds 00501, taken as a number: --categories zip takes such cells as categories'
expect_no_out 'tenth|hour|very cells'
run pack --x codes.csv --label-column y --categories zip --out categories
expect_status 0; expect_out 'column 0 .zip. holds 2 different texts'; expect_no_out 'taken as a number'
run pack --x copied.csv --label-column y --out copied
expect_status 0
expect_out 'column 3 .copy. holds the very cells of column 4 .y., which is to be learnt: --ignore-columns copy leaves it out'
run pack --x almost.csv --label-column y --out almost
expect_status 0; expect_no_out 'very cells|taken as a number'

check "info says what pack would make of a table"
succeeds info holes.csv
expect_out "holes.csv: a table of 240 lines and 4 columns, separated by commas, with a header"
expect_out "0  colour +3 categories: blue, green, red"; expect_out "1  size +numbers, .*; 24 missing"; expect_out "24 cells are missing: --missing"
expect_out "lockstep pack --x holes.csv --label-column COLUMN --missing mean --out FOLDER"
printf 'a;b;y\n1,5;2,5;0\n3,5;4,5;1\n' >german.csv
succeeds info german.csv
expect_out "pack --x german.csv --separator ';' --decimal ,"; expect_silence
printf 'id,day,b,y\n' >dates.csv
for i in $(seq 12); do echo "$i,2024-01-$((i + 9)),$((i % 4)),$((i % 2))"; done >>dates.csv
succeeds info dates.csv
expect_err 'column 1 .day. .*looks like a date'
expect_out 'these columns make 2 features'
expect_out 'pack --x dates.csv --ignore-columns day --id-column id --label-column COLUMN --out'
succeeds pack --x dates.csv --ignore-columns day --id-column id --label-column y --out dates
succeeds info unnamed.csv
expect_err "column 0 has no name"

check "the command that info prints runs as it is, whatever the file and its columns are called"
mkdir odd_tables
python3 - <<'END'
import csv
def write(name, header, *columns):
    with open("odd_tables/" + name, "w", newline="") as f:
        writer = csv.writer(f)
        if header: writer.writerow(header)
        for i in range(20): writer.writerow([column(i) for column in columns])
count, day, part, half = lambda i: i + 1, lambda i: f"2024-01-{i + 1:02}", lambda i: f"0.{i * 37 % 100:02}", lambda i: i % 2
usual = count, day, part, half
write("it's.csv", ["it's", 'd"q', "b", "y"], *usual)
write("$(touch pwned).csv", ["`touch pwned`", "$(touch pwned)", "b", "y"], *usual)
write("a,b c.csv", ["id, no", "d,e", "b", "y"], *usual)
write("dash.csv", ["-id", "--day", "b", "y"], *usual)
write("glob.csv", ["*", "~", "b", "y"], *usual)
write("lines.csv", ["id", "a\nday", "b", "y"], *usual)
write("no_header.csv", [], *usual)
write("numbers.csv", ["1", "2", "b", "y"], *usual)
write("indices.csv", ["b", "0", "1", "y"], *usual)
write("taken.csv", ["a,b", "0,", "0", "1"], *usual)
write("twice.csv", ["day", "day", "b", "y"], *usual)
write("both_days.csv", ["day", "day", "b", "y"], day, day, part, half)
write("one_day.csv", ["id", "day", "day", "y"], *usual)
write("unnamed.csv", ["", "Unnamed: 1", "b", "y"], *usual)
write("counted.csv", ["id", "y"], count, half)
write("days.csv", ["day", "y"], day, half)
write("bell\a.csv", ["b", "y"], part, half)
END
for file in odd_tables/*.csv; do
  succeeds info "$file"
  pack=$(sed -n '/^  lockstep pack/{s/^  lockstep //; s/COLUMN/-1/; s/FOLDER/odd_packed/; p}' out)
  case $file in
    */days.csv) expect_out "fewer than two columns can be used" ;;
    */bell*) expect_out "rename it first" ;;
    *) [ -n "$pack" ] || failed "no command for $file"
       eval "succeeds $pack --force"; expect_out 'x float32 \[1\]' ;;
  esac
  [ -n "$pack" ] || expect_no_out "lockstep pack --x"
done
expect_no_file pwned
check "its warnings quote a name that a shell would change"
succeeds info 'odd_tables/$(touch pwned).csv'
expect_err "; --categories '.\(touch pwned\)' takes such cells"
succeeds info odd_tables/no_header.csv
expect_err "; --categories 1 takes such cells"
