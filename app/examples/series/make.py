#!/usr/bin/env python3
"""Writes a series to forecast: python3 make.py OUT.csv [STEPS] [SEED]

The three numbers of the Lorenz system (Lorenz 1963), every 0.05 units of time, with noise of a hundredth of their
spread. It is chaotic: what follows is determined by what was, but not linearly. Rows are steps of time; the header names
the columns.
"""
import sys

import numpy as np

out = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 6000
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
random = np.random.default_rng(seed)


def slope(s):
    return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])


state, rows, dt, inner = random.normal(size=3) + [0, 0, 25], [], 0.01, 5
for step in range(steps + 200):
    for _ in range(inner):  # Runge-Kutta of order 4
        a = slope(state)
        b = slope(state + dt / 2 * a)
        c = slope(state + dt / 2 * b)
        state = state + dt / 6 * (a + 2 * b + 2 * c + slope(state + dt * c))
    if step >= 200:
        rows.append(state)
rows = np.array(rows)
rows += random.normal(size=rows.shape) * rows.std(axis=0) / 100
np.savetxt(out, rows, fmt="%.5f", delimiter=",", header="x,y,z", comments="")
