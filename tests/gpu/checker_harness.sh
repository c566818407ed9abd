# Sourced by the tests of checkers, which are called as: NAME_test.sh PYTHON NVCC
set -u
python=$1 nvcc=$2
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# judge SUBJECT STATUS TEXT PROGRAM ARGUMENT...: PROGRAM of this folder must end with STATUS and print TEXT.
judge() {
  local subject=$1 expected=$2 text=$3 program=$4 output status
  shift 4
  output=$("$python" "$here/$program" "$@" 2>&1)
  status=$?
  if [ $status != "$expected" ]; then echo "$subject: ended with $status, not $expected: $output"; failures=1; fi
  case $output in *"$text"*) ;; *) echo "$subject: did not print '$text': $output"; failures=1 ;; esac
}
