#!/usr/bin/env bash
# The hosts themselves: what they share and what not, that a cut is a cut, that the checks of the other scripts fire, and
# that nothing is left of them.
# seconds: 120
. "$(dirname "$0")/harness.sh"
: >out >err
nodes 3 --rate 200mbit
first=$LOCKSTEP_HOSTS
# talks HOST HOST: a message of a process here reaches a process there.
talks() {
  "$hosts" exec "$1" timeout 10 python3 -c '
import errno, socket, sys
s = socket.socket()
s.settimeout(1)
sys.exit(0 if s.connect_ex((sys.argv[1], 7)) == errno.ECONNREFUSED else 1)' "198.18.1.${2#node}"
}

check "names, processes, /tmp and /dev/shm of their own"
[ "$("$hosts" exec node2 hostname)" = node2 ] || failed "node2 has another name"
"$hosts" exec node1 touch /tmp/mine /dev/shm/mine
expect "$hosts" exec node1 test -e /tmp/mine
expect "$hosts" exec node2 test ! -e /tmp/mine
expect [ ! -e /tmp/mine ]
expect "$hosts" exec node2 test ! -e /dev/shm/mine
expect "$hosts" exec node2 test -x "$lockstep"
touch here && expect "$hosts" exec node3 test -e "$work/here"

check "what remains is found"
[ "$("$hosts" files node1 | sort | tr '\n' ' ')" = "/dev/shm/mine /tmp/mine " ] || failed "files: $("$hosts" files node1)"
"$hosts" exec node1 rm /tmp/mine
before=$failures
nobody_remains 0 node1 >/dev/null
[ $failures -gt $before ] && failures=$before || failed "a file in /dev/shm was not found"
"$hosts" exec node1 rm /dev/shm/mine
"$hosts" exec node1 sh -c 'sleep 77 & '
nobody_remains 0 node1 >/dev/null
[ $failures -gt $before ] && failures=$before || failed "a process was not found"
failed_case=""
"$hosts" exec node1 pkill -f "^sleep 77"
nobody_remains 5 node1

check "cut, part, heal, join"
expect talks node1 node2
"$hosts" cut node2 data
expect eval '! talks node1 node2'
expect talks node1 node3
"$hosts" heal node2 data
"$hosts" part node1 node2
expect eval '! talks node1 node2'
expect talks node1 node3
expect talks node3 node2
"$hosts" join node1 node2
expect talks node2 node1

check "bytes are counted, and the rate holds"
before=$(bytes_sent)
cat >transfer.py <<'END'
import socket, sys, time
address, size = ("198.18.1.2", 9000), 5_000_000
if sys.argv[1] == "take":
    listener = socket.create_server(address)
    print("ready", flush=True)
    connection = listener.accept()[0]
    while connection.recv(1 << 16): pass
else:
    start = time.monotonic()
    connection = socket.create_connection(address)
    connection.sendall(bytes(size))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(int(size * 8 / (time.monotonic() - start) / 1e6))
END
"$hosts" exec node2 timeout 20 python3 transfer.py take >taker &
wait_for 10 grep -q ready taker
rate=$("$hosts" exec node1 timeout 20 python3 transfer.py give)
sent=$(($(bytes_sent) - before))
[ $sent -ge 5000000 ] && [ $sent -le 5500000 ] || failed "$sent bytes counted of 5,000,000"
[ "$rate" -le 210 ] || failed "$rate Mbit/s on a cable of 200"

check "a second instance beside the first, and the end of both"
second=$(TMPDIR=$work "$hosts" up 1)
[ "$(LOCKSTEP_HOSTS=$second "$hosts" exec node1 hostname)" = node1 ] || failed "the second instance does not work"
LOCKSTEP_HOSTS=$second expect eval '! "$hosts" exec node2 true'
LOCKSTEP_HOSTS=$second "$hosts" down
expect_no_file "$second"
expect talks node1 node2
"$hosts" exec node1 sleep 76 2>/dev/null &
sleeper=$!
"$hosts" down
unset LOCKSTEP_HOSTS
wait $sleeper
expect [ ! -e "$first" ]
expect eval '! pgrep -f "^sleep 76"'

check "an instance ends with its owner, however that ends"
sleep 300 &
owner=$!
orphaned=$(TMPDIR=$work "$hosts" up 1 --owner $owner)
kill -9 $owner
wait_for 10 test ! -e "$orphaned"

check "wrong usage, and who may not"
"$hosts" up 0 2>err; [ $? = 2 ] || failed "up 0"
"$hosts" exec node1 true 2>err; [ $? = 2 ] || failed "exec without an instance"
if command -v setpriv >/dev/null; then
  setpriv --reuid 65534 --clear-groups "$hosts" up 1 2>err; [ $? = 77 ] || failed "up as nobody: exit $?"
  expect grep -q "needs root" err
fi
