#!/usr/bin/env python3
"""Reads a checkpoint with h5py, as a foreign tool would, and prints what it holds, one line per object:

    format N
    state NAME VALUE
    tensor GROUP/NAME SHAPE DTYPE MEAN

Checks that the tensors are exactly those that the state lists, that each has its checksum and is float32. Exit code 1
otherwise."""
import sys

import h5py
import numpy as np


def text(value) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def main(path: str) -> int:
    with h5py.File(path, "r") as file:
        print("format", int(file.attrs["lockstep_checkpoint_format"]))
        state = file["state"]
        listed = [text(name) for name in state.attrs["tensors"]]
        for name in sorted(state.attrs):
            if name != "tensors":
                print("state", name, text(state.attrs[name]))
        for name in sorted(state):
            print("state", name, len(bytes(state[name][...])), "bytes")

        found = {}
        file.visititems(lambda name, o: found.__setitem__(name, o) if isinstance(o, h5py.Dataset) else None)
        found = {name: o for name, o in found.items() if not name.startswith("state/")}
        problems = [f"missing: {name}" for name in sorted(set(listed) - set(found))]
        problems += [f"not listed: {name}" for name in sorted(set(found) - set(listed))]
        for name, tensor in found.items():
            values = tensor[...]
            mean = float(np.mean(values)) if values.size else 0.0
            print("tensor", name, "x".join(map(str, tensor.shape)) or "scalar", tensor.dtype, f"{mean:.9g}")
            if tensor.dtype != np.dtype("<f4"):
                problems.append(f"not float32: {name}")
            if len(tensor.attrs.get("xxh3_64", "")) != 16:
                problems.append(f"no checksum: {name}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: h5py_read.py FILE")
    sys.exit(main(sys.argv[1]))
