#!/usr/bin/env bash
# `pack` reads random HDF5 and netCDF-4 files of many kinds as h5py and netCDF4 do and
# refuses those in which they find missing numbers.
# label: slow
# seconds: 900
. "$(dirname "$0")/harness.sh"
peer=$(peer_python h5py netCDF4 numpy) || skip_all "no Python here has h5py, netCDF4 and numpy (PEER_PYTHONS: others to try)"

cat >make.py <<'END'
import sys, warnings
import h5py, netCDF4, numpy as np
warnings.simplefilter("ignore")
count, seed = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(seed)
CODES = "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8".split()

def numbers(code, shape):
    kind = np.dtype(code)
    if kind.kind == "f":
        return (rng.normal(0, 1, shape) * 10.0 ** rng.integers(-3, 4)).astype(code)
    limits = np.iinfo(kind)
    return rng.integers(max(limits.min, -2**50), min(limits.max, 2**50), shape).astype(code)

def storage(shape, kind):
    options = {}
    if rng.random() < 0.6:
        options["chunks"] = tuple(int(rng.integers(1, extent + 1)) for extent in shape)
        if rng.random() < 0.6: options["compression"] = "gzip"
        if rng.random() < 0.4: options["shuffle"] = True
        if rng.random() < 0.3: options["fletcher32"] = True
        if kind.kind in "iu" and kind.itemsize < 8 and rng.random() < 0.2: options["scaleoffset"] = 0
    return options

def hdf5(name):
    """What a file holds, as h5py reads it."""
    shape = (int(rng.integers(8, 60)),) + tuple(int(e) for e in rng.integers(1, 7, rng.integers(1, 3)))
    code = str(rng.choice(CODES))
    kind = np.dtype(str(rng.choice(["<", ">"])) + code)
    values, y = numbers(code, shape).astype(kind), (np.arange(shape[0]) % 4).astype(str(rng.choice(["i4", ">i8", "u1"])))
    way = str(rng.choice(["plain", "soft", "external", "virtual", "storage", "bits", "block", "deep"]))
    with h5py.File(name, "w", libver=("earliest", "v110" if way == "virtual" else str(rng.choice(["v108", "v110"]))), userblock_size=512 if way == "block" else 0) as f:
        f["y"] = y
        f["noise"] = rng.random(shape)
        if way == "soft":
            f.create_dataset("deep/er/numbers", data=values, **storage(shape, kind))
            f["x"] = h5py.SoftLink("/deep/er/numbers")
        elif way in ("external", "virtual"):
            side = name.replace(".h5", "_side.hdf")
            with h5py.File(side, "w") as g:
                g["first"] = rng.random(shape)
                g.create_dataset("numbers", data=values, **storage(shape, kind))
            if way == "external":
                f["x"] = h5py.ExternalLink(side, "/numbers")
            else:
                layout, cut = h5py.VirtualLayout(shape, kind), int(rng.integers(1, shape[0]))
                source = h5py.VirtualSource(side, "numbers", shape, kind)
                layout[:cut], layout[cut:] = source[:cut], source[cut:]
                f.create_virtual_dataset("x", layout)
        elif way == "storage":
            raw = name.replace(".h5", ".raw")
            f.create_dataset("x", shape, kind, external=[(raw, 64, h5py.h5f.UNLIMITED)])[...] = values
        elif way == "bits" and kind.kind in "iu" and kind.itemsize > 1:
            bits = int(rng.integers(4 * kind.itemsize + 1, 8 * kind.itemsize)); low = int(rng.integers(0, 8 * kind.itemsize - bits + 1))
            stored = h5py.h5t.py_create(kind).copy(); stored.set_precision(bits); stored.set_offset(low)
            values = (values % (1 << (bits - 1))).astype(kind)
            d = h5py.h5d.create(f.id, b"x", stored, h5py.h5s.create_simple(shape))
            d.write(h5py.h5s.ALL, h5py.h5s.ALL, values, h5py.h5t.py_create(kind))
        elif way == "deep":
            f.create_dataset("a/b/x", data=values, **storage(shape, kind))
        else:
            f.create_dataset("x", data=values, **storage(shape, kind))
    with h5py.File(name) as f:
        read = f["a/b/x" if way == "deep" else "x"][...]
    assert read.shape == shape
    return way, read.astype("f8"), np.zeros(shape, bool), y

def netcdf(name):
    """What a file holds, as netCDF4 reads it, and what it calls missing."""
    shape = (int(rng.integers(8, 60)), int(rng.integers(1, 7)))
    code = str(rng.choice("i1 u1 i2 u2 i4 f4 f8".split()))
    kind = np.dtype(code)
    stored = numbers(code, shape) if kind.kind == "f" else rng.integers(0 if kind.kind == "u" else -100, 100, shape).astype(code)
    y = (np.arange(shape[0]) % 3).astype("i4")
    with netCDF4.Dataset(name, "w") as f:
        f.set_auto_maskandscale(False)
        f.createDimension("sample", shape[0]); f.createDimension("feature", shape[1])
        fill = kind.type(99 if kind.kind != "f" else -999.0) if rng.random() < 0.4 else None
        v = f.createVariable("x", code, ("sample", "feature"), fill_value=fill, zlib=bool(rng.random() < 0.5),
                             endian=str(rng.choice(["little", "big"])) if kind.itemsize > 1 else "native")
        if rng.random() < 0.5: v.scale_factor = float(rng.choice([0.01, 2.0, -0.5]))
        if rng.random() < 0.4: v.add_offset = float(rng.choice([273.15, -4.0]))
        if rng.random() < 0.2: v.missing_value = kind.type(50)
        if rng.random() < 0.2: v.valid_min = kind.type(0 if kind.kind != "f" else -2000)
        if kind == np.int8 and rng.random() < 0.3: v._Unsigned = "true"
        if fill is not None and rng.random() < 0.5: stored[3, 0] = fill
        if fill is None and kind.itemsize > 1 and rng.random() < 0.3: stored[5, 0] = netCDF4.default_fillvals[code]
        v[...] = stored
        f.createVariable("y", "i4", ("sample",))[...] = y
    with netCDF4.Dataset(name) as f:
        read = f["x"][...]
    mask = np.ma.getmaskarray(read)
    return "netcdf", np.ma.getdata(read).astype("f8"), mask, y

for i in range(count):
    name = f"file{i:03}.h5"
    way, x, mask, y = (netcdf if rng.random() < 0.35 else hdf5)(name)
    np.savez(name.replace(".h5", ".npz"), way=way, x=x, mask=mask, y=y)
END
cat >same.py <<'END'
import sys, h5py, numpy as np
wanted = np.load(sys.argv[2])
keep = ~wanted["mask"].any(axis=tuple(range(1, wanted["mask"].ndim)))
with h5py.File(sys.argv[1] + "/shard-00000.h5") as f:
    x, y = f["x"][...].astype("f8"), f["y"][...]
assert x.shape == wanted["x"][keep].shape, (x.shape, wanted["x"].shape)
assert np.allclose(x, wanted["x"][keep], rtol=2e-6, atol=1e-30), (x.ravel()[:4], wanted["x"].ravel()[:4])
assert (y == wanted["y"][keep]).all()
END
files=160
"$peer" make.py "$files" "${HDF5_SEED:-1}" || exit 1
[ "$(ls file*.npz | wc -l)" = "$files" ] || exit 1
for wanted in file*.npz; do
  name=${wanted%.npz}
  check "$name.h5: $("$peer" -c "import numpy; d = numpy.load('$wanted'); print(d['way'], d['x'].shape, int(d['mask'].sum()), 'missing')")"
  masked=$("$peer" -c "import numpy; m = numpy.load('$wanted')['mask']; print('all' if m.any(1).all() else 'some' if m.any() else 'none')" 2>/dev/null ||
    echo none)
  run pack --x "$name.h5" --layout channels-last --out "packed/$name"
  if [ "$masked" = none ]; then
    expect_status 0
    expect "$peer" same.py "packed/$name" "$wanted"
  else
    expect_error 1 "$name\\.h5.* sample [0-9]+ of x holds"
    [ "$masked" = some ] || continue
    run pack --x "$name.h5" --missing drop --out "packed/$name"
    expect_status 0
    expect "$peer" same.py "packed/$name" "$wanted"
  fi
done
