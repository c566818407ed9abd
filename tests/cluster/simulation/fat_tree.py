"""The cluster as SimGrid reads it, one link per host, both ways at once: hosts on leaf switches and leaves on spines (fat
tree), or hosts on routers, routers in groups that all see each other, groups that all see each other (dragonfly; Kim et
al. 2008)."""

HOSTS_PER_LEAF = 16


def dragonfly(hosts):
    """Groups; chassis of a group; routers of a chassis; hosts of a router: powers of two, as equal as they come."""
    on_router = min(hosts, HOSTS_PER_LEAF)
    parts, left = [1, 1, 1], hosts // on_router
    if on_router * left != hosts or left & (left - 1):
        raise ValueError(f"a dragonfly of {hosts} hosts: only powers of two")
    while left > 1:
        parts[parts.index(min(parts))] *= 2
        left //= 2
    groups, chassis, routers = parts
    return f"{groups},1;{chassis},1;{routers},1;{on_router}"


def platform(hosts, link_bytes_per_second, link_latency, message_bytes_per_second, message_latency,
             oversubscription=1, topology="fat-tree"):
    """XML text. A message passes two links through one leaf or router, four through a spine; within a host, only the
    host's own. `oversubscription`: hosts per uplink of a leaf."""
    down = min(hosts, HOSTS_PER_LEAF)
    leaves = -(-hosts // down)
    spines = max(1, down // oversubscription)
    kind, parameters = (("DRAGONFLY", dragonfly(hosts)) if topology == "dragonfly" and hosts > 1 else
                        ("FAT_TREE", f"2;{down},{leaves};1,{spines};1,1"))
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="host" suffix="" radical="0-{hosts - 1}" speed="1Tf" sharing_policy="SPLITDUPLEX"
           bw="{link_bytes_per_second:.9g}Bps" lat="{link_latency:.9g}s"
           loopback_bw="{message_bytes_per_second:.9g}Bps" loopback_lat="{message_latency:.9g}s"
           topology="{kind}" topo_parameters="{parameters}"/>
</platform>
"""


def hostfile(hosts, ranks_per_host):
    """Ranks fill one host after the other, as launchers place them."""
    return "".join(f"host{host}\n" * ranks_per_host for host in range(hosts))
