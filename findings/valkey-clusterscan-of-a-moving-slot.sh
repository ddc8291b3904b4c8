#!/usr/bin/env bash
# CLUSTERSCAN of Valkey 9.1 is for scans that bear moving slots: a node without the slot of the cursor
# redirects with MOVED, and one that the slot is leaving key by key (CLUSTER SETSLOT ... MIGRATING)
# with ASK. But one call goes on through all neighboring slots of its node, and does not stop at a slot
# that is leaving: it returns the keys that are still there, and no error tells of the others. A scan
# that asks nothing else misses them.
#
# Seen: valkey-server 9.1.2 of Debian sid, slots 100 to 102 with 10 keys each, of which 101 is leaving
# and 6 of its keys have left:
#
#   from slot 100  24 names: 10 of 100, 4 of 101, 10 of 102
#   from slot 101  ASK
#
# Needs root or user namespaces, and mmdebstrap. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
mkdir "$tmp/root"
mmdebstrap --mode=$mode --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --format=tar --include=valkey-server,valkey-tools,libc-bin sid - 2>"$tmp/log" |
	{ tar --extract --directory "$tmp/root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
libs=$(printf '%s:' "$tmp"/root/usr/lib/*-linux-gnu*)
run() { exec "$(ls "$tmp"/root/usr/lib64/ld-linux-*.so.* | head -n 1)" --library-path "$libs" "$tmp/root/usr/bin/$1" "${@:2}"; }
ask() { (run valkey-cli -p "$@"); }

readonly from=7101 to=7102
for port in $from $to; do
	mkdir "$tmp/$port"
	run valkey-server --port $port --bind 127.0.0.1 --cluster-enabled yes --dir "$tmp/$port" --save '' >>"$tmp/log" 2>&1 &
	until ask $port ping >/dev/null 2>&1; do sleep 0.1; done
done
ask $from cluster addslotsrange 0 8191 >>"$tmp/log"
ask $to cluster addslotsrange 8192 16383 >>"$tmp/log"
ask $from cluster meet 127.0.0.1 $to >>"$tmp/log"
for port in $from $to; do
	until ask $port cluster info | grep -q 'cluster_state:ok'; do sleep 0.1; done
done

# Tags of the slots 100, 101 and 102, by CLUSTER KEYSLOT.
tags=(48063 7930 3255)
for i in 0 1 2; do
	[ "$(ask $from cluster keyslot "${tags[i]}")" = $((100 + i)) ]
	for n in $(seq 10); do ask $from set "{${tags[i]}}$n" v >>"$tmp/log"; done
done
ask $to cluster setslot 101 importing "$(ask $from cluster myid)" >>"$tmp/log"
ask $from cluster setslot 101 migrating "$(ask $to cluster myid)" >>"$tmp/log"
for n in $(seq 6); do ask $from migrate 127.0.0.1 $to "{${tags[1]}}$n" 0 1000 >>"$tmp/log"; done

ask $from clusterscan "0-{${tags[0]}}-0" count 1000 >"$tmp/page"
count() { grep -c "{$1}[0-9]*\$" "$tmp/page"; }
{
	echo "from slot 100: $(count "${tags[0]}") of 100, $(count "${tags[1]}") of 101, $(count "${tags[2]}") of 102"
	echo "from slot 101: $(ask $from clusterscan "0-{${tags[1]}}-0" count 1000 2>&1 | cut -d ' ' -f 1,2)"
} | tee "$tmp/got"
cat >"$tmp/want" <<'WANT'
from slot 100: 10 of 100, 4 of 101, 10 of 102
from slot 101: ASK 101
WANT
cmp -s "$tmp/got" "$tmp/want" || { echo differs from: >&2; cat "$tmp/want" "$tmp/page" >&2; exit 1; }
