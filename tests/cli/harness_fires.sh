#!/usr/bin/env bash
# harness_fires.sh LOCKSTEP TREE: a script of harness.sh ends with 0 only if it has cases and none of them failed.
# label: more
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
wrong=0
# ends STATUS NAME: the script on standard input, after the harness, ends with STATUS.
ends() {
  local status
  { echo ". '$2/tests/cli/harness.sh'"; cat; } >"$work/script.sh"
  bash "$work/script.sh" "$3" "$2" >"$work/out" 2>&1
  status=$?
  [ $status = "$1" ] && return
  echo "FAILED: ended with $status instead of $1:"
  sed 's/^/  /' "$work/script.sh"
  wrong=1
}

ends 0 "$2" "$1" <<<'check "fine"; run --version; expect_status 0; expect_out "^lockstep "'
ends 1 "$2" "$1" <<<'check "a failure in the middle"; run --version; expect_status 3
check "fine"; run --version; expect_status 0'
ends 1 "$2" "$1" <<<'check "a failure at the end"; run --version; expect_out "never said"'
ends 1 "$2" "$1" <<<'true'
ends 77 "$2" "$1" <<<'skip_all "no reason"'
ends 5 "$2" "$1" <<<'check "a script that gives up"; exit 5'
exit $wrong
