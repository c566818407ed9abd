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
plain=$(cd "$(dirname "$checker")" && python3 -B -c 'import check_papers; print(*check_papers.PLAIN)')
for folder in $plain; do mkdir -p "$tree/$folder"; done

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

# comment fires|passes FILE TEXT: TEXT as FILE in a folder whose comments are checked
printf '# One\n' >"$tree/README.md"
folder=model
comment() {
  printf '%b' "$3" >"$tree/$folder/$2"
  output=$(python3 "$checker" "$tree" 2>&1); status=$?
  case $1 in
    fires) [ $status = 1 ] && case $output in "$folder/$2:2: "*"put the subject first"*) true ;; *) false ;; esac ;;
    passes) [ $status = 0 ] ;;
  esac || { echo "FAILED: '$3' should be a $2 that $1 (exit $status): $output"; failures=$((failures + 1)); }
  rm "$tree/$folder/$2"
}
words=
for word in Of Where What Who That Whether How; do words="$words\n/// $word it is.\nint x;\n"; done
for word in of where what who that whether; do words="${words}int x;  ///< $word it is\n"; done
for each in $plain; do printf '%b' "$words" >"$tree/$each/a.hpp"; done
found=$(python3 "$checker" "$tree" | grep -c 'put the subject first')
[ "$found" = $((13 * $(echo "$plain" | wc -w))) ] ||
  { echo "FAILED: $found comments of 13 in each of $plain"; failures=$((failures + 1)); }
for each in $plain; do rm "$tree/$each/a.hpp"; done
comment passes a.hpp '\n/// The number of it.\n/// Of two lines the first counts.\nint x;\n'
comment passes a.cpp 'int xs;  ///< however long\n         ///< what continues it\nauto s = "// What", t = R"x(\n// What\n")x";\n'
comment fires a.cpp '\nint xs;  // What it is\n'
comment fires a.cpp '/// \\file\n/// What it is.\n'
comment fires a.cpp '//\n// Who it is.\n'
comment fires a.cpp '\n/* How it is. */\nint x;\n'
comment fires a.py 'x = """\n"""  # of it\n'
comment passes a.py 'x = """\n# What\n"""\n'
comment fires a.sh '\n# What it is\n'
comment fires run '#!/bin/sh\nls  # where it is\n'
comment passes a.sh '\necho "# What" ${x# where it}\n'
comment fires CMakeLists.txt '\n# What it is\n'

rmdir "$tree/model" && python3 "$checker" "$tree" 2>/dev/null
[ $? = 2 ] || { echo "FAILED: a tree without a folder whose comments are checked should be refused"; failures=$((failures + 1)); }

rm -rf "$tree"/* && python3 "$checker" "$tree" 2>/dev/null
[ $? = 2 ] || { echo "FAILED: a tree without documents should be refused"; failures=$((failures + 1)); }

[ $failures = 0 ] && echo "documents: every rule fires"
[ $failures = 0 ]
