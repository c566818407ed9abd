#!/bin/sh
# Every rule of check_papers.py fires, and none fires on what is right.
checker=$(cd "$(dirname "$0")" && pwd)/check_papers.py
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
failures=0

mkdir -p "$tree/app"
printf '#!/bin/sh\necho "  --[no-]graph  --data PATH"\n' >"$tree/lockstep"
chmod +x "$tree/lockstep"
printf '# The other\n\n## Options, by theme\n' >"$tree/app/README.md"

# expect fires|passes REASON TEXT: TEXT in a document, with the program above
expect() {
  printf '# One\n\n%s\n' "$3" >"$tree/README.md"
  output=$(python3 "$checker" "$tree" "$tree/lockstep" 2>&1); status=$?
  case $1 in
    fires) [ $status = 1 ] && case $output in "README.md:3: "*"$2"*) true ;; *) false ;; esac ;;
    passes) [ $status = 0 ] ;;
  esac || { echo "FAILED: '$3' should be one that $1 (exit $status): $output"; failures=$((failures + 1)); }
}

expect passes "" "[a file](app/README.md), [a folder](app/), [elsewhere](https://example.org/none#none)"
expect fires "app/NONE.md" "[a file](app/NONE.md)"
expect fires "../outside" "[a file](../outside)"
expect passes "" "[a heading](app/README.md#options-by-theme), [here](#one)"
expect fires "no heading" "[a heading](app/README.md#options)"
expect fires "no heading" "[here](#two)"
expect passes "" "the options \`--data\`, \`--graph\`, \`--no-graph\`, and cmake's \`--preset\`"
expect fires "--synthetic" "the option \`--synthetic\`"
expect fires "--no-data" "the option \`--no-data\`"
line=$(printf '%0140d' 0)
expect passes "" "$line"
expect fires "141 columns" "0$line"
expect passes "" "| 0$line |"

rm -rf "$tree"/* && python3 "$checker" "$tree" 2>/dev/null
[ $? = 2 ] || { echo "FAILED: a tree without documents should be refused"; failures=$((failures + 1)); }

[ $failures = 0 ] && echo "documents: every rule fires"
[ $failures = 0 ]
