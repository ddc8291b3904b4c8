#!/usr/bin/env bash
# At READ COMMITTED, INSERT ... SELECT in a trigger reads the selected table with or without locks. In
# MariaDB that depends on the statement that fires the trigger, although the body is the same: it
# waits for another transaction that has changed the rows, or takes their old version, which the
# other one then replaces. In MySQL it never locks.
#
# Seen: MariaDB 11.8.9 (10.11.14 too) and MySQL 9.7.4, InnoDB, both at READ COMMITTED. Another
# transaction has changed the selected value from 7 to 9 and is still open:
#
#   fired by                  MariaDB  MySQL
#   DELETE                    waits    reads 7
#   UPDATE                    reads 7  reads 7
#   INSERT ... VALUES         waits    reads 7
#   INSERT ... SELECT         reads 7  reads 7
#   REPLACE ... VALUES        waits    reads 7
#   REPLACE ... SELECT        reads 7  reads 7
#
# MariaDB's InnoDB chooses consistent reads by the command of the session, not by the statement that
# reads (ha_innobase::store_lock). LOCK IN SHARE MODE in the body makes all of them wait.
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
trap 'exec 9>&-; stop; rm -rf "$tmp"' EXIT

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

measure() {
	sql -e 'SELECT VERSION()' >&2
	while read -r statement; do
		sql <<'SQL'
DROP DATABASE IF EXISTS d;
CREATE DATABASE d;
USE d;
CREATE TABLE parents (id INT PRIMARY KEY, v INT) ENGINE=InnoDB;
CREATE TABLE children (id INT PRIMARY KEY, parent INT, v INT, KEY (parent)) ENGINE=InnoDB;
CREATE TABLE log (v INT) ENGINE=InnoDB;
INSERT INTO parents VALUES (1, 1);
INSERT INTO children VALUES (1, 1, 7), (2, 2, 7);
CREATE TRIGGER d BEFORE DELETE ON parents FOR EACH ROW INSERT INTO log SELECT v FROM children WHERE parent = OLD.id;
CREATE TRIGGER u BEFORE UPDATE ON parents FOR EACH ROW INSERT INTO log SELECT v FROM children WHERE parent = OLD.id;
CREATE TRIGGER i BEFORE INSERT ON parents FOR EACH ROW INSERT INTO log SELECT v FROM children WHERE parent = NEW.id;
SQL
		# the other transaction reads from a pipe until the end
		mkfifo "$tmp/hold"
		sql -n d <"$tmp/hold" >"$tmp/held" &
		exec 9>"$tmp/hold"
		printf 'BEGIN; UPDATE children SET v = 9; SELECT 1;\n' >&9
		until grep -q 1 "$tmp/held"; do sleep 0.1; done
		got=$(sql d -e "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET innodb_lock_wait_timeout = 1; $statement; SELECT DISTINCT CONCAT('reads ', v) FROM log" 2>&1 || true)
		[[ $got != *"ERROR 1205"* ]] || got=waits
		printf '%s\t%s\n' "$statement" "$got"
		exec 9>&-
		wait $!
		rm "$tmp/hold" "$tmp/held"
	done <<'SQL'
DELETE FROM parents WHERE id = 1
UPDATE parents SET v = 2 WHERE id = 1
INSERT INTO parents VALUES (2, 2)
INSERT INTO parents SELECT 2, 2
REPLACE INTO parents VALUES (1, 2)
REPLACE INTO parents SELECT 1, 2
SQL
	stop
}
{
	serve mariadb sbin/mariadbd
	measure
	serve mysql sbin/mysqld
	measure
} >"$tmp/got"
got=$(cut -f 2 "$tmp/got" | tr '\n' ' ')
cat "$tmp/got"
want='waits reads 7 waits reads 7 waits reads 7 reads 7 reads 7 reads 7 reads 7 reads 7 reads 7 '
[ "$got" = "$want" ] || { printf 'differs; it was: %s\n' "$want" >&2; exit 1; }
