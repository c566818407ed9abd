#!/usr/bin/env bash
# Tests the hosts themselves: their shared and separate resources, that a cut is a cut, that the checks of the other
# scripts fire, and that nothing of them remains.
# seconds: 180
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

cuts_and_parts() {
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
}
check "cut, part, heal, join"
cuts_and_parts

cat >transfer.py <<'END'
import random, socket, sys, time
address, size = ("198.18.1.2", 9000), 20_000_000
content = random.Random(1).randbytes(size)
if sys.argv[1] == "take":
    listener = socket.create_server(address)
    print("ready", flush=True)
    connection = listener.accept()[0]
    taken = bytearray()
    while piece := connection.recv(1 << 16): taken += piece
    connection.sendall(b".")
    connection.sendall(b"=" if taken == content else b"!")
else:
    start = time.monotonic()
    connection = socket.create_connection(address)
    connection.sendall(content)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    seconds = time.monotonic() - start
    assert connection.recv(1) == b"=", "other bytes have arrived"
    print(int(size * 8 / seconds / 1e6))
END
# transfers LEAST MOST: checks a stream of TCP, and sets $rate to its Mbit/s; other work on the machine may only make it
# slower.
transfers() {
  local try before sent taker
  for try in 1 2 3; do
    before=$(bytes_sent)
    : >taker
    "$hosts" exec node2 timeout 30 python3 transfer.py take >>taker &
    taker=$!
    wait_for 10 grep -q ready taker
    rate=$("$hosts" exec node1 timeout 30 python3 transfer.py give)
    wait $taker
    sent=$(($(bytes_sent) - before))
    [ $sent -ge 20000000 ] && [ $sent -le 22000000 ] || failed "$sent bytes counted of 20,000,000"
    [ "${rate:=0}" -lt "$1" ] || break
  done
  [ "$rate" -ge "$1" ] && [ "$rate" -le "$2" ] || failed "$rate Mbit/s, not $1 to $2"
}
check "bytes are counted, and the rate holds"
transfers 150 210
undelayed=$rate

cat >round_trip.py <<'END'
import socket, sys, time
address = "198.18.1.2", 9001
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(5)
if sys.argv[1] == "answer":
    end.bind(address)
    print("ready", flush=True)
    while True: end.sendto(*end.recvfrom(1))
times = []
for i in range(101):
    start = time.monotonic()
    end.sendto(b"?", address)
    end.recv(1)
    times.append(time.monotonic() - start)
print(int(sorted(times)[50] * 1e6))
END
# takes LEAST MOST: checks the median round trip between two nodes, in microseconds.
takes() {
  : >answers
  "$hosts" exec node2 timeout 20 python3 round_trip.py answer >>answers 2>/dev/null &
  wait_for 10 grep -q ready answers
  local trip; trip=$("$hosts" exec node1 timeout 20 python3 round_trip.py ask)
  "$hosts" exec node2 pkill -f "round_trip.py answer"
  [ "$trip" -ge "$1" ] && [ "$trip" -le "$2" ] || failed "a round trip of $trip us, not $1 to $2"
}
check "a delay that is not there is missed"
before=$failures
takes 2000 2600 >/dev/null
[ $failures -gt $before ] && failures=$before || failed "nothing was missed"
failed_case=""

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

check "a delay: each way takes it, and bytes, rates, cuts and parts are what they were"
nodes 3 --rate 200mbit --delay 1ms
takes 2000 2600
transfers $((undelayed * 95 / 100)) $((undelayed * 105 / 100))
cuts_and_parts
takes 2000 2600
"$hosts" rate node2 100mbit
transfers $((undelayed * 95 / 200)) $((undelayed * 105 / 200))
nobody_remains 5 head node1 node2
"$hosts" crash node3
expect eval '! talks node1 node3'
expect talks node1 node2
carrier=$(pgrep -f "delay_line 1000 data1 ")
[ -n "$carrier" ] || failed "nothing carries the cables"
take_down
expect eval '! kill -0 $carrier 2>/dev/null'
nodes 2 --delay 300us
takes 600 1200

check "of each host 4 MiB may be under way"
nodes 2 --rate 200mbit --delay 800ms
for burst in 1 2; do
  before=$("$hosts" bytes)
  "$hosts" exec node1 python3 -c '
import socket
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(5000): end.sendto(bytes(1400), ("198.18.1.2", 9))'
  sleep 1
  arrived=$(paste <(echo "$before") <("$hosts" bytes) | awk '$1 == "node2" { print $6 - $3 }')
  [ "$arrived" -gt 4000000 ] && [ "$arrived" -lt 4194304 ] || failed "$arrived bytes of 7,000,000 have arrived"
done
take_down

check "wrong usage, and who may not"
"$hosts" up 0 2>err; [ $? = 2 ] || failed "up 0"
"$hosts" up 1 --delay 1s 2>err; [ $? = 2 ] || failed "a delay of 1s"
"$hosts" up 1 --delay 1ms --build . 2>err; [ $? = 2 ] || failed "a delay without its program"
expect grep -q "build the tests" err
"$hosts" exec node1 true 2>err; [ $? = 2 ] || failed "exec without an instance"
if command -v setpriv >/dev/null; then
  setpriv --reuid 65534 --clear-groups "$hosts" up 1 2>err; [ $? = 77 ] || failed "up as nobody: exit $?"
  expect grep -q "needs root" err
fi
