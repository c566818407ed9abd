#!/usr/bin/env python3
"""Writes maps of 16 climate variables with a class at each place, to be learnt: python3 make.py OUT.h5 [MAPS] [HEIGHT] [WIDTH] [SEED]

Tropical cyclones (class 1) and atmospheric rivers (class 2) on a background (class 0) that fills about 96 of 100 places. The names are
those of MLPerf HPC's DeepCAM: climate/data float32 [maps, height, width, 16] and climate/labels_0 uint8 [maps, height, width]. No single
place tells a class: a cyclone is a low around which the wind turns to the left, and other lows, as deep, have winds that turn to the
right; a river is a long band of vapour, and other vapour, as dense, lies in round clouds. A mirror image is therefore none of a cyclone.
"""
import sys

import h5py
import numpy as np

count = int(sys.argv[2]) if len(sys.argv) > 2 else 600
height = int(sys.argv[3]) if len(sys.argv) > 3 else 48
width = int(sys.argv[4]) if len(sys.argv) > 4 else 64
random = np.random.default_rng(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])


def smooth(size):
    """A random field of deviation 1 whose features are about so large."""
    modes = np.fft.rfftn(random.normal(size=(height, width))) * np.exp(-((frequency * size) ** 2))
    field = np.fft.irfftn(modes, s=(height, width), axes=(0, 1))
    return field / field.std()


def climate():
    vapour, pressure, warmth, east, north = smooth(5), smooth(8), smooth(8), smooth(6), smooth(6)
    mask = np.zeros((height, width), np.uint8)
    for _ in range(random.integers(1, 3)):
        river = random.uniform() < 0.5
        y, x, heading, bend = random.uniform(0, height), random.uniform(0, width), random.uniform(0, 2 * np.pi), random.uniform(-0.05, 0.05)
        distance, speed = np.full((height, width), np.inf), random.uniform(0.5, 1.5)
        for _ in range(random.integers(24, 40) if river else 1):
            distance = np.minimum(distance, np.hypot(rows - y, columns - x))
            heading += bend
            y, x = y + np.sin(heading), x + np.cos(heading)
        reach = random.uniform(1.6, 2.6) if river else random.uniform(3.5, 6)
        cloud = np.exp(-((distance / reach) ** 4))
        vapour = vapour + random.uniform(2, 3) * cloud
        east, north = east + speed * np.cos(heading) * cloud, north + speed * np.sin(heading) * cloud
        if river:
            mask[distance < reach] = 2
    for _ in range(random.integers(1, 5)):
        turn = random.choice([-1, 1])
        radius = random.uniform(2.5, 4.5)
        y, x = random.uniform(radius, height - radius), random.uniform(radius, width - radius)
        distance = np.hypot(rows - y, columns - x)
        core = np.exp(-((distance / radius) ** 2))
        pressure, warmth, vapour = pressure - random.uniform(2, 3) * core, warmth + random.uniform(1, 2) * core, vapour + core
        wind = turn * random.uniform(2, 3) * np.sqrt(np.e) * core / radius
        east, north = east - wind * (rows - y), north + wind * (columns - x)
        if turn == 1:
            mask[distance < radius] = 1
    fields = [vapour, east, north, 0.8 * east + 0.3 * smooth(3), 0.8 * north + 0.3 * smooth(3), pressure, 0.9 * pressure + 0.4 * smooth(4)]
    fields += [warmth, warmth - 0.5 * pressure, 0.5 * warmth + smooth(8)]
    fields += [np.maximum(vapour, 0) ** 1.5 + smooth(2), 0.7 * vapour + 0.7 * smooth(4)]
    fields += [smooth(6) for _ in range(4)]
    return np.stack(fields, -1) + random.normal(0, 0.2, (height, width, 16)), mask


with h5py.File(sys.argv[1], "w") as file:
    maps = file.create_dataset("climate/data", (count, height, width, 16), "f4")
    labels = file.create_dataset("climate/labels_0", (count, height, width), "u1")
    for i in range(count):
        maps[i], labels[i] = climate()
    shares = np.bincount(labels[:].ravel(), minlength=3) / labels.size
print("shares of background, cyclones and rivers: " + ", ".join(f"{share:.4f}" for share in shares))
