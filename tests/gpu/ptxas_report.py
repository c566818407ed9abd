#!/usr/bin/env python3
"""ptxas_report.py BUILD_FOLDER [FILTER] [--for NN,...]: what the kernels need of a GPU's registers and memory.

Compiles every .cu of BUILD_FOLDER/compile_commands.json (those whose path contains FILTER) once more, device code only
and with the build's own options, for its real architectures or those of --for (80: compute capability 8.0). Prints what
ptxas says of each kernel. Ends with 1 when a kernel spills registers or, without --for, has a stack frame, or when an
architecture is missing; with 2 when it could not look.
"""
import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile


def fail(message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(2)


def device_command(entry, output):
    """The entry's command without the host's half."""
    words = shlex.split(entry["command"]) if "command" in entry else list(entry["arguments"])
    command = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "-o":
            skip = True
        elif word not in ("-c", "-dc"):
            command.append(word)
    return command + ["-fatbin", "-Xptxas=-v", "-o", output]


def for_architectures(command, numbers):
    """The command for these compute capabilities instead of the build's."""
    kept = [word for word in command if not word.startswith("--generate-code")]
    return kept + [f"--generate-code=arch=compute_{number},code=[sm_{number}]" for number in numbers]


def real_architectures(command):
    return set(re.findall(r"sm_[0-9]+[a-z]?", " ".join(command)))


def demangled(names):
    try:
        text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in names}
    return dict(zip(names, text.splitlines()))


ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(sm_\S+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def kernels_of(report):
    """[(kernel, architecture, registers, shared, stack, stores, loads)] of what ptxas -v has said."""
    kernels, name, frame = [], None, (0, 0, 0)
    for line in report.splitlines():
        if match := ENTRY.search(line):
            name, frame = match.groups(), (0, 0, 0)
        elif match := FRAME.search(line):
            frame = tuple(max(a, int(b)) for a, b in zip(frame, match.groups()))
        elif (match := USED.search(line)) and name:
            kernels.append((*name, int(match.group(1)), int(match.group(2) or 0), *frame))
            name = None
    return kernels


def compile_one(entry, numbers):
    with tempfile.TemporaryDirectory() as folder:
        command = device_command(entry, os.path.join(folder, "device.fatbin"))
        command = for_architectures(command, numbers) if numbers else command
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return entry, command, done.returncode, done.stdout + done.stderr


def entries_of(arguments):
    """nvcc's compilations of .cu files in the build folder, by the program's arguments."""
    if len(arguments) not in (2, 3):
        fail(f"usage: {os.path.basename(arguments[0])} BUILD_FOLDER [FILTER] [--for NN,...]")
    try:
        with open(os.path.join(arguments[1], "compile_commands.json")) as file:
            entries = json.load(file)
    except (OSError, ValueError) as error:
        fail(f"no list of compilations: {error}")
    wanted = arguments[2] if len(arguments) == 3 else ""
    # A test may also compile the same source as C++: only nvcc's compilations count.
    entries = [e for e in entries if e["file"].endswith(".cu") and wanted in e["file"]
               and "nvcc" in os.path.basename(shlex.split(e["command"])[0] if "command" in e else e["arguments"][0])]
    if not entries:
        fail(f"no compilation of a .cu file by nvcc in {arguments[1]}")
    return entries


def short(name):
    return re.sub(r"^void |lockstep::model::(cuda::)?|\(anonymous namespace\)::", "", name)


def main():
    problems = []
    rows = []
    arguments, numbers = sys.argv, []
    if len(arguments) > 3 and arguments[-2] == "--for":
        *arguments, _, numbers = arguments
        numbers = numbers.split(",")
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for entry, command, status, report in pool.map(
                functools.partial(compile_one, numbers=numbers), entries_of(arguments)):
            if status != 0:
                print(report, file=sys.stderr)
                fail(f"{entry['file']} does not compile")
            source = os.path.basename(entry["file"])
            kernels = kernels_of(report)
            for architecture in sorted(real_architectures(command)):
                if not any(kernel[1] == architecture for kernel in kernels):
                    problems.append(f"{source}: ptxas says nothing of a kernel for {architecture}")
            rows += [(source, *kernel) for kernel in kernels]
    names = demangled(sorted({row[1] for row in rows}))
    print(f"{'architecture':12} {'registers':>9} {'shared':>7} {'stack':>6} {'spill':>6}  kernel")
    for source, name, architecture, registers, shared, stack, stores, loads in sorted(rows):
        kernel = short(names[name])
        print(f"{architecture:12} {registers:9} {shared:7} {stack:6} {stores + loads:6}  {source}: {kernel}")
        if stores or loads or (stack and not numbers):
            problems.append(f"{source}: {kernel} for {architecture} has a stack frame of {stack} bytes and spills registers "
                            f"({stores} bytes written, {loads} read)")
    for problem in problems:
        print(f"ptxas_report.py: {problem}", file=sys.stderr)
    if not problems:
        print(f"{len(rows)} kernels{'' if numbers else ', no stack frame'}, no spilled register")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
