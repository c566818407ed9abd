#!/usr/bin/env python3
"""Writes images to classify: python3 make.py OUT.h5 [IMAGES] [SEED]

Stripes of 16 x 16 pixels in one of four directions, with any phase and width, in noise. Because of the phase, the mean
image of each class is grey: a linear model guesses.
"""
import sys

import h5py
import numpy as np

count = int(sys.argv[2]) if len(sys.argv) > 2 else 6000
random = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
direction = random.integers(0, 4, count)
angle = direction[:, None, None] * np.pi / 4
row, column = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
wave = random.uniform(0.8, 1.6, (count, 1, 1)) * (column * np.cos(angle) + row * np.sin(angle))
images = np.sin(wave + random.uniform(0, 2 * np.pi, (count, 1, 1))) + random.normal(size=(count, 16, 16))
with h5py.File(sys.argv[1], "w") as file:
    file["images"] = images[..., None].astype("f4")
    file["direction"] = direction.astype("i4")
