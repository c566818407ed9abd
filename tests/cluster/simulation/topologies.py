"""Clusters as SimGrid reads them: hosts with one link each, both ways at once, and the switches between them."""

HOSTS_PER_SWITCH = 16
# Largest fat tree of leaves and spines; a larger one has pods of PODS_LEAVES leaves and a level above them.
HOSTS_OF_TWO_LEVELS = 512
LEAVES_OF_POD = 32
# Switches per group of a dragonfly, each with a link to every other one of its group (Kim et al. 2008).
SWITCHES_OF_GROUP = 32
TOPOLOGIES = ("fat-tree", "dragonfly", "dragonfly-minimal")


def fat_tree(hosts, oversubscription):
    """A message passes two links through one leaf, four through a spine, six through the third level."""
    down = min(hosts, HOSTS_PER_SWITCH)
    leaves = -(-hosts // down)
    spines = max(1, down // oversubscription)
    if hosts <= HOSTS_OF_TWO_LEVELS:
        return "FAT_TREE", f"2;{down},{leaves};1,{spines};1,1"
    return "FAT_TREE", f"3;{down},{LEAVES_OF_POD},{-(-leaves // LEAVES_OF_POD)};1,{spines},{LEAVES_OF_POD};1,1,1"


def dragonfly(hosts, oversubscription, minimal, of_hosts):
    """Groups of switches that are all joined, with together as many links to other groups as a group has hosts.
    Minimal routing sends what goes from one group to another over the links between these two. Otherwise routing is
    taken to be adaptive: messages go by all other groups (Valiant), so that every pair of groups, and of switches in a
    group, has half of all links to itself, as long as a switch or group sends to one other at a time. That is what
    rounds do, and there is no routing of that kind in SimGrid."""
    down = min(hosts, HOSTS_PER_SWITCH)
    switches = min(-(-hosts // down), SWITCHES_OF_GROUP)
    groups = -(-hosts // (down * switches))
    between = down * switches // oversubscription
    others = -(-of_hosts // (down * switches)) - 1
    pair = max(1, between // max(others, 1) if minimal else between // 2)
    inside = 1 if minimal else SWITCHES_OF_GROUP // 2
    return "DRAGONFLY", f"{groups},{pair};1,1;{switches},{inside};{down}"


def platform(hosts, link_bytes_per_second, link_latency, message_bytes_per_second, message_latency,
             oversubscription=1, topology="fat-tree", of_hosts=0):
    """XML text. Within a host a message passes only the host's own link. `oversubscription`: hosts per link of a leaf to
    the spines, or of a group to other groups. Hosts fill their switches, groups and pods. `of_hosts`: of the cluster
    of which these are a part."""
    kind, parameters = (fat_tree(hosts, oversubscription) if topology == "fat-tree" else
                        dragonfly(hosts, oversubscription, topology == "dragonfly-minimal", max(hosts, of_hosts)))
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
