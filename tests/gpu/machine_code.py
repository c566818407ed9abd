#!/usr/bin/env python3
"""machine_code.py BUILD_FOLDER [FILTER]: what the compiler made of the kernels, instruction by instruction.

Compiles every .cu of BUILD_FOLDER/compile_commands.json (those whose path contains FILTER) for sm_90, takes it apart
with nvdisasm and looks for
- packs that came apart: a global store of 2 bytes in a basic block that loads 16 bytes at once, or more than the eight
  for each 16-byte store that are the path for rows that are not aligned;
- registers: a kernel of CEILINGS that needs more than leave room for the blocks that its comment speaks of.
Ends with 1 when a rule is broken, with 2 when it could not look, with 77 where there is no nvdisasm: it is in the CUDA
toolkit (cuda-nvdisasm), in PyPI's nvidia-cuda-nvdisasm, or where NVDISASM says.
"""
import collections
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import ptxas_report

ARCHITECTURE = 90
REGISTERS = 65536  # per multiprocessor
# Per kernel: its threads, and the blocks that a multiprocessor must be able to hold.
CEILINGS = {
    r"\bnormalize_rows<8,": (256, 6),
    r"\bnormalize_rows_at_once<8, 3,": (256, 4),
    r"\bnormalize_rows_back<8,": (256, 6),
    r"\bnormalize_rows_back_at_once<8, 3,": (256, 2),
    r"\blook_up_rows<8,": (256, 6),
    r"\badd_runs<8,": (256, 4),
    r"\bcross_entropy_wide<8,": (512, 2),
    r"\bcross_entropy_in_shared\b": (512, 2),
    r"\bflash_attention<64, false>": (128, 4),
    r"\bflash_attention_queries<64, false>": (128, 4),
    r"\bflash_attention_keys<64, false>": (128, 4),
    r"\bupdate_chunk<": (256, 4),
}

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
BRANCHES = ("BRA", "BRX", "JMP", "JMX", "EXIT", "RET", "CALL", "BREAK", "BSYNC")


def nvdisasm():
    """Its path, or None."""
    packages = sysconfig.get_path("purelib")
    places = [shutil.which("nvdisasm"), *glob.glob(f"{packages}/nvidia/*/bin/nvdisasm")]
    if "NVDISASM" in os.environ:
        places = [os.environ["NVDISASM"]]
    return next((path for path in places if path and os.access(path, os.X_OK)), None)


def blocks_of(text):
    """{kernel: [Counter of the accesses of a basic block]} of nvdisasm's text: "LDG.128", "STG.16" and so on."""
    kernels, blocks = {}, None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+(\.?[\w.$]+)", line):
            is_code = section.group(1).startswith(".text.")
            blocks = kernels.setdefault(section.group(1)[len(".text."):], [collections.Counter()]) if is_code else None
        elif blocks is None:
            continue
        elif re.match(r"\.L_\w+:", line):
            blocks.append(collections.Counter())
        elif match := INSTRUCTION.match(line):
            name, *suffixes = match.group(1).split(".")
            if name in ("LDG", "STG"):
                bits = next((s.lstrip("US") for s in suffixes if s in ("U8", "S8", "U16", "S16", "64", "128")), "32")
                blocks[-1][f"{name}.{bits}"] += 1
            elif name in BRANCHES:
                blocks.append(collections.Counter())
    return kernels


def broken_packs(blocks):
    """What is wrong with a kernel's accesses, or None."""
    for block in blocks:
        if block["LDG.128"] and block["STG.16"]:
            return f"{block['STG.16']} global stores of 2 bytes beside {block['LDG.128']} loads of 16"
    small, whole = (sum(block[kind] for block in blocks) for kind in ("STG.16", "STG.128"))
    if whole and small > 8 * whole + 8:
        return f"{small} global stores of 2 bytes, {whole} of 16"
    return None


def too_many_registers(kernel, registers):
    """What is wrong with a kernel's registers, or None. A warp takes them in portions of 8 a thread."""
    for pattern, (threads, blocks) in CEILINGS.items():
        ceiling = REGISTERS // (threads * blocks) // 8 * 8
        if re.search(pattern, kernel) and registers > ceiling:
            return f"{registers} registers: {blocks} blocks of {threads} threads leave {ceiling}"
    return None


def look_at(entry):
    """[(kernel, problem)] and the kernels looked at."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "kernels.cubin")
        command = ptxas_report.for_architectures(ptxas_report.device_command(entry, cubin), [ARCHITECTURE])
        command[command.index("-fatbin")] = "-cubin"
        done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
        if done.returncode != 0:
            ptxas_report.fail(f"{entry['file']} does not compile: {done.stderr}")
        text = subprocess.run([nvdisasm(), "-c", cubin], capture_output=True, text=True)
        if text.returncode != 0:
            ptxas_report.fail(f"nvdisasm does not read {entry['file']}: {text.stderr}")
    kernels = blocks_of(text.stdout)
    registers = {name: count for name, _, count, *_ in ptxas_report.kernels_of(done.stdout + done.stderr)}
    if not kernels or kernels.keys() != registers.keys():
        ptxas_report.fail(f"{entry['file']}: nvdisasm and ptxas speak of different kernels")
    names = ptxas_report.demangled(sorted(kernels))
    problems = [(names[name], problem) for name, blocks in kernels.items()
                for problem in (broken_packs(blocks), too_many_registers(names[name], registers[name])) if problem]
    return problems, list(names.values())


def main():
    if nvdisasm() is None:
        print("machine_code.py: not run: there is no nvdisasm (PyPI: nvidia-cuda-nvdisasm)", file=sys.stderr)
        return 77
    problems, kernels = [], []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for broken, names in pool.map(look_at, ptxas_report.entries_of(sys.argv)):
            problems += broken
            kernels += names
    missing = [pattern for pattern in CEILINGS if not any(re.search(pattern, name) for name in kernels)]
    if len(sys.argv) < 3 or sys.argv[2] == "model/cuda/":  # no file was left out
        problems += [(pattern, "no such kernel: CEILINGS is out of date") for pattern in missing]
    for kernel, problem in sorted(problems):
        print(f"machine_code.py: {ptxas_report.short(kernel)}: {problem}", file=sys.stderr)
    print(f"{len(kernels)} kernels, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
