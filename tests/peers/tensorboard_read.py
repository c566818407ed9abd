#!/usr/bin/env python3
"""Reads an event folder with the real TensorBoard package and prints what it holds, one line per value:

    scalar TAG STEP VALUE
    histogram TAG STEP MIN MAX NUM SUM BUCKETS

Needs the Python package `tensorboard`. Exit code 1 where the folder holds nothing."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main(folder: str) -> int:
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    for tag in sorted(tags["scalars"]):
        for value in events.Scalars(tag):
            print(f"scalar {tag} {value.step} {value.value!r}")
    for tag in sorted(tags["histograms"]):
        for value in events.Histograms(tag):
            h = value.histogram_value
            print(f"histogram {tag} {value.step} {h.min!r} {h.max!r} {h.num!r} {h.sum!r} {len(h.bucket)}")
    return 0 if tags["scalars"] or tags["histograms"] else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tensorboard_read.py FOLDER")
    sys.exit(main(sys.argv[1]))
