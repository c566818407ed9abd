#!/usr/bin/env python3
"""Images or volumes with masks, to be learnt: balls (class 1) and rods (class 2) in noise, which differ in shape alone.

    python3 make.py --extents 64,64 --samples 400 --out shapes.h5
    python3 make.py --extents 32,32,32 --samples 120 --out volumes.h5 --seed 2

Writes HDF5: image float32 [samples, extents, 1] and mask uint8 [samples, extents]. Outlines are labelled 255: a pixel
there is partly of a shape. Needs h5py.
"""
import argparse

import h5py
import numpy as np

OUTLINE = 255


def sample(extents, random):
    places = np.stack(np.meshgrid(*(np.arange(n) for n in extents), indexing="ij"), -1)
    mask = np.zeros(extents, np.uint8)
    image = np.zeros(extents)
    for _ in range(random.integers(1, 4)):
        radius = random.uniform(0.16, 0.28) * min(extents)
        centre = random.uniform(radius, np.array(extents) - radius)
        kind = random.integers(1, 3)
        offset = np.abs(places - centre)
        if kind == 1:
            distance = np.sqrt((offset**2).sum(-1))
        else:
            shape = np.full(len(extents), 0.35)
            shape[random.integers(len(extents))] = 1.5
            distance = (offset / shape).max(-1)
        inside = distance < radius
        mask[inside] = kind
        mask[np.abs(distance - radius) < 0.5] = OUTLINE
        image[inside] = random.uniform(0.7, 1.3)
    return image + random.normal(0, 0.35, extents), mask


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--extents", default="64,64", help="height,width or depth,height,width")
parser.add_argument("--samples", type=int, default=400)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--out", required=True)
options = parser.parse_args()
extents = tuple(int(n) for n in options.extents.split(","))
random = np.random.default_rng(options.seed)
with h5py.File(options.out, "w") as file:
    images = file.create_dataset("image", (options.samples, *extents, 1), "f4")
    masks = file.create_dataset("mask", (options.samples, *extents), "u1")
    for i in range(options.samples):
        image, masks[i] = sample(extents, random)
        images[i] = image[..., None]
