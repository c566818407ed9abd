#!/usr/bin/env python3
"""Writes spectra to measure: python3 make.py OUT.h5 [SPECTRA] [SEED]

Each has 400 channels: a continuum that falls or rises, an emission line at any place, and noise. To be learnt are the
line's height and width. Because it may be anywhere, no fixed channel tells of it: a linear model explains little.
"""
import sys

import h5py
import numpy as np

count = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
random = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
channel = np.linspace(0, 1, 400)
place, width = random.uniform(0.1, 0.9, (count, 1)), random.uniform(0.006, 0.02, (count, 1))
height = random.uniform(0.3, 1, (count, 1))
continuum = random.uniform(0.8, 1.2, (count, 1)) + random.uniform(-0.4, 0.4, (count, 1)) * (channel - 0.5)
spectra = continuum + height * np.exp(-0.5 * ((channel - place) / width) ** 2)
spectra += random.normal(size=spectra.shape) * 0.02
with h5py.File(sys.argv[1], "w") as file:
    file["spectra"] = spectra[:, :, None].astype("f4")  # spectra x channels x 1
    file["line"] = np.hstack([height, width * 100]).astype("f4")
