#!/usr/bin/env python3
"""embedded_architectures.py PROGRAM ARCHITECTURE...: which GPUs a program or object brings code for.

ARCHITECTURE as in CMAKE_CUDA_ARCHITECTURES: 90-real is machine code for compute capability 9.0, 90-virtual is PTX, a plain
90 both. Looks for NVIDIA's fat binaries in the file, prints what is in them, and ends with 1 when one of them lacks an
architecture that was named or has another one; with 2 when it could not look. Needs no tool of the CUDA toolkit.
"""
import re
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
# The file's header: magic, version, bytes of the header, bytes of the rest. Each entry's: kind, version, bytes of the
# header, bytes of the code; the compute capability is 28 bytes from its start.
HEADER, ENTRY, CAPABILITY = "<IHHQ", "<HHIQ", 28
KINDS = {1: "PTX", 2: "machine code"}


def fail(message):
    print(f"embedded_architectures.py: {message}", file=sys.stderr)
    sys.exit(2)


def fat_binaries(data):
    """For each fat binary in `data` the set of (kind, compute capability), not empty."""
    found = []
    at = data.find(MAGIC)
    while at >= 0:
        end = at + len(MAGIC)
        if at + struct.calcsize(HEADER) <= len(data):
            _, version, header, size = struct.unpack_from(HEADER, data, at)
            if version == 1 and header == struct.calcsize(HEADER) and at + header + size <= len(data):
                end = at + header + size
                entries = entries_of(data[at + header:end])
                if entries:
                    found.append(entries)
        at = data.find(MAGIC, end)
    return found


def entries_of(data):
    entries = set()
    at = 0
    while at + CAPABILITY + 4 <= len(data):
        kind, _, header, size = struct.unpack_from(ENTRY, data, at)
        if kind not in KINDS or header < CAPABILITY + 4:
            break
        entries.add((kind, struct.unpack_from("<I", data, at + CAPABILITY)[0]))
        at += header + size
    return entries


def wanted_entries(words):
    wanted = set()
    for word in words:
        match = re.fullmatch(r"([0-9]+)[a-z]?(-real|-virtual)?", word)
        if not match:
            fail(f"'{word}' is no architecture like 90, 90-real or 90-virtual")
        if match.group(2) != "-virtual":
            wanted.add((2, int(match.group(1))))
        if match.group(2) != "-real":
            wanted.add((1, int(match.group(1))))
    return wanted


def in_words(entries):
    return ", ".join(f"{KINDS[kind]} for {'sm' if kind == 2 else 'compute'}_{capability}"
                     for kind, capability in sorted(entries, key=lambda entry: (-entry[0], entry[1])))


def main():
    if len(sys.argv) < 3:
        fail("usage: embedded_architectures.py PROGRAM ARCHITECTURE...")
    wanted = wanted_entries(sys.argv[2:])
    try:
        with open(sys.argv[1], "rb") as file:
            found = fat_binaries(file.read())
    except OSError as error:
        fail(error)
    if not found:
        print(f"{sys.argv[1]}: no code for any GPU", file=sys.stderr)
        return 1
    status = 0
    for number, entries in enumerate(found, 1):
        if missing := wanted - entries:
            print(f"{sys.argv[1]}: fat binary {number} lacks {in_words(missing)}", file=sys.stderr)
            status = 1
        if more := entries - wanted:
            print(f"{sys.argv[1]}: fat binary {number} also has {in_words(more)}", file=sys.stderr)
            status = 1
    print(f"{sys.argv[1]}: {len(found)} fat binaries; in all: {in_words(set.intersection(*found)) or 'nothing'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
