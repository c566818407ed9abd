#!/usr/bin/env bash
# --version and the JSON of benchmarks name their origin: version, commit, libraries, machine, time.
# label: more
# seconds: 240
. "$(dirname "$0")/harness.sh"
command -v git >/dev/null || skip_all "git is not here"

check "--version tells what it is made of and runs on, and starts no MPI"
OMPI_MCA_orte_tmpdir_base=/dev/null/nowhere run --version
expect_status 0; expect_silence
expect_out '^lockstep [0-9]+\.[0-9]+\.[0-9]+$'
expect_out '^commit: ([0-9a-f]{40}(-dirty)?|not known \(built outside of a clone\))$'
expect_out '^compiler: (GCC|Clang) [0-9]+\.[0-9]+\.[0-9]+.*, [A-Z][A-Za-z]+'
expect_out '^MPI: (Open MPI v|MPICH Version: |[A-Z])'
expect_out '^HDF5: [12]\.[0-9]+\.[0-9]+(, parallel)?$'
expect_out '^BLAS: OpenBLAS [0-9.]+ [A-Za-z0-9]+, oneDNN [0-9]+\.[0-9]+\.[0-9]+$'
expect_out '^CPU: .+, [0-9]+ processors?, with .+; used: .+, loops (x86-64-v[34]|baseline)$'
model=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
grep -qF "CPU: $model" out || failed "not the processor's model"
commit=$(sed -n 's/^commit: \([0-9a-f]*\).*/\1/p' out)
said=$(sed -n 's/^commit: \(.*\)$/\1/p' out)
[ -z "$commit" ] || [ ! -e "$tree/.git" ] || git -c safe.directory='*' -C "$tree" cat-file -e "$commit" || failed "no commit of this clone"

# Prints the commit that a tree's program would report.
made_for() {
  command_line="cmake -P $1/app/report/program_commit.cmake"
  cmake -D OUT="$work/commit.cpp" -P "$1/app/report/program_commit.cmake" >out 2>err || failed "it does not run"
  sed -n 's/.*return "\(.*\)".*/\1/p' commit.cpp
}
expect_commit() { [ "$(made_for "$1")" = "$2" ] || failed "not $2 but $(made_for "$1")"; }
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null
mkdir -p clone/app/report clone/tests
cp "$tree/app/report/program_commit.cmake" clone/app/report/
cp "$tree/.gitattributes" clone/
check "outside of a clone nobody knows"
expect_commit clone ""
check "a clone knows its commit"
git -C clone init -q && git -C clone add . && git -C clone commit -q -m one
head=$(git -C clone rev-parse HEAD)
expect_commit clone "$head"
touch -d 2020-01-01 commit.cpp
expect_commit clone "$head"
[ "$(stat -c %Y commit.cpp)" = "$(date -d 2020-01-01 +%s)" ] || failed "it is written anew, and so compiled anew, without need"
check "whoever calls"
GIT_DIR=/nowhere expect_commit clone "$head"
if [ "$(id -u)" = 0 ]; then
  chown -R 12345 clone
  expect_commit clone "$head"
  chown -R 0 clone
fi
check "changes of what the program is made of are told, others are not"
touch clone/tests/x clone/data
expect_commit clone "$head"
touch clone/app/new.cpp
expect_commit clone "$head-dirty"
rm clone/app/new.cpp; echo "# more" >>clone/app/report/program_commit.cmake
expect_commit clone "$head-dirty"
git -C clone checkout -q app
check "an archive knows it, and knows better than the repository around it"
mkdir archive && git -C clone archive HEAD | tar -C archive -xf -
expect_commit archive "$head"
git init -q . && git add archive && git commit -q -m other
expect_commit archive "$head"
check "a copy inside another repository is of none of its commits"
mkdir copy && cp -r clone/app copy/ && git add copy && git commit -q -m another
expect_commit copy ""

check "each record of a benchmark tells where it comes from, and null is what is not known"
small=(--device cpu --features 64 --hidden 16 --batch 8 --warmup 1)
pack_small data/train
succeeds -n 2 bench step "${small[@]}" --repeat 2 --sweep-buckets --json step.json
succeeds bench step "${small[@]}" --repeat 2 --no-roof --json alone.json
succeeds -n 2 bench scale "${small[@]}" --repeat 2 --rounds 1 --json scale.json --csv scale.csv
succeeds -n 2 bench all-reduce --min 4 --max 4 --repeat 1 --json sums.json
succeeds bench all-reduce --min 4 --max 4 --repeat 1 --json no_sums.json --csv no_sums.csv
succeeds bench input --data data/train --steps 2 --repeat 2 --batch 8 --json input.json
succeeds -n 2 bench checkpoint --device cpu --state-mb 1 --repeat 1 --folder . --json checkpoint.json
succeeds -n 2 check --seconds 0.1 --json check.json
python3 - "$said" 2>python.log <<'END' || failed "$(tail -n 1 python.log)"
import datetime, json, os, socket, sys
files = "step alone scale sums no_sums input checkpoint check".split()
rows = {name: [json.loads(line) for line in open(name + ".json")] for name in files}
for name in files:
    assert rows[name], name + ".json is empty"
    for row in rows[name]:
        assert name == "check" or row["bench"].split("-")[0] in ("step", "scale", "all", "input", "checkpoint"), row
        assert row["version"].count(".") == 2 and row["build"].split()[0] in ("GCC", "Clang"), row
        assert row["commit"] == (None if sys.argv[1].startswith("not known") else sys.argv[1]), row
        assert row["host"] == socket.gethostname() and row["cpu"] in open("/proc/cpuinfo").read(), row
        age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(row["date"].replace("Z", "+00:00"))
        assert 0 <= age.total_seconds() < 600, row
        assert 0 <= row["load"] < 10000, row
for row in rows["alone"]:
    assert row["mfu"] is None and row["peak_flops"] is None and row["roof_flops"] is None and row["roofline_ms"] is None, row
first, last = rows["scale"][0], rows["scale"][-1]
assert first["world"] == 1 and last["world"] == 2
assert first["bus_bandwidth"] is None and first["communication_ms"] is None and first["gradient_sum_ms"] is None, first
assert last["bus_bandwidth"] > 0 and last["gradient_sum_ms"] > 0, last
assert all(first["straggler_" + what] is None for what in ("rank", "host", "excess", "steps")), first
csv = [line.rstrip("\n").split(",") for line in open("scale.csv")]
assert csv[1][csv[0].index("bus_bandwidth")] == "" and "nan" not in open("scale.csv").read(), csv
assert [line.rstrip("\n").split(",")[7:9] for line in open("no_sums.csv")][1] == ["", ""]
for row in rows["sums"]:
    assert row["bus_bandwidth"] > 0 and row["link_gbps"] is None and row["percent_of_bound"] is None, row
for row in rows["no_sums"]:
    assert row["bus_bandwidth"] is None and row["algorithm_bandwidth"] is None, row
assert rows["input"][0]["stall_share"] is None and rows["input"][1]["stall_share"] is not None
assert rows["checkpoint"][0]["stall_seconds"] is None and rows["checkpoint"][1]["stall_seconds"] is not None
END
