#!/usr/bin/env bash
# Packed images equal Pillow's, pixel for pixel, for every kind of file, orientation
# and depth.
# label: slow
# seconds: 300
. "$(dirname "$0")/harness.sh"
peer=$(peer_python PIL numpy) || skip_all "no Python here has PIL and numpy (PEER_PYTHONS: others to try)"

# Every file is a class of its own; Pillow's pixels stand beside it.
"$peer" - <<'END'
import os
import numpy as np
from PIL import Image, ImageOps, PngImagePlugin
rng = np.random.default_rng(3)
y, x = np.mgrid[0:40, 0:56]
rgb = np.stack([4 * x + rng.integers(0, 9, x.shape), 5 * y + 7, 255 - 3 * x - 2 * y], 2).clip(0, 255).astype(np.uint8)
grey = rgb[:, :, 0]
deep = (rng.integers(0, 30, x.shape) + 1000 * x + 17 * y).astype(np.uint16)
alpha = rng.integers(0, 256, x.shape).astype(np.uint8)
pictures = {"rgb": Image.fromarray(rgb), "grey": Image.fromarray(grey), "bits": Image.fromarray(grey > 120),
            "rgba": Image.fromarray(np.dstack([rgb, alpha])), "la": Image.fromarray(np.dstack([grey, alpha])),
            "palette": Image.fromarray(rgb).quantize(200), "four": Image.fromarray(rgb).quantize(13)}

def keep(kind, name, expected):
    os.makedirs(f"expected/{kind}", exist_ok=True)
    np.save(f"expected/{kind}/{name}.npy", expected)

def save(kind, name, picture, ending, **options):
    folder = f"{kind}/{name}"
    os.makedirs(folder, exist_ok=True)
    picture.save(f"{folder}/a.{ending}", **options)
    back = ImageOps.exif_transpose(Image.open(f"{folder}/a.{ending}"))
    keep(kind, name, np.asarray(back.convert("RGB")) if kind != "deep" else np.asarray(back).astype(np.uint16))

for name, picture in pictures.items():
    save("exact", "png-" + name, picture, "png")
    if name in ("rgb", "rgba"):
        save("webp", "lossless-" + name, picture, "webp", lossless=True, exact=True)
info = PngImagePlugin.PngInfo()
info.add(b"gAMA", (200000).to_bytes(4, "big"))
save("exact", "gamma", pictures["rgb"], "png", pnginfo=info)
save("exact", "gamma-grey", pictures["grey"], "png", pnginfo=info)
save("exact", "transparent", pictures["palette"], "png", transparency=3)
save("deep", "a", Image.fromarray(deep), "png")
save("deep", "twelve-bits", Image.fromarray((deep % 4096).astype(np.uint16)), "png")
save("deep", "gamma", Image.fromarray(deep), "png", pnginfo=info)
for quality in (60, 95):
    save("lossy", f"jpeg-{quality}", pictures["rgb"], "jpg", quality=quality)
    save("lossy", f"jpeg-grey-{quality}", pictures["grey"], "jpg", quality=quality)
    save("lossy", f"jpeg-444-{quality}", pictures["rgb"], "jfif", format="JPEG", quality=quality, subsampling=0)
    save("lossy", f"jpeg-progressive-{quality}", pictures["rgb"], "jpeg", quality=quality, progressive=True)
save("lossy", "cmyk", pictures["rgb"].convert("CMYK"), "jpg", quality=95)
save("webp", "lossy", pictures["rgb"], "webp", quality=80)
# Stored so that all come out 40 x 56: odd orientations lie on their side.
turn = {1: None, 2: Image.FLIP_LEFT_RIGHT, 3: Image.ROTATE_180, 4: Image.FLIP_TOP_BOTTOM, 5: Image.TRANSPOSE,
        6: Image.ROTATE_90, 7: Image.TRANSVERSE, 8: Image.ROTATE_270}
for orientation, how in turn.items():
    stored = pictures["rgb"] if how is None else pictures["rgb"].transpose(how)
    exif = Image.Exif()
    exif[0x0112] = orientation
    save("exact", f"turned-{orientation}", stored, "png", exif=exif)
    save("lossy", f"turned-{orientation}", stored, "jpg", quality=90, exif=exif)
    save("webp", f"turned-{orientation}", stored, "webp", lossless=True, exact=True, exif=exif)
END
cat >compare.py <<'END'
import h5py, json, numpy as np, sys
kind, tolerance = sys.argv[1], int(sys.argv[2])
names = json.load(open(f"packed-{kind}/manifest.json"))["class_names"]
with h5py.File(f"packed-{kind}/shard-00000.h5") as f:
    x, y = f["x"][:], f["y"][:]
assert len(x) == len(names) > 2 and sorted(y) == list(range(len(names)))
for sample, label in zip(x, y):
    expected = np.load(f"expected/{kind}/{names[label]}.npy").reshape(sample.shape)
    assert sample.dtype == expected.dtype, (names[label], sample.dtype)
    most = int(np.abs(sample.astype(int) - expected.astype(int)).max())
    assert most <= tolerance, (names[label], most)
END
# The two libjpegs may round differently after subsampling of colours.
for kind in exact:0 deep:0 lossy:3 webp:1; do
  tolerance=${kind#*:} kind=${kind%:*}
  check "$kind"
  run pack --x "$kind" --format images --out "packed-$kind"
  if [ "$kind" = webp ] && grep -q 'holds no images that this program reads' err; then continue; fi
  expect_status 0
  python3 compare.py "$kind" "$tolerance" 2>trace || failed "$(tail -n 1 trace)"
done
