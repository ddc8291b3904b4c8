#!/usr/bin/env bash
# MySQL 9.7 executes foreign keys above the storage engine by default (innodb_native_foreign_keys =
# OFF). A delete in a table that refers to itself, which any tree of categories is, then fails with
# 6575, "exceeds max tables limit of 30", for a tree of three levels if another table refers to it,
# although only two tables and six rows are involved. With ON the same delete succeeds.
#
# Seen: MySQL 9.7.4, ON DELETE CASCADE from shelves to shelves and from boxes to shelves, one shelf
# per level, one box per shelf, DELETE of the first shelf:
#
#                      2 levels  3 levels
#   OFF, shelves only  done      done
#   OFF, with boxes    done      ERROR 6575
#   ON, with boxes     done      done
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

# measure OPTION: deletes the first shelf of trees.
measure() {
	serve "$1" &
	for _ in $(seq 600); do
		sql -e 'SELECT 1' >/dev/null 2>>"$tmp/log" && break
		sleep 0.1
	done
	for boxes in no with; do
		for levels in 2 3; do
			sql <<SQL
DROP DATABASE IF EXISTS d;
CREATE DATABASE d;
USE d;
CREATE TABLE shelves (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES shelves (id) ON DELETE CASCADE);
INSERT INTO shelves SELECT * FROM (SELECT 1, NULL UNION SELECT 2, 1 UNION SELECT 3, 2) AS three LIMIT $levels;
SQL
			[ $boxes = no ] || sql d <<SQL
CREATE TABLE boxes (id INT PRIMARY KEY, shelf INT, FOREIGN KEY (shelf) REFERENCES shelves (id) ON DELETE CASCADE);
INSERT INTO boxes SELECT id, id FROM shelves;
SQL
			got=$(sql d -e "DELETE FROM shelves WHERE id = 1; SELECT 'done'" 2>&1 | grep -o 'ERROR [0-9]*\|done' || true)
			printf '%s, %s boxes, %s levels: %s, %s shelves left\n' "$1" $boxes $levels "$got" "$(sql d -e 'SELECT COUNT(*) FROM shelves')"
		done
	done
	stop
}
{
	measure --innodb-native-foreign-keys=OFF
	measure --innodb-native-foreign-keys=ON
} >"$tmp/got"
cat "$tmp/got"
cat >"$tmp/want" <<'WANT'
--innodb-native-foreign-keys=OFF, no boxes, 2 levels: done, 0 shelves left
--innodb-native-foreign-keys=OFF, no boxes, 3 levels: done, 0 shelves left
--innodb-native-foreign-keys=OFF, with boxes, 2 levels: done, 0 shelves left
--innodb-native-foreign-keys=OFF, with boxes, 3 levels: ERROR 6575, 3 shelves left
--innodb-native-foreign-keys=ON, no boxes, 2 levels: done, 0 shelves left
--innodb-native-foreign-keys=ON, no boxes, 3 levels: done, 0 shelves left
--innodb-native-foreign-keys=ON, with boxes, 2 levels: done, 0 shelves left
--innodb-native-foreign-keys=ON, with boxes, 3 levels: done, 0 shelves left
WANT
cmp -s "$tmp/got" "$tmp/want" || { echo differs from: >&2; cat "$tmp/want" >&2; exit 1; }
