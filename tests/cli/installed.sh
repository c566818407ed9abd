#!/usr/bin/env bash
# An installation works: files in their places, manual pages in man, completion in shells, and scripts and module file
# that find the program.
# label: more
. "$(dirname "$0")/harness.sh"
build=$(dirname "$lockstep")
prefix=$work/prefix share=$work/prefix/share

check "it has all its parts"
command_line="cmake --install $build --prefix $prefix"
cmake --install "$build" --prefix "$prefix" >out 2>err
status=$?
expect_status 0
for file in bin/lockstep share/doc/lockstep/{LICENSE,README.md,slurm/README.md,io/shards/shard_schema.md} \
  share/doc/lockstep/io/checkpoints/checkpoint_format.md share/lockstep/slurm/{launch,attempts,train.sbatch,stop_in_time,chain} \
  share/man/man1/lockstep.1 share/bash-completion/completions/lockstep share/zsh/site-functions/_lockstep \
  share/fish/vendor_completions.d/lockstep.fish; do
  expect_file "$prefix/$file"
done
[ -f "$prefix/bin/lockstep" ] || exit 1

check "links in its documents lead somewhere"
python3 "$tree/tests/cli/dead_links.py" "$share/doc/lockstep" >dead
[ ! -s dead ] || failed "dead links: $(cat dead)"
printf '[there](README.md) and [not](missing.md#part) and [elsewhere](https://example.org/x.md)\n' >links.md
[ "$(python3 "$tree/tests/cli/dead_links.py" .  | grep -c '^links.md: missing.md$')" = 1 ] || failed "the search finds nothing"

lockstep=$prefix/bin/lockstep
succeeds --version

check "each command has a manual page"
run help
sed -n 's/^  lockstep \([a-z][a-z -]*[a-z]\)  .*/\1/p' out >commands
[ "$(wc -l <commands)" -ge 17 ] || failed "only $(wc -l <commands) commands"
while read -r command; do
  expect_file "$share/man/man1/lockstep-${command// /-}.1"
  # shellcheck disable=SC2086  # "bench step" is two words
  "$lockstep" help $command --man | expect_same - "$share/man/man1/lockstep-${command// /-}.1"
done <commands
[ "$(ls "$share/man/man1" | wc -l)" = $(($(wc -l <commands) + 1)) ] || failed "there are other pages than commands"

if command -v groff >/dev/null; then
  check "groff has nothing to say against the pages"
  for page in "$share"/man/man1/*.1; do
    command_line="groff -ww -man -z $page"
    groff -ww -man -Tutf8 -z "$page" >out 2>err || failed "groff failed"
    expect_silence
  done
else
  echo "not run: groff is not here"
fi
# Container images may lack man's formatter.
if man --version >/dev/null 2>&1 && command -v groff >/dev/null; then
  check "man shows them, and warns of nothing"
  for page in "$share"/man/man1/*.1; do
    command_line="man --warnings -l $page"
    MANWIDTH=100 man --warnings -E UTF-8 -l "$page" >out 2>err </dev/null || failed "man failed"
    expect_silence
  done
  MANWIDTH=100 man -l "$share/man/man1/lockstep-train.1" >out 2>err </dev/null
  expect_out '^ +--epochs N'; expect_out 'transformer language model'; expect_out '^EXAMPLES'
else
  echo "not run: man is not here"
fi

# completions SHELL LINE: writes the shell's suggestions at the end of a command line into ./out, one a line.
completions() {
  command_line="completion of $1: $2"
  case $1 in
    bash)
      bash --norc -c '. "$1"; line=$2; read -ra COMP_WORDS <<<"${line//=/ = }"
        [ "${line% }" = "$line" ] || COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _lockstep; printf "%s\n" "${COMPREPLY[@]}"' bash "$share/bash-completion/completions/lockstep" "$2" >out 2>err
      ;;
    fish)
      HOME=$work fish --no-config -c 'source $argv[1]; complete -C "$argv[2]"' "$share/fish/vendor_completions.d/lockstep.fish" "$2" \
        2>err | cut -f 1 | sed 's/^--[a-z-]*=//' >out
      ;;
    zsh)
      # Prints the script's suggestions for zsh's completion system; below zsh itself completes, at a terminal.
      timeout 20 zsh -f -c '
        _describe() { print -rl -- "${(@)commands%%:*}"; }
        compadd() { shift; print -rl -- "$@"; }
        _arguments() {
          local spec option
          for spec in "$@"; do
            spec=${spec#\(*\)} option=${spec%%\[*}
            if [[ $words[-1] == --* && ${words[-1]%%=*}= == $option && $words[-1] == *=* || $words[-2]= == $option ]]; then
              spec=${spec##*:}
              [[ $spec == _files ]] && print -rl -- a-*
              print -rl -- ${=spec//[()]/}
            else
              print -r -- ${option%=}
            fi
          done
        }
        compdef() { :; }
        . "$1/_lockstep" || exit
        words=(${=2}) CURRENT=${#words}
        _lockstep' zsh "$share/zsh/site-functions" "$2" >out 2>err </dev/null
      expect_silence
      # Selects as the completion system does: words that begin like the last word, or like the value after =.
      last=${2##* }
      grep -E "^${last#*=}" out >offered; mv offered out
      ;;
  esac
}
for shell in bash zsh fish; do
  if ! command -v $shell >/dev/null; then
    echo "not run: $shell is not here"
    continue
  fi
  check "$shell completes commands, options, words and files"
  touch a-file
  completions $shell "lockstep tr"
  expect_out '^train$'
  completions $shell "lockstep bench s"
  expect_out '^(step|scale)$'
  completions $shell "lockstep train --optim"
  expect_out '^(--)?optimizer$|^--optimizer$'
  completions $shell "lockstep train --optimizer ada"
  expect_out '^adam$'; expect_out '^adamw$'; expect_no_out '^lamb$'
  completions $shell "lockstep train --wire=bf16-"
  expect_out 'bf16-feedback'
  completions $shell "lockstep train --unro"  # an option of one network alone
  expect_out '^--unroll$'
  completions $shell "lockstep bench all-reduce --csv a-"
  expect_out '^a-file$'
done

if command -v zsh >/dev/null; then
  check "zsh at a terminal completes by itself"
  cat >terminal.zsh <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
said() { local all= part; until [[ $all == *$1* ]]; do zpty -r shell part || return; all+=$part; done; print -r -- "$all"; }
zpty -w shell "PS1= RPS1=; unsetopt prompt_sp; fpath=($1 \$fpath); autoload -Uz compinit; compinit -D -u; setopt no_beep"
zpty -w shell "report() { print -r -- \"[:\$BUFFER:]\"; BUFFER= }; zle -N report; bindkey '^X' report; print ready-\$((1+1))"
said ready-2 >/dev/null
shift
for words in "$@"; do
  zpty -w -n shell "$words"$'\t\x18'
  all=$(said ':]')
  print -r -- ${${all##*\[:}%%:\]*}
done
END
  command_line="zsh: lockstep tra<tab> ..."
  timeout 60 zsh -f terminal.zsh "$share/zsh/site-functions" "lockstep tra" "lockstep train --unro" "lockstep train --optimizer lam" \
    "lockstep train --wire=bf16-" "lockstep bench all-reduce --csv a-" >out 2>err </dev/null
  printf 'lockstep %s\n' "train " "train --unroll=" "train --optimizer lamb " "train --wire=bf16-feedback " "bench all-reduce --csv a-file " >wanted
  expect_same out wanted
fi

check "the scripts start the installed program, and every document is as in the tree"
echo >err
command_line="slurm/launch of the installation"
SLURM_JOB_ID=1 LOCKSTEP_LAUNCHER=mpirun LOCKSTEP_BIND=none OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  bash -x "$share/lockstep/slurm/launch" --version >out 2>err
expect_out '^lockstep [0-9.]+$'
grep -q "prefix/share/lockstep/slurm/../../../bin/lockstep" err || failed "another program was started"

check "the module file: program, scripts, manual pages"
modulecmd=$(ls /usr/lib/*/modulecmd.tcl /usr/lib/x86_64-linux-gnu/modulecmd.tcl /usr/share/modules/libexec/modulecmd.tcl 2>/dev/null | head -n 1)
if [ -n "$modulecmd" ] && command -v tclsh >/dev/null; then
  command_line="module load lockstep"
  (
    eval "$(MODULEPATH=$share/lockstep/modulefiles "$modulecmd" sh load lockstep)"
    echo "$(command -v lockstep)|$LOCKSTEP_SLURM|$LOCKSTEP|$(man -w lockstep-train 2>&1)"
  ) >out 2>err
  expect_out "^$prefix/bin/lockstep\|$share/lockstep/slurm\|$prefix/bin/lockstep\|"
  ! man --version >/dev/null 2>&1 || expect_out "\|$share/man/man1/lockstep-train.1$"  # man looks beside PATH's folders
else
  echo "not run: environment-modules is not here"
fi
