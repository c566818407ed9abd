#!/usr/bin/env bash
# A control group that leaves a job few CPUs of its host: the plan, check and --version count those.
# label: more
. "$(dirname "$0")/harness.sh"
quota=50000 group=""
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup; do
  [ -e "$root/cgroup.procs" ] && mkdir "$root/lockstep-$$" 2>/dev/null || continue
  group=$root/lockstep-$$
  if [ -e "$group/cpu.max" ]; then echo "$quota 100000" >"$group/cpu.max"; fi 2>/dev/null
  if [ -e "$group/cpu.cfs_quota_us" ]; then echo $quota >"$group/cpu.cfs_quota_us"; fi 2>/dev/null
  grep -q "^$quota" "$group/cpu.max" "$group/cpu.cfs_quota_us" 2>/dev/null && break
  rmdir "$group"
  group=""
done
[ -n "$group" ] || skip_all "no right to make a control group with a quota of CPUs"
remove_group() { for _ in $(seq 100); do rmdir "$group" 2>/dev/null && break; sleep 0.1; done; }
trap 'code=$?; remove_group; (exit $code); end_of_script' EXIT
script limited <<END
echo \$\$ >$group/cgroup.procs
exec "\$@"
END
pack_small data

check "check"
run -u ./limited check --data data --hidden 16 --seconds 0.2
expect_out "^cores +warning .*the control group .*lockstep-$$ on .* may use 0.5 CPUs"
expect_out "runs 1 rank on 0.5 of its [0-9]+ cores? \(control group .*lockstep-$$\)"
check "the plan"
succeeds -u ./limited train --data data --hidden 16 --dry-run
expect_err "warning: .* runs 1 rank on 0.5 of its [0-9]+ cores? \(control group .*\): start fewer ranks"
succeeds train --data data --hidden 16 --dry-run
expect_silence
check "--version"
run -u ./limited --version
expect_out '^CPU: .*, 1 processor, with'
