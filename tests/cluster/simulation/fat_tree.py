"""The cluster as SimGrid reads it: hosts on leaf switches, leaves on spines, one link per host, both ways at once."""

HOSTS_PER_LEAF = 16


def platform(hosts, link_bytes_per_second, link_latency, message_bytes_per_second, message_latency,
             oversubscription=1):
    """XML text. A message passes two links through one leaf, four through a spine; within a host, only the host's own.
    `oversubscription`: hosts per uplink of a leaf."""
    down = min(hosts, HOSTS_PER_LEAF)
    leaves = -(-hosts // down)
    spines = max(1, down // oversubscription)
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="host" suffix="" radical="0-{hosts - 1}" speed="1Tf" sharing_policy="SPLITDUPLEX"
           bw="{link_bytes_per_second:.9g}Bps" lat="{link_latency:.9g}s"
           loopback_bw="{message_bytes_per_second:.9g}Bps" loopback_lat="{message_latency:.9g}s"
           topology="FAT_TREE" topo_parameters="2;{down},{leaves};1,{spines};1,1"/>
</platform>
"""


def hostfile(hosts, ranks_per_host):
    """Ranks fill one host after the other, as launchers place them."""
    return "".join(f"host{host}\n" * ranks_per_host for host in range(hosts))
