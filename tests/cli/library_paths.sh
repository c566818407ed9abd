#!/usr/bin/env bash
# Programs look for their libraries in safe places: never in the current folder, where anybody may have put one.
# They are hardened as a distribution hardens its own.
# label: more
. "$(dirname "$0")/harness.sh"
build=$(dirname "$lockstep")

# entries PROGRAM: prints its RPATH and RUNPATH, one entry a line.
entries() { readelf -d "$1" | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]$/\2/p' | sed 's/:/\n/g'; }
# has_safe_path PROGRAM: every entry is an absolute folder, or the program's own.
has_safe_path() {
  command_line="readelf -d $1"
  ! entries "$1" | grep -v -e '^/' -e '^\$ORIGIN'
}

# is_hardened PROGRAM: read-only after start, no executable stack, and calls of the C library that check their bounds.
is_hardened() {
  command_line="readelf -ldW $1"
  readelf -ldW "$1" >parts && grep -q 'GNU_RELRO' parts && grep -q 'FLAGS.*\(BIND_NOW\|NOW\)' parts &&
    ! grep -q 'GNU_STACK.*RWE' parts
}
# has_guards PROGRAM: its code has stack protectors and checked calls, and on x86 marks where jumps may land.
has_guards() {
  command_line="readelf -sW $1"
  readelf --dyn-syms -W "$1" >symbols && grep -q '__stack_chk_fail' symbols && grep -q '_chk@' symbols || return 1
  [ "$(uname -m)" != x86_64 ] || objdump -d "$1" --no-show-raw-insn --start-address="0x$(nm "$1" | sed -n 's/ T main$//p')" |
    sed -n '8p' | grep -q 'endbr64'
}

check "every program and library that is built"  # the simulator is a tool of the `cluster` tests, built by them
programs=0
while read -r program; do
  programs=$((programs + 1))
  has_safe_path "$program" || failed "$(basename "$program") looks for libraries in a relative folder"
  sanitized || is_hardened "$program" || failed "$(basename "$program") is not read-only after its start"
done < <(find "$build" -maxdepth 3 \( -path "$build/CMakeFiles" -o -path "$build/simulation" \) -prune -o -type f \( -perm -u+x -o -name '*.so' \) -exec sh -c 'head -c 4 "$1" | grep -q ELF' sh {} \; -print)
[ "$programs" -gt 3 ] || failed "only $programs programs found in $build"

check "every program that is installed"
cmake --install "$build" --prefix "$work/prefix" >out 2>err || failed "cmake --install failed"
has_safe_path "$work/prefix/bin/lockstep" || failed "it looks for libraries in a relative folder"

check "a program with an empty entry is noticed"
echo 'int main(void) { return 0; }' >main.c
cc main.c -o planted -Wl,-rpath,/usr/lib: 2>err || failed "cannot compile"
has_safe_path ./planted >/dev/null && failed "an empty entry passes"

check "the program is hardened, and one that is not is noticed"
sanitized || has_guards "$lockstep" || failed "it has no guards"
cc -no-pie -fno-stack-protector -fcf-protection=none main.c -o plain -Wl,-z,lazy,-z,norelro 2>err || failed "cannot compile"
is_hardened ./plain && failed "a program without RELRO passes"
has_guards ./plain && failed "a program without stack protector passes"

check "a library in the current folder is not loaded"
# An empty library for every name that the program needs: the loader would take it, and fail.
needed=$(readelf -d "$lockstep" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | grep -v -e '^lib[cm]\.so' -e '^ld-')
for library in $needed; do cc -shared -o "$library" -x c /dev/null 2>/dev/null || failed "cannot make $library"; done
succeeds --version
