"""What must hold of a projection, whatever the figures are."""
import math


def complaints(rows):
    """Sentences about rows that cannot be right."""
    said = []
    series = {}
    for row in rows:
        where = " ".join(f"{row[key]}" for key in ("machine", "topology", "network", "gbps", "algorithm", "overlap") if key in row)
        if not 0 < row["efficiency"] <= 1:
            said.append(f"{where}, {row['ranks']} ranks: an efficiency of {row['efficiency']:.4g}")
        if row["all_reduce_ms"] < 0.999 * row["link_bound_ms"]:
            said.append(f"{where}, {row['ranks']} ranks: all-reduce in {row['all_reduce_ms']:.4g} ms, faster than the link's "
                        f"{row['link_bound_ms']:.4g} ms")
        series.setdefault(where, []).append(row)
    for where, points in series.items():
        points.sort(key=lambda row: row["ranks"])
        for fewer, more in zip(points, points[1:]):
            # More ranks may have other buckets or schedules, and then less may remain at the end.
            alike = fewer["hosts"] > 1 and all(fewer.get(key) == more.get(key) for key in ("buckets", "ring_buckets"))
            if alike and more["efficiency"] > fewer["efficiency"] + 0.002:
                said.append(f"{where}: the efficiency rises from {fewer['efficiency']:.4f} at {fewer['ranks']} ranks "
                            f"to {more['efficiency']:.4f} at {more['ranks']}")
    for row in rows:
        for other in rows:
            same = all(row.get(key) == other.get(key)
                       for key in ("machine", "topology", "network", "gbps", "algorithm", "ranks"))
            if same and row["overlap"] == "overlap" and other["overlap"] == "none":
                if row["step_ms"] > other["step_ms"] * 1.000001:
                    said.append(f"{row.get('network', '')} {row['algorithm']}, {row['ranks']} ranks: with overlap "
                                f"{row['step_ms']:.4g} ms, without {other['step_ms']:.4g} ms")
    return said


def plain_ring_seconds(size, ranks, bytes_per_second, latency):
    """A ring of one rank per host, a slice at a time: 2 (p - 1) steps of a slice and a latency each."""
    return 2 * (ranks - 1) * (size / ranks / bytes_per_second + latency)


def halving_seconds(size, ranks, bytes_per_second, latency):
    """Recursive halving, then doubling (Thakur, Rabenseifner, Gropp 2005, one rank per host, a power of two): as many bytes
    as a ring's, in 2 log2 p messages."""
    return 2 * math.log2(ranks) * latency + 2 * (ranks - 1) / ranks * size / bytes_per_second
