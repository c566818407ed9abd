#!/usr/bin/env python3
"""Quick checks of the projection: against theory, against itself, and that its checks fire. 77: SimGrid is not here.

simulation_test.py LOCKSTEP FOLDER"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import checks
import drawing
import projection
import topologies
from projection import Bucket, Cluster
from simulator import HERE, Failure, Simulator, missing

LOCKSTEP = FOLDER = SIMULATOR = None
MACHINES = json.loads((HERE / "machines.json").read_text())
MEBI = 1 << 20


def row(**changes):
    return {"machine": "m", "network": "n", "gbps": 100, "algorithm": "ring", "overlap": "none", "ranks": 16,
            "hosts": 2, "buckets": 3, "efficiency": 0.9, "all_reduce_ms": 2.0, "link_bound_ms": 1.0, "step_ms": 10.0,
            **changes}


class Theory(unittest.TestCase):
    def test_a_plain_ring_takes_what_the_formula_says(self):
        for ranks, hops in ((2, 2), (5, 2), (16, 2), (32, 4)):
            cluster = Cluster(SIMULATOR, MACHINES["gpu"], ranks, 100, ranks_per_host=1)
            for size in (MEBI, 16 * MEBI):
                theory = checks.plain_ring_seconds(size, ranks, cluster.link, hops * projection.LINK_LATENCY)
                self.assertAlmostEqual(cluster.all_reduce_seconds(size, "slices") / theory, 1, delta=0.02)

    def test_the_programs_ring_lies_between_the_link_alone_and_the_plain_ring(self):
        for ranks in (4, 16):
            cluster = Cluster(SIMULATOR, MACHINES["gpu"], ranks, 100, ranks_per_host=1)
            for size in (MEBI, 16 * MEBI):
                seconds = cluster.all_reduce_seconds(size, "ring")
                self.assertGreater(seconds, cluster.bound(size, "ring"))
                self.assertLess(seconds, 1.03 * cluster.all_reduce_seconds(size, "slices"))

    def test_halving_takes_what_the_formula_says(self):
        for ranks in (4, 16):
            cluster = Cluster(SIMULATOR, MACHINES["gpu"], ranks, 100, ranks_per_host=1)
            for size in (16 << 10, 64 << 10):
                cluster.halving = 0
                ring = cluster.all_reduce_seconds(size, "ring")
                cluster.halving = size
                seconds = cluster.all_reduce_seconds(size, "ring")
                theory = checks.halving_seconds(size, ranks, cluster.link, 2 * projection.LINK_LATENCY)
                self.assertAlmostEqual(seconds / theory, 1, delta=0.02)
                self.assertLess(seconds, ring)

    def test_two_levels_send_less_through_fewer_hops(self):
        cluster = Cluster(SIMULATOR, MACHINES["gpu"], 32, 100)
        seconds = cluster.all_reduce_seconds(8 * MEBI, "two-level")
        self.assertGreater(seconds, cluster.bound(8 * MEBI, "two-level"))
        self.assertLess(seconds, 1.3 * cluster.bound(8 * MEBI, "two-level"))


class Shortcuts(unittest.TestCase):
    """What makes 1,024 ranks affordable changes little."""

    def test_one_ring_stands_for_all(self):
        cluster = Cluster(SIMULATOR, MACHINES["cpu"], 32, 100)
        one, every = (cluster.all_reduce_seconds(4 * MEBI, "two-level", all_rings=rings) for rings in (False, True))
        self.assertAlmostEqual(one / every, 1, delta=0.02)

    def test_a_long_ring_is_continued_from_short_ones(self):
        cluster = Cluster(SIMULATOR, MACHINES["gpu"], 64, 100)
        places, simulate = [], cluster._time_all_reduce
        cluster._time_all_reduce = lambda *arguments: places.append(arguments[2]) or simulate(*arguments)
        some, every = (cluster.all_reduce_seconds(4 * MEBI, "ring", messages) for messages in (3000, 10**9))
        self.assertEqual(places, [places[0], 2 * places[0], 0], "nothing was continued")
        self.assertAlmostEqual(some / every, 1, delta=0.02)

    def test_some_hosts_stand_for_a_larger_cluster(self):
        # Minimal routes in a dragonfly are only approximate: both directions between two switches, or groups, share a
        # link.
        for topology in ("fat-tree", "dragonfly"):
            for halving, delta in ((1 << 40, 0.02), (0, 0.1)):
                some, every = (Cluster(SIMULATOR, MACHINES["gpu"], 512, 400, topology=topology, halving=halving,
                                       most_hosts=most).all_reduce_seconds(4 * MEBI, "two-level") for most in (32, 64))
                self.assertAlmostEqual(some / every, 1, delta=delta, msg=f"{topology}, halving up to {halving}")

    def test_sums_by_halving_lie_on_a_straight_line(self):
        for machine in ("cpu", "gpu"):
            cluster = Cluster(SIMULATOR, MACHINES[machine], 1024, 100, halving=2 * MEBI)
            direct = cluster._time_all_reduce(16 * MEBI, "two-level")
            self.assertAlmostEqual(cluster.all_reduce_seconds(16 * MEBI, "two-level") / direct, 1,
                                   delta=0.02 if machine == "gpu" else 0.1, msg=machine)

    def test_looks_and_sleeps_take_time(self):
        def seconds(**thread):
            machine = {**MACHINES["gpu"], "thread": {"poll_seconds": 0, "sleep_seconds": 0, **thread}}
            return Cluster(SIMULATOR, machine, 16, 100, ranks_per_host=1).all_reduce_seconds(MEBI, "ring")

        busy, looking, sleeping = seconds(), seconds(poll_seconds=1e-5), seconds(sleep_seconds=1e-3)
        self.assertEqual(busy, seconds())
        self.assertGreater(looking, busy + 30 * 1e-5, "each of 30 messages is looked at")
        # At least one wait of the ring sleeps, and no step is later than a sleep.
        self.assertGreater(sleeping, busy + 1e-3)
        self.assertLess(sleeping, busy + 2 * 30 * 4e-3)

    def test_buckets_add_up_to_the_step(self):
        schedule = self.schedule(0.05)
        cluster = Cluster(SIMULATOR, MACHINES["gpu"], 16, 100)
        for algorithm in projection.ALGORITHMS:
            for line in projection.project_point(cluster, schedule, 0.05, algorithm):
                whole = cluster.whole_step(schedule, algorithm, line["overlap"] == "overlap")
                self.assertAlmostEqual(line["step_ms"] / (1e3 * whole), 1, delta=0.02)

    @staticmethod
    def schedule(seconds):
        """Of a network that the program describes: small, but of several buckets."""
        plan, file = FOLDER / "small.jsonl", FOLDER / "small.schedule"
        subprocess.run([LOCKSTEP, "bench", "step", "--hidden", "2048,2048", "--plan", plan], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)
        projection.write_schedule(plan, seconds, file)
        return file


class Projection(unittest.TestCase):
    def test_of_a_small_network_holds_what_must_hold(self):
        schedule = Shortcuts.schedule(0.004)
        rows = []
        for ranks in (8, 16, 32):
            cluster = Cluster(SIMULATOR, MACHINES["gpu"], ranks, 100)
            for algorithm in projection.ALGORITHMS:
                rows += projection.project_point(cluster, schedule, 0.004, algorithm)
        self.assertEqual(checks.complaints(rows), [])
        overlapped = [r["exposed_ms"] for r in rows if r["overlap"] == "overlap" and r["ranks"] == 16]
        after = [r["exposed_ms"] for r in rows if r["overlap"] == "none" and r["ranks"] == 16]
        self.assertTrue(all(a < 0.9 * b for a, b in zip(overlapped, after)), "overlap hides nothing")

    def test_a_schedule_spreads_the_step_over_the_layers(self):
        file = Shortcuts.schedule(0.05)
        words = [line.split() for line in file.read_text().splitlines()]
        self.assertAlmostEqual(sum(float(line[1]) for line in words), 0.05, places=9)
        ends = [int(end) for line in words for end in line[2:]]
        self.assertEqual(ends, sorted(ends))
        buckets = Cluster(SIMULATOR, MACHINES["gpu"], 16, 100).buckets(file, "ring")
        self.assertEqual(sum(bucket.bytes for bucket in buckets), 4 * ends[-1])
        self.assertGreater(len(buckets), 1)
        self.assertAlmostEqual(buckets[-1].ready, 0.05, places=9)
        self.assertLess(buckets[0].ready, 0.049)

    def test_buckets_travel_one_by_one_and_not_before_they_are_ready(self):
        buckets, seconds = [Bucket(1, 2.0), Bucket(2, 2.5), Bucket(3, 9.0)], {1: 1.0, 2: 2.0, 3: 0.5}
        self.assertEqual(projection.compose(buckets, seconds, 9.0, True), 9.5)
        self.assertEqual(projection.compose(buckets, seconds, 9.0, False), 12.5)
        self.assertEqual(projection.compose(buckets[:2], seconds, 4.0, True), 5.0)
        self.assertEqual(projection.compose(buckets[:1], seconds, 4.0, True), 4.0)

    def test_a_picture_has_a_line_for_each_way(self):
        rows = [row(ranks=ranks, algorithm=algorithm, overlap=overlap) for ranks in (16, 64)
                for algorithm in projection.ALGORITHMS for overlap in ("none", "overlap")]
        text = drawing.draw("A & B", "note", [("panel", rows)])
        self.assertEqual(text.count("<polyline"), 4)
        self.assertIn("A &amp; B", text)


    def test_halving_is_the_best_up_to_the_first_size_at_which_it_is_not(self):
        self.assertEqual(projection.best_limit([(1, 5, 6), (2, 6, 7), (3, 9, 8), (4, 9, 10)]), 2)
        self.assertEqual(projection.best_limit([(1, 7, 6)]), 0)


class Topologies(unittest.TestCase):
    def test_of_a_full_dragonfly_have_the_links_of_its_groups(self):
        self.assertIn('"32,16;1,1;32,1;16"', topologies.platform(16384, 1e9, 1e-6, 1e9, 1e-6, topology="dragonfly-minimal"))
        self.assertIn('"32,256;1,1;32,16;16"', topologies.platform(16384, 1e9, 1e-6, 1e9, 1e-6, topology="dragonfly"))
        # Two groups of it: the same links between a pair.
        self.assertIn('"2,16;1,1;32,1;16"',
                      topologies.platform(1024, 1e9, 1e-6, 1e9, 1e-6, topology="dragonfly-minimal", of_hosts=16384))

    def test_a_fat_tree_grows_a_third_level(self):
        self.assertIn('"2;16,32;1,16;1,1"', topologies.platform(512, 1e9, 1e-6, 1e9, 1e-6))
        self.assertIn('"3;16,32,2;1,16,32;1,1,1"', topologies.platform(1024, 1e9, 1e-6, 1e9, 1e-6))

    def test_minimal_routes_of_a_dragonfly_are_crowded(self):
        times = {topology: Cluster(SIMULATOR, MACHINES["gpu"], 1024, 400, topology=topology, halving=1 << 40)
                 .all_reduce_seconds(8 * MEBI, "two-level") for topology in topologies.TOPOLOGIES}
        self.assertAlmostEqual(times["dragonfly"] / times["fat-tree"], 1, delta=0.15)
        self.assertGreater(times["dragonfly-minimal"], 3 * times["dragonfly"])


class ChecksFire(unittest.TestCase):
    def test_on_each_thing_that_cannot_be(self):
        self.assertEqual(checks.complaints([row(), row(ranks=64, efficiency=0.8)]), [])
        self.assertEqual(checks.complaints([row(), row(ranks=64, efficiency=0.91, buckets=2)]), [])
        self.assertEqual(checks.complaints([row(ring_buckets=1), row(ranks=64, efficiency=0.91, ring_buckets=0)]), [])
        for wrong, words in (([row(efficiency=1.01)], "an efficiency of"), ([row(efficiency=0)], "an efficiency of"),
                             ([row(all_reduce_ms=0.9)], "faster than the link's"),
                             ([row(), row(ranks=64, efficiency=0.91)], "the efficiency rises"),
                             ([row(), row(overlap="overlap", step_ms=10.1)], "with overlap 10.1 ms, without 10 ms")):
            said = checks.complaints(wrong)
            self.assertEqual(len(said), 1, said)
            self.assertIn(words, said[0])


class BadInput(unittest.TestCase):
    def simulate(self, text, *arguments):
        with tempfile.NamedTemporaryFile("w", suffix=".schedule") as file:
            file.write(text)
            file.flush()
            cluster = Cluster(SIMULATOR, MACHINES["gpu"], 2, 100)
            return cluster._run([f"schedule={file.name}", *arguments], inputs=[file.name])

    def test_is_told(self):
        for text, arguments, words in (("sideways 1 64\n", [], "not understood: sideways"),
                                       ("forward 1\n", [], "no slices"),
                                       ("layer 1 64\nlayer 1 32\n", [], "must ascend"),
                                       ("layer 1 6400\n", ["speed=2"], "unknown argument speed=2")):
            with self.assertRaises(Failure) as told:
                self.simulate(text, *arguments)
            self.assertIn(words, str(told.exception))
        with self.assertRaises(ValueError):
            Cluster(SIMULATOR, MACHINES["gpu"], 12, 100)

    def test_of_the_command_ends_it(self):
        for arguments, words in ((["--machine", "abacus"], "machines are cpu, gpu"),
                                 (["--network", "alexnet"], "networks are resnet50"),
                                 (["--topology", "torus"], "topologies are fat-tree, dragonfly"),
                                 (["--ranks", "12", "--network", "resnet50"], "12 ranks do not fill hosts of 8")):
            done = subprocess.run([HERE / "project", "run", "--lockstep", LOCKSTEP, "--folder", FOLDER, *arguments],
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    if missing():
        print(f"not run: {missing()}")
        sys.exit(77)
    LOCKSTEP, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    SIMULATOR = Simulator(FOLDER)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
