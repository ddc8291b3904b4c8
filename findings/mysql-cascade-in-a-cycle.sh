#!/usr/bin/env bash
# MySQL 9.7 executes foreign keys above the storage engine by default (innodb_native_foreign_keys =
# OFF). If two tables refer to each other with ON DELETE CASCADE, a delete then stops where the
# cascade comes back to the table of the statement: without an error or a warning, a row remains
# whose parent is gone, although its foreign key is enforced. With ON, all rows go.
#
# Seen: MySQL 9.7.4, authors (1), books (1, author 1), authors (2, book 1), books (2, author 2), and so
# on. After DELETE of author 1, OFF has deleted the first author and book, and author 2 refers to a
# book that does not exist; ON has deleted all rows.
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
for packages in mysql-server-core mariadb-client-core; do
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
serve() { # OPTION...
	run mysql sbin/mysqld --no-defaults --basedir="$tmp/mysql/usr" --lc-messages-dir="$tmp/mysql/usr/share/mysql" --datadir="$tmp/data" \
		--user="$(id -un)" --socket="$tmp/s" --skip-networking --pid-file="$tmp/pid" --mysqlx=OFF --secure-file-priv=NULL "$@" >>"$tmp/log" 2>&1
}
mkdir "$tmp/data"
serve --initialize-insecure

# measure OPTION: deletes the first author.
measure() {
	serve "$1" &
	for _ in $(seq 600); do
		sql -e 'SELECT 1' >/dev/null 2>>"$tmp/log" && break
		sleep 0.1
	done
	for pairs in 1 2 3; do
		sql <<SQL
DROP DATABASE IF EXISTS d;
CREATE DATABASE d;
USE d;
CREATE TABLE authors (id INT PRIMARY KEY, book INT);
CREATE TABLE books (id INT PRIMARY KEY, author INT, FOREIGN KEY (author) REFERENCES authors (id) ON DELETE CASCADE);
ALTER TABLE authors ADD FOREIGN KEY (book) REFERENCES books (id) ON DELETE CASCADE;
SQL
		for i in $(seq $pairs); do
			sql d -e "INSERT INTO authors VALUES ($i, NULLIF($i - 1, 0)); INSERT INTO books VALUES ($i, $i)"
		done
		sql d -e "DELETE FROM authors WHERE id = 1"
		printf '%s, %s pairs: %s\n' "$1" $pairs "$(sql d -e "SELECT CONCAT(COUNT(*), ' authors left, ', COUNT(*) - COUNT(b.id), ' without their book') FROM authors AS a LEFT JOIN books AS b ON b.id = a.book")"
	done
	stop
}
{
	measure --innodb-native-foreign-keys=OFF
	measure --innodb-native-foreign-keys=ON
} >"$tmp/got"
cat "$tmp/got"
cat >"$tmp/want" <<'WANT'
--innodb-native-foreign-keys=OFF, 1 pairs: 0 authors left, 0 without their book
--innodb-native-foreign-keys=OFF, 2 pairs: 1 authors left, 1 without their book
--innodb-native-foreign-keys=OFF, 3 pairs: 2 authors left, 1 without their book
--innodb-native-foreign-keys=ON, 1 pairs: 0 authors left, 0 without their book
--innodb-native-foreign-keys=ON, 2 pairs: 0 authors left, 0 without their book
--innodb-native-foreign-keys=ON, 3 pairs: 0 authors left, 0 without their book
WANT
cmp -s "$tmp/got" "$tmp/want" || { echo differs from: >&2; cat "$tmp/want" >&2; exit 1; }
