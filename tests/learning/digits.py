#!/usr/bin/env python3
"""Scenes of handwritten digits with a mask, from the data set that scikit-learn carries: python3 digits.py TRAIN.h5 TEST.h5

Each scene is 24 x 24 and has five of the 1,797 digits of 8 x 8 pixels (UCI; Alpaydin & Kaynak 1998), cut from forms of 43 writers. Digits
of the test's scenes come from writers of which training has seen none. Labels: 0 paper, 1 + d the ink of digit d, 255 faint ink.
"""
import sys

import h5py
import numpy as np
from sklearn.datasets import load_digits

images, digits = load_digits(return_X_y=True)
images = images.reshape(-1, 8, 8)
random = np.random.default_rng(1)
for name, own, count in (sys.argv[1], np.arange(1347), 1200), (sys.argv[2], np.arange(1347, 1797), 300):
    x, y = np.zeros((count, 24, 24, 1), "u1"), np.zeros((count, 24, 24), "u1")
    for scene, mask in zip(x, y):
        for cell in random.choice(9, 5, replace=False):
            i = random.choice(own)
            place = np.s_[8 * (cell // 3) : 8 * (cell // 3) + 8, 8 * (cell % 3) : 8 * (cell % 3) + 8]
            scene[place][..., 0] = images[i]
            mask[place] = np.where(images[i] >= 6, 1 + digits[i], np.where(images[i] > 0, 255, 0))
    with h5py.File(name, "w") as file:
        file["image"], file["mask"] = x, y
