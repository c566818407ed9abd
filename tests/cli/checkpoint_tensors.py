"""Tensors of checkpoints, read by h5py as io/checkpoints/checkpoint_format.md describes them.

checkpoint_tensors.py A B LEAST [TOLERANCE]: both hold the same tensors, LEAST or more, bit by bit or nearly so.
"""
import os
import sys

import h5py
import numpy as np


def tensors_in(file):
    """Path -> values of what the file itself holds."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and item.dtype.kind == "f":
            found[name] = item[...]

    h5py.File(file, "r").visititems(visit)
    return found


def tensors(file):
    found = tensors_in(file)
    state = h5py.File(file, "r")["state"].attrs
    if "parts" not in state:
        return found
    text = [[entry.decode() for entry in state[name]] for name in ("split_tensors", "split_shapes", "parts")]
    split = {path: [int(extent) for extent in shape.split(",") if extent] for path, shape in zip(text[0], text[1])}
    values = {path: np.full(int(np.prod(shape)), np.nan, np.float32) for path, shape in split.items()}
    for part in text[2]:
        for piece, numbers in tensors_in(os.path.join(os.path.dirname(file), part)).items():
            path, first = piece.rsplit("/", 1)
            values[path][int(first) : int(first) + numbers.size] = numbers
    found.update({path: values[path].reshape(shape) for path, shape in split.items()})
    return found


def main(a, b, least, tolerance="0"):
    a, b = tensors(a), tensors(b)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    assert len(a) >= int(least), sorted(a)
    for name in a:
        if float(tolerance) == 0:
            assert a[name].tobytes() == b[name].tobytes(), name
        else:
            np.testing.assert_allclose(a[name], b[name], rtol=float(tolerance), atol=float(tolerance), err_msg=name)
    assert any(np.count_nonzero(values) > 100 for values in a.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
