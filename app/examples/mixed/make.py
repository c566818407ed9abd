#!/usr/bin/env python3
"""Pictures and tables that tell a class together: make.py FILE.h5 [SAMPLES] [SEED]

A picture shows stripes in one of four directions, a table has the signs of two of its numbers, which make four cases
with them. The class is direction + case, modulo 4: every class is as likely for each direction, and for each case.
"""
import sys

import h5py
import numpy

SIDE, COLUMNS, CLASSES = 16, 6, 4


def make(samples, seed):
    random = numpy.random.default_rng(seed)
    directions = random.integers(CLASSES, size=samples)
    angles = directions * numpy.pi / CLASSES + random.normal(0, 0.1, samples)
    rows, columns = numpy.mgrid[:SIDE, :SIDE]
    along = numpy.cos(angles)[:, None, None] * rows + numpy.sin(angles)[:, None, None] * columns
    waves = numpy.sin(along + random.uniform(0, 2 * numpy.pi, samples)[:, None, None])
    image = 128 + 60 * waves + random.normal(0, 20, waves.shape)
    table = random.normal(0, 1, (samples, COLUMNS)) * [1, 1, 1, 10, 1, 1] + [0, 0, 0, 100, 0, 0]
    cases = 2 * (table[:, 1] > 0) + (table[:, 4] > 0)
    return {
        "image": numpy.clip(image, 0, 255).astype("uint8")[..., None],
        "table": table.astype("float32"),
        "label": ((directions + cases) % CLASSES).astype("int64"),
    }


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    numbers = [int(text) for text in sys.argv[2:]] + [6000, 1][len(sys.argv) - 2:]
    with h5py.File(sys.argv[1], "w") as file:
        for name, values in make(*numbers).items():
            file[name] = values
