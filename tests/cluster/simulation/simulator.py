"""Runs simulated_step under smpirun: compiles it from the program's own sources, and remembers what it said."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import topologies

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCES = [HERE / "simulated_step.cpp", ROOT / "comm/gradient_reducer.cpp", ROOT / "comm/communicator.cpp",
           ROOT / "comm/all_reduce_limits.cpp", ROOT / "comm/host/halving_rounds.cpp"]
SEGMENT = 61440
# No computation is timed. Links have their specified bandwidth, without losses for TCP or opposite traffic. Messages
# wait for their receiver, so that no payload is ever copied. Polling a message or the clock takes no time.
SETTINGS = {"smpi/simulate-computation": "no", "smpi/bw-factor": "0:1", "smpi/lat-factor": "0:1",
            "network/crosstraffic": "0", "network/TCP-gamma": "0", "smpi/shared-malloc": "off",
            "smpi/send-is-detached-thresh": "0", "smpi/async-small-thresh": "0", "smpi/test": "0",
            "smpi/wtime": "0",
            "smpi/display-timing": "no", "contexts/stack-size": "64"}


class Failure(Exception):
    """What the user must be told, in a sentence."""


def missing():
    """What of SimGrid is not installed, or None."""
    for tool in ("smpicxx", "smpirun"):
        if not shutil.which(tool):
            return f"{tool} is missing: it comes with SimGrid (libsimgrid-dev on Debian and Ubuntu)"
    return None


def fields(line):
    """'all_reduce bytes=4 seconds=0.5' -> {'bytes': 4.0, 'seconds': 0.5}"""
    return {key: float(value) for key, value in re.findall(r"(\w+)=([-+.\deE]+)", line)}


class Simulator:
    def __init__(self, folder, seconds=1800):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seconds = seconds
        self.binary = self.folder / "simulated_step"
        self.memory_file = self.folder / "simulated.json"
        self.compile()
        self.version = hashlib.sha256(self.binary.read_bytes()).hexdigest()
        self.memory = json.loads(self.memory_file.read_text()) if self.memory_file.exists() else {}

    def compile(self):
        headers = list((ROOT / "comm").rglob("*.hpp"))
        newest = max(file.stat().st_mtime for file in SOURCES + headers)
        if self.binary.exists() and self.binary.stat().st_mtime > newest:
            return
        command = ["smpicxx", "-std=c++20", "-O2", "-Wall", "-Wextra", "-DSMPI_NO_OVERRIDE_MALLOC", f"-I{ROOT}",
                   *map(str, SOURCES), "-lfmt", "-o", str(self.binary)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=self.folder)
        if done.returncode != 0:
            raise Failure(f"simulated_step does not compile:\n{done.stderr[-4000:]}")

    def run(self, xml, hosts, ranks_per_host, *arguments, inputs=()):
        """The lines that rank 0 says. The same question is asked once: answers are kept in the folder."""
        question = hashlib.sha256("\0".join(
            [self.version, xml, str(hosts), str(ranks_per_host), *arguments,
             *(pathlib.Path(file).read_text() for file in inputs)]).encode()).hexdigest()
        if question in self.memory:
            return self.memory[question]
        stem = self.folder / f"run-{os.getpid()}"
        platform, hostfile = stem.with_suffix(".xml"), stem.with_suffix(".hosts")
        platform.write_text(xml)
        hostfile.write_text(topologies.hostfile(hosts, ranks_per_host))
        command = ["smpirun", "-quiet", "-np", str(hosts * ranks_per_host), "-platform", str(platform), "-hostfile",
                   str(hostfile), "-no-privatize", *(f"--cfg={key}:{value}" for key, value in SETTINGS.items()),
                   "--log=root.thres:warning", str(self.binary), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.seconds, cwd=self.folder)
        except subprocess.TimeoutExpired:
            raise Failure(f"a simulation took longer than {self.seconds} s: {' '.join(arguments)}") from None
        finally:
            platform.unlink()
            hostfile.unlink()
        lines = [line for line in done.stdout.splitlines() if "=" in line]
        if done.returncode != 0 or not lines:
            raise Failure(f"a simulation failed ({' '.join(arguments)}):\n{(done.stdout + done.stderr)[-2000:]}")
        self.memory[question] = lines
        temporary = self.memory_file.with_suffix(".new")
        temporary.write_text(json.dumps(self.memory, indent=0))
        temporary.replace(self.memory_file)
        return lines
