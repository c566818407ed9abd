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
ends 0 "$2" "$1" <<<'check "verdicts"; succeeds --version; fails 2 "nowhere" --nowhere'
ends 1 "$2" "$1" <<<'check "what does not succeed"; succeeds --nowhere'
ends 1 "$2" "$1" <<<'check "what does not fail"; fails 2 "nowhere" --version'
ends 1 "$2" "$1" <<<'check "another exit"; fails 1 "nowhere" --nowhere'
ends 1 "$2" "$1" <<<'check "another message"; fails 2 "never said" --nowhere'
near='expect_near <(printf "1 2\n2 4\n")'
ends 0 "$2" "$1" <<<"check near; $near <(printf '1 2\n2 4.003\n') 0.001 2"
ends 1 "$2" "$1" <<<"check 'another value'; $near <(printf '1 2\n2 4.005\n') 0.001"
ends 1 "$2" "$1" <<<"check 'another step'; $near <(printf '1 2\n3 4\n') 0.001"
ends 1 "$2" "$1" <<<"check 'no value'; $near <(printf '1 2\n2 nan\n') 0.001"
ends 1 "$2" "$1" <<<"check 'one is shorter'; $near <(printf '1 2\n') 0.001"
ends 1 "$2" "$1" <<<"check 'both are short'; $near <(printf '1 2\n2 4\n') 0.001 3"
ends 1 "$2" "$1" <<<'true'
ends 77 "$2" "$1" <<<'skip_all "no reason"'
ends 5 "$2" "$1" <<<'check "a script that gives up"; exit 5'
exit $wrong
