#!/usr/bin/env bash
# Rows that are deleted and not purged yet, since another session's snapshot still sees them, stay in
# the index. Which plain queries of three IDs below such rows read through all of them differs
# between MySQL and MariaDB, and between conditions that mean the same.
#
# Seen: MySQL 9.7.4 and MariaDB 11.8.9 (10.11 too), InnoDB. The table has 200,000 deleted rows and no
# other ones. "few" is less than 100 pages read, "all" more than 500.
#
#   query of the primary key                         MySQL  MariaDB
#   SELECT v ... WHERE id BETWEEN 1 AND 3            few    all
#   SELECT v ... WHERE id BETWEEN 1 AND 2 OR id = 3  few    all
#   SELECT v ... WHERE id IN (1, 2, 3)               few    few
#   SELECT MIN(id) ... WHERE id BETWEEN 1 AND 3      all    all
#
# MySQL tells InnoDB where a range ends, except where the optimizer itself looks up a MIN. MariaDB
# does not: InnoDB reads on until a visible row is beyond the end. An equality needs no end.
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
	sql <<'SQL'
CREATE DATABASE d;
CREATE TABLE d.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(64) NOT NULL) ENGINE=InnoDB;
INSERT INTO d.t (v) VALUES ('1'), ('2'), ('3'), ('4');
SQL
	for _ in $(seq 16); do sql -e "INSERT INTO d.t (v) SELECT REPEAT('v', 40) FROM d.t LIMIT 65536"; done
	# the session that holds the snapshot reads from a pipe until the end
	mkfifo "$tmp/hold"
	sql -n d <"$tmp/hold" >"$tmp/held" &
	exec 9>"$tmp/hold"
	printf 'START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT 1;\n' >&9
	until grep -q 1 "$tmp/held"; do sleep 0.1; done
	sql -e 'DELETE FROM d.t'
	while read -r query; do
		pages=$(sql d -e "SHOW SESSION STATUS LIKE 'Innodb_buffer_pool_read_requests'; $query; SHOW SESSION STATUS LIKE 'Innodb_buffer_pool_read_requests'" |
			awk '/read_requests/ { n[++i] = $2 } END { print n[2] - n[1] }')
		printf '%s\t%s\n' "$query" "$([ "$pages" -lt 100 ] && echo few || { [ "$pages" -gt 500 ] && echo all || echo "$pages"; })"
	done <<'SQL'
SELECT v FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 1 AND 3
SELECT v FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 1 AND 2 OR id = 3
SELECT v FROM t FORCE INDEX (PRIMARY) WHERE id IN (1, 2, 3)
SELECT MIN(id) FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 1 AND 3
SQL
	exec 9>&-
	rm "$tmp/hold" "$tmp/held"
	stop
}
{
	serve mysql sbin/mysqld
	measure
	serve mariadb sbin/mariadbd
	measure
} >"$tmp/got"
got=$(cut -f 2 "$tmp/got" | tr '\n' ' ')
cat "$tmp/got"
want='few few few all all all few all '
[ "$got" = "$want" ] || { printf 'differs; it was: %s\n' "$want" >&2; exit 1; }
