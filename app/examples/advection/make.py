#!/usr/bin/env python3
"""Writes fields that a wind carries, before and after: python3 make.py OUT.h5 [SAMPLES] [SIZE] [SEED]

A tracer and the temperature at each place of a square move with a wind that differs from place to place (and blows out of one edge into the
opposite one), and diffuse: d c / d t = - (u, v) . grad c + k laplace c, solved by Fourier modes. A sample is the state before, float32
[samples, size, size, 4]: tracer in ng/kg, temperature in K, wind to the east and to the north in places per forecast. To be predicted:
tracer and temperature after the forecast, float32 [samples, size, size] each. The program prints how well two forecasts without a network
do: nothing changes (persistence), and the mean.
"""
import sys

import h5py
import numpy as np

count = int(sys.argv[2]) if len(sys.argv) > 2 else 800
size = int(sys.argv[3]) if len(sys.argv) > 3 else 32
random = np.random.default_rng(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
north, east = np.meshgrid(np.fft.fftfreq(size), np.fft.rfftfreq(size), indexing="ij")
STEPS, DIFFUSION = 24, 0.15


def modes(fields):
    return np.fft.rfftn(fields, axes=(-2, -1))


def fields(modes):
    return np.fft.irfftn(modes, s=(size, size), axes=(-2, -1))


def smooth(places):
    """Random fields of deviation 1 whose features are about so large."""
    made = fields(modes(random.normal(size=(count, size, size))) * np.exp(-((np.hypot(north, east) * places) ** 2)))
    return made / made.std((1, 2), keepdims=True)


def derivative(values, wind):
    spectrum = modes(values)
    along = wind[:, :1] * fields(2j * np.pi * east * spectrum) + wind[:, 1:] * fields(2j * np.pi * north * spectrum)
    return -along - DIFFUSION * fields((2 * np.pi) ** 2 * (east**2 + north**2) * spectrum)


stream = modes(smooth(12))
wind = np.stack([fields(2j * np.pi * north * stream), -fields(2j * np.pi * east * stream)], 1)
wind *= 2.5 / np.hypot(wind[:, 0], wind[:, 1]).max((1, 2))[:, None, None, None] * random.uniform(0.5, 1, (count, 1, 1, 1))
before = np.stack([smooth(5), smooth(8)], 1)
after = before
for _ in range(STEPS):  # Heun's method
    first = derivative(after, wind)
    after = after + (first + derivative(after + first / STEPS, wind)) / (2 * STEPS)
units = np.array([[2e-4], [6.0]])[:, :, None], np.array([[1e-3], [285.0]])[:, :, None]
before, after = (values * units[0] + units[1] for values in (before, after))

with h5py.File(sys.argv[1], "w") as file:
    file["state"] = np.concatenate([before, wind], 1).transpose(0, 2, 3, 1).astype("f4")
    for i, (name, unit) in enumerate([("tracer", "ng/kg"), ("temperature", "K")]):
        file[name] = after[:, i].astype("f4")
        file[name].attrs["units"] = unit
        unchanged, mean = np.abs(after[:, i] - before[:, i]).mean(), np.abs(after[:, i] - after[:, i].mean()).mean()
        print(f"{name}: mean absolute error of persistence {unchanged:.4g} {unit}, of the mean {mean:.4g} {unit}")
