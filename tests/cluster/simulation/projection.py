"""From a network, a machine and a cluster to the seconds of a training step.

Each size of bucket is simulated alone; a step is then put together as the communication thread works: one bucket after
the other, each not before it is ready. Simulating the step as a whole says the same (`project compare`) and costs more.
"""
import dataclasses
import json
import math
import pathlib

import topologies
from simulator import SEGMENT, fields

LINK_LATENCY = 1e-6  # per link, with its share of switch and MPI: 2 us within a leaf, 4 us through a spine
ALGORITHMS = ("ring", "two-level")
NETWORKS = {
    "resnet50": ["--model", "resnet", "--depth", "50", "--image", "224x224x3", "--outputs", "1000"],
    "gpt2-124m": ["--model", "gpt", "--layers", "12", "--width", "768", "--heads", "12", "--context", "1024",
                  "--outputs", "50257"],
}
# Largest number of messages of one simulation; above it a ring of fewer places represents all (see
# Cluster.all_reduce_seconds).
MOST_MESSAGES = 30_000
# Buckets whose sizes differ by less are simulated as one.
ALIKE = 0.005
# Largest number of simulated hosts: two pods of a fat tree, two groups of a dragonfly. They represent a larger cluster,
# because each host sends as far, and as much over the links of its pod or group.
MOST_HOSTS = 1024
# Up to this number of hosts each size of sum by halving is simulated.
HOSTS_OF_EACH_SIZE = 64


def write_schedule(plan_file, step_seconds, schedule_file):
    """Spreads a step's seconds over forward and the layers of backward by their FLOPs."""
    layers = [json.loads(line) for line in pathlib.Path(plan_file).read_text().splitlines()]
    forward = sum(layer["forward_flops"] for layer in layers)
    per_flop = step_seconds / (forward + sum(layer["backward_flops"] for layer in layers))
    lines = [f"forward {forward * per_flop:.12g}"]
    for layer in layers:
        lines.append(" ".join(["layer", f"{layer['backward_flops'] * per_flop:.12g}", *map(str, layer["slice_ends"])]))
    pathlib.Path(schedule_file).write_text("\n".join(lines) + "\n")


@dataclasses.dataclass(frozen=True)
class Bucket:
    bytes: int
    ready: float


def compose(buckets, seconds_of, compute, overlap):
    """When the last bucket has been summed, seconds after the step began."""
    now = 0.0
    for bucket in buckets:
        now = max(now, bucket.ready if overlap else compute) + seconds_of[bucket.bytes]
    return max(now, compute)


class Cluster:
    """`ranks` of a machine on hosts with one link of `gbps` each."""

    def __init__(self, simulator, machine, ranks, gbps, ranks_per_host=None, oversubscription=1,
                 bucket_size=0, topology="fat-tree", halving=None, most_hosts=MOST_HOSTS):
        """`halving`: sums of so many bytes on a ring and fewer go by halving; None: the program's rule."""
        self.simulator, self.machine, self.ranks = simulator, machine, ranks
        self.local = min(ranks, ranks_per_host or machine["ranks_per_host"])
        if ranks % self.local != 0:
            raise ValueError(f"{ranks} ranks do not fill hosts of {self.local}")
        self.hosts = ranks // self.local
        self.link = gbps * 1e9 / 8
        self.oversubscription, self.bucket_size = oversubscription, bucket_size
        self.simulated_hosts = min(self.hosts, most_hosts)
        self.topology, self.chosen_halving = topology, halving
        self.halving = halving or 0  # if the rule decides, it is known with the buckets

    def _run(self, arguments, share=1, per_host=None, inputs=()):
        message = self.machine["message"]
        xml = topologies.platform(self.simulated_hosts, self.link / share, LINK_LATENCY, message["bytes_per_second"],
                                  message["latency"], self.oversubscription, self.topology, self.hosts)
        return self.simulator.run(xml, self.simulated_hosts, per_host or self.local, *arguments, inputs=inputs)

    def rule(self, algorithm):
        return self.machine["ring_rule"] if algorithm == "ring" else algorithm

    def _rates(self, algorithm):
        shared, adds = self.machine["shared"], self.machine["adds"]
        thread = self.machine.get("thread", {"poll_seconds": 0, "sleep_seconds": 0})
        rates = [f"local={self.local}", f"add={adds['bytes_per_second']:.9g}", f"poll={thread['poll_seconds']:.9g}",
                 f"sleep={thread['sleep_seconds']:.9g}"]
        if self.simulated_hosts < self.hosts:
            rates.append(f"length={self.ring_length(algorithm)}")
        if algorithm == "two-level":
            rates += [f"memory={shared['bytes_per_second']:.9g}",
                      f"sync={shared['barrier_seconds']:.9g}"]
        return rates

    def buckets(self, schedule, algorithm):
        xml = topologies.platform(1, self.link, LINK_LATENCY, 1e9, 1e-6)
        lines = self.simulator.run(xml, 1, 1, f"schedule={schedule}", f"transport={self.rule(algorithm)}",
                                   f"ranks={self.ranks}", f"local={self.local}", f"bucket={self.bucket_size}", "list=1", inputs=[schedule])
        # GPUs on one ring use NCCL's schedule, and no other.
        limit = int(fields(lines[-1])["halving"]) if self.chosen_halving is None else self.chosen_halving
        self.halving = 0 if self.rule(algorithm) == "nccl" else limit
        return [Bucket(int(f["bytes"]), f["ready"]) for f in map(fields, lines[:-1])]

    def _time_all_reduce(self, size, algorithm, places=0, all_rings=False, halving=None):
        arguments = [f"algorithm={algorithm}", f"places={places}", f"bytes={size}",
                     f"halving={self.halving if halving is None else halving}"] + self._rates(algorithm)
        if algorithm == "two-level" and not all_rings:
            lines = self._run(arguments + ["rings=1"], share=self.local, per_host=1)
        else:
            lines = self._run(arguments)
        return next(fields(line)["seconds"] for line in lines if line.startswith("all_reduce "))

    def ring_length(self, algorithm):
        return self.hosts if algorithm == "two-level" else self.ranks

    def _halving_seconds(self, size, algorithm, all_rings):
        """On many hosts from a straight line through two sizes: its rounds are the same at any."""
        if self.simulated_hosts <= HOSTS_OF_EACH_SIZE:
            return self._time_all_reduce(size, algorithm, 0, all_rings)
        scale = self.local if algorithm == "two-level" else 1
        least, most = scale * 64 * max(self.ring_length(algorithm), 1024), scale * (64 << 20)
        first, last = (self._time_all_reduce(of, algorithm, 0, all_rings, halving=most) for of in (least, most))
        return max(0.0, first + (size - least) * (last - first) / (most - least))

    def all_reduce_seconds(self, size, algorithm, most_messages=MOST_MESSAGES, all_rings=False):
        """Seconds of one bucket's all-reduce. A long ring repeats itself: above `most_messages`, rings of fewer places with
        parts of the same size are simulated on the same hosts, a number and twice that, and the rest is continued at
        the difference."""
        length = self.ring_length(algorithm)
        part = size / self.local if algorithm == "two-level" else size
        if part <= self.halving:
            return self._halving_seconds(size, algorithm, all_rings)
        segments = max(1, math.ceil(part / length / SEGMENT))
        simulated = self.simulated_hosts * (self.local if algorithm != "two-level" or all_rings else 1)
        least = 2 if algorithm == "two-level" else 2 * self.local  # a ring's hops repeat from host to host
        whole = self.simulated_hosts == self.hosts
        some = length if whole else length * self.simulated_hosts // self.hosts // 2
        while some % 2 == 0 and some // 2 >= least and 2 * some * simulated * segments > most_messages:
            some //= 2
        if whole and some >= length // 2:
            return self._time_all_reduce(size, algorithm, 0, all_rings)
        first, second = (self._time_all_reduce(size, algorithm, places, all_rings) for places in (some, 2 * some))
        return second + (length - 2 * some) * (second - first) / some

    def seconds_of_sizes(self, sizes, algorithm):
        """{size: seconds}; sizes that hardly differ share a simulation."""
        seconds, largest = {}, None
        for size in sorted(set(sizes), reverse=True):
            if largest is None or size < (1 - ALIKE) * largest:
                largest = size
                seconds[size] = self.all_reduce_seconds(size, algorithm)
            else:
                seconds[size] = seconds[largest] * size / largest
        return seconds

    def control_seconds(self, algorithm):
        arguments = [f"algorithm={algorithm}", "bytes=4096"] + self._rates(algorithm)
        lines = self._run(arguments + ["rings=1"], per_host=1) if algorithm == "two-level" else self._run(arguments)
        return next(fields(line)["seconds"] for line in lines if line.startswith("control "))

    def whole_step(self, schedule, algorithm, overlap):
        """The step simulated in one piece, every rank of it."""
        lines = self._run([f"schedule={schedule}", f"algorithm={algorithm}", f"transport={self.rule(algorithm)}",
                           f"bucket={self.bucket_size}", f"overlap={int(overlap)}",
                           f"halving={self.halving}"] + self._rates(algorithm),
                          inputs=[schedule])
        return fields(lines[-1])["seconds"]

    def bound(self, size, algorithm):
        """Seconds that a host's link alone needs: every algorithm here moves 2 (n - 1) / n of the bytes through it."""
        length = self.ring_length(algorithm)
        return 2 * (length - 1) / length * size / self.link if self.hosts > 1 else 0.0


# Sums of a ring whose schedules are compared, bytes.
COMPARED = tuple(4 ** i << 10 for i in range(4, 9))


def compare_schedules(cluster):
    """Of one ring of each host's: [(bytes, seconds by halving, seconds round the ring)]."""
    def seconds(size, halving):
        cluster.halving = halving
        return cluster.all_reduce_seconds(size * cluster.local, "two-level")
    return [(size, seconds(size, 1 << 60), seconds(size, 0)) for size in COMPARED]


def best_limit(compared):
    """The largest size up to which halving is the faster one; 0: it never is."""
    limit = 0
    for size, halving, ring in compared:
        if halving > ring:
            break
        limit = size
    return limit


def project_point(cluster, schedule, compute, algorithm):
    """Two rows: overlapped and not."""
    buckets = cluster.buckets(schedule, algorithm)
    seconds = cluster.seconds_of_sizes([bucket.bytes for bucket in buckets], algorithm)
    control = cluster.control_seconds(algorithm)
    share = cluster.local if algorithm == "two-level" else 1
    by_ring = sum(bucket.bytes > share * cluster.halving for bucket in buckets)
    rows = []
    for overlap in (False, True):
        step = compose(buckets, seconds, compute, overlap) + control
        rows.append({"ranks": cluster.ranks, "hosts": cluster.hosts, "algorithm": algorithm,
                     "overlap": "overlap" if overlap else "none", "buckets": len(buckets), "ring_buckets": by_ring,
                     "compute_ms": 1e3 * compute, "all_reduce_ms": 1e3 * (sum(seconds[b.bytes] for b in buckets) + control),
                     "link_bound_ms": 1e3 * sum(cluster.bound(b.bytes, algorithm) for b in buckets),
                     "exposed_ms": 1e3 * (step - compute), "step_ms": 1e3 * step, "efficiency": compute / step})
    return rows
