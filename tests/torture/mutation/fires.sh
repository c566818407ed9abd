#!/usr/bin/env bash
# fires.sh MUTATION_TORTURE FIXTURES: readers have a planted fault; the torture must find each and keep the file.
set -u
torture=$1 fixtures=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
for fault in crash hang words memory altered; do
  patience=100
  [ $fault = hang ] && patience=2
  "$torture" --fixtures "$fixtures" --planted $fault --cases 2 --hang-seconds $patience --keep "$work/$fault" >"$work/out" 2>"$work/err"
  code=$?
  found=$(awk -v fault=$fault '/^subject/ { for (i = 1; i <= NF; ++i) if ($i == fault) column = i } /^all/ { print $column }' "$work/out")
  kept=$(find "$work/$fault" -name "$fault-*" 2>/dev/null | wc -l)
  if [ "$code" != 1 ] || [ "${found:-0}" -lt 1 ] || [ "$kept" -lt 1 ]; then
    echo "FAILED: $fault: exit $code, found ${found:-nothing}, kept $kept"
    cat "$work/out" "$work/err"
    failures=$((failures + 1))
  fi
done
# A subject whose sound files are refused is the torture's own fault, not a finding.
"$torture" --fixtures "$work" --only "HDF5, wide" --cases 1 >"$work/out" 2>&1 && { echo "FAILED: no fixtures"; failures=1; }
[ "$failures" = 0 ] && echo "5 planted faults found"
exit "$failures"
