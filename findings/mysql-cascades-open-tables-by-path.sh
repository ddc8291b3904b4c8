#!/usr/bin/env bash
# A DELETE in MySQL opens a table once for each path of foreign keys (ON DELETE CASCADE) that leads to it,
# although no row refers to the deleted one. 25 tables in layers, each with a foreign key to all
# tables of the layer above, are opened 1,555 times by each DELETE: four times the layers, a thousand
# times the work. A session has one of the 16 parts of table_open_cache (4,000): where 250 are too few,
# each DELETE also reads definitions again. MariaDB opens each table once.
#
# Seen: MySQL 9.7.4 and MariaDB 11.8.9, InnoDB. Tables opened (from the cache or not) by one DELETE of
# one row from the table at the top, where the others are empty:
#
#   layers of six tables  MySQL  MariaDB
#   1                         7        7
#   2                        43       13
#   3                       259       19
#   4                     1,555       25
#
# MySQL adds the tables of foreign keys to the statement's list of tables before it runs, and does
# not look whether a table is in the list already. A trigger on each table doubles the numbers.
#
# Needs root or user namespaces, and mmdebstrap. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
stop() { # the server, if one runs
	[ -f "$tmp/pid" ] || return 0
	local pid
	pid=$(cat "$tmp/pid")
	kill "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
	rm -f "$tmp/pid"
}
trap 'stop; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
for packages in mysql-server-core mariadb-server-core,mariadb-client-core; do
	root=$tmp/${packages%%-*}
	mkdir "$root"
	mmdebstrap --mode=$mode --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --format=tar --include=$packages,libc-bin sid - 2>"$tmp/log" |
		{ tar --extract --directory "$root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
done
run() { # ROOT PROGRAM ARGUMENT...
	local root=$tmp/$1 libs
	libs=$(printf '%s:' "$root"/usr/lib/*-linux-gnu*)
	"$(ls "$root"/usr/lib64/ld-linux-*.so.* | head -n 1)" --library-path "$libs" "$root/usr/$2" "${@:3}"
}
sql() { run mariadb bin/mariadb --no-defaults --plugin-dir="$(ls -d "$tmp"/mariadb/usr/lib/*/libmariadb3/plugin)" --socket="$tmp/s" --user=root --skip-column-names --batch "$@"; }

serve() { # ROOT PROGRAM
	local options=(--no-defaults --basedir="$tmp/$1/usr" --lc-messages-dir="$tmp/$1/usr/share/$1" --datadir="$tmp/data"
		--user="$(id -un)" --socket="$tmp/s" --skip-networking --pid-file="$tmp/pid")
	rm -rf "$tmp/data"
	mkdir "$tmp/data"
	if [ "$1" = mysql ]; then
		options+=(--mysqlx=OFF --secure-file-priv=NULL)
		run "$1" "$2" "${options[@]}" --initialize-insecure >>"$tmp/log" 2>&1
	else
		mkdir "$tmp/data/mysql"
		options+=(--skip-grant-tables)
	fi
	run "$1" "$2" "${options[@]}" >>"$tmp/log" 2>&1 &
	for _ in $(seq 600); do
		sql -e 'SELECT 1' >/dev/null 2>>"$tmp/log" && return
		sleep 0.1
	done
	tail "$tmp/log" >&2
	exit 1
}

# opened STATEMENT: how many tables it opens.
opened() {
	sql d -e "FLUSH STATUS; $1; SHOW SESSION STATUS LIKE 'Table_open_cache_%s'" |
		awk '/hits|misses/ { n += $2 } END { print n }'
}

measure() {
	local layer i above=top keys
	sql -e 'SELECT VERSION()' >&2
	sql -e 'CREATE DATABASE d; CREATE TABLE d.top (id INT PRIMARY KEY) ENGINE=InnoDB'
	for layer in 1 2 3 4; do
		for i in 1 2 3 4 5 6; do
			keys=$(printf ', %s INT, FOREIGN KEY (%s) REFERENCES %s (id) ON DELETE CASCADE' $(for t in $above; do echo "in_$t in_$t $t"; done))
			echo "CREATE TABLE layer${layer}_$i (id INT PRIMARY KEY$keys) ENGINE=InnoDB;"
		done | sql d
		above=$(for i in 1 2 3 4 5 6; do echo "layer${layer}_$i"; done)
		sql d -e 'REPLACE INTO top VALUES (1)'
		opened 'DELETE FROM top WHERE id = 1'
	done
	stop
}
{
	serve mysql sbin/mysqld
	measure
	serve mariadb sbin/mariadbd
	measure
} >"$tmp/got"
got=$(tr '\n' ' ' <"$tmp/got")
echo "$got"
want='7 43 259 1555 7 13 19 25 '
[ "$got" = "$want" ] || { printf 'differs; it was: %s\n' "$want" >&2; exit 1; }
