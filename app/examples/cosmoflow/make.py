#!/usr/bin/env python3
"""Writes volumes whose statistics are to be measured: python3 make.py OUT.h5 [VOLUMES] [SIDE] [SEED]

Gaussian random fields with the power spectrum P(k) = A (2 k / side)^n, as CosmoFlow's volumes are to a first
approximation. To be learnt are ln A in [-0.5, 0.5] and n in [-2.5, -0.5]. Their mean is 0 whatever the parameters: a
linear model learns nothing. No unbiased estimate can be better than the Cramer-Rao bound, the inverse of F_ij = 1/2 sum
over modes of (d ln P / d theta_i) (d ln P / d theta_j), which is printed as the deviation, and as the mean absolute
error of a Gaussian with it, in standard deviations of the parameters as `train` tells errors of several targets.
"""
import sys

import h5py
import numpy as np

count = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
side = int(sys.argv[3]) if len(sys.argv) > 3 else 16
random = np.random.default_rng(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
frequency = np.fft.fftfreq(side) * side
k = np.sqrt(sum(axis**2 for axis in np.meshgrid(frequency, frequency, np.fft.rfftfreq(side) * side, indexing="ij")))
k[0, 0, 0] = 1
pivot = side / 2  # the scale at which A is nearly independent of n
log_k = np.log(k / pivot)
parameters = np.stack([random.uniform(-0.5, 0.5, count), random.uniform(-2.5, -0.5, count)], axis=1)

with h5py.File(sys.argv[1], "w") as file:
    volumes = file.create_dataset("full", (count, side, side, side, 1), "f4")
    for i, (log_a, n) in enumerate(parameters):
        modes = np.fft.rfftn(random.normal(size=(side, side, side))) * np.exp((log_a + n * log_k) / 2)
        modes[0, 0, 0] = 0
        volumes[i, ..., 0] = np.fft.irfftn(modes, s=(side, side, side), axes=(0, 1, 2))
    file["unitPar"] = parameters.astype("f4")

all_k = np.sqrt(sum(axis**2 for axis in np.meshgrid(frequency, frequency, frequency, indexing="ij"))).ravel()
slopes = np.stack([np.ones(all_k.size - 1), np.log(np.sort(all_k)[1:] / pivot)])  # derivatives of ln P by ln A and n; each mode is real
deviation = np.sqrt(np.diag(np.linalg.inv(slopes @ slopes.T / 2)))
error = np.mean(deviation / parameters.std(axis=0)) * np.sqrt(2 / np.pi)
print(f"Cramer-Rao bound: deviation {deviation[0]:.4f} of ln A, {deviation[1]:.4f} of n; mean absolute error {error:.4f}")
