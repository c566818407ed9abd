#!/usr/bin/env bash
# Default options on tables match scikit-learn's baselines: its own data sets, and
# houses modelled on those of California.
# label: slow
# seconds: 900
. "$(dirname "$0")/harness.sh"
peer=$(peer_python sklearn) || skip_all "no Python here has sklearn (PEER_PYTHONS: others to try)"

cat >peer.py <<'END'
import json, sys
import numpy as np
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
name = sys.argv[1]
if name == "houses":
    r = np.random.default_rng(5)
    n = 6000
    income, age, rooms = r.lognormal(1.2, 0.45, n), r.integers(1, 52, n), r.lognormal(1.6, 0.3, n)
    people, lat, lon = r.lognormal(7, 0.7, n), r.uniform(32.5, 42, n), r.uniform(-124.3, -114.3, n)
    coast = np.abs(lon + 124.3 - 0.9 * (42 - lat))
    price = 45000 * income + 120000 * np.exp(-coast) + 600 * age + 9000 * np.log(rooms) + r.normal(0, 25000, n)
    x, y, classes = np.stack([income, age, rooms, people, lat, lon], 1), price, False
else:
    # scaled=False: as measured
    x, y = getattr(datasets, "load_" + name)(return_X_y=True, **({"scaled": False} if name == "diabetes" else {}))
    classes = name != "diabetes"
parts = train_test_split(x, y, test_size=0.25, random_state=3, stratify=y if classes else None)
for part, px, py in ("train", parts[0], parts[2]), ("test", parts[1], parts[3]):
    with open(f"{name}-{part}.csv", "w") as f:
        f.write(",".join(f"c{i}" for i in range(x.shape[1])) + ",y\n")
        for row, target in zip(px, py):
            f.write(",".join(f"{v:.9g}" for v in row) + (f",{int(target)}\n" if classes else f",{target:.9g}\n"))
linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000) if classes else LinearRegression())
trees = (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(random_state=0)
found = {}
for kind, model in ("linear", linear), ("trees", trees):
    predicted = model.fit(parts[0], parts[2]).predict(parts[1])
    found[kind] = float((predicted == parts[3]).mean() if classes else np.abs(predicted - parts[3]).mean())
json.dump({"classes": classes, **found}, open(f"{name}.baseline.json", "w"))
END

for name in diabetes iris wine breast_cancer digits houses; do
  check "$name"
  "$peer" peer.py $name 2>python.log || { failed "$(tail -n 1 python.log)"; continue; }
  regression=$([[ $name = diabetes || $name = houses ]] && echo --regression)
  must_run pack --x $name-train.csv --label-column y $regression --validation 0.2 --out shards/$name
  must_run pack --x $name-test.csv --label-column y $regression --out test/$name
  run train --data shards/$name --run runs/$name
  expect_status 0
  run eval runs/$name --data test/$name --json $name.json
  expect_status 0
  "$peer" - $name >verdict <<'END' || failed "$(cat verdict)"
import json, sys
name = sys.argv[1]
base, ours = json.load(open(f"{name}.baseline.json")), json.load(open(f"{name}.json"))
if base["classes"]:
    best, own = max(base["linear"], base["trees"]), ours["accuracy"]
    good = own >= 0.9 * best
else:
    best, own = min(base["linear"], base["trees"]), ours["mean_absolute_error"]
    good = own <= 1.1 * best
print(f"{name}: ours {own:.5g}, linear {base['linear']:.5g}, trees {base['trees']:.5g}")
sys.exit(0 if good else 1)
END
  cat verdict
done
