#!/usr/bin/env bash
# MySQL keeps the types of a prepared statement's parameters from its first execution. After one
# number that the driver sends as DOUBLE, each later text parameter of the same statement is
# converted to a number first, without an error or a warning. mysql2 (npm) sends every JavaScript
# number as DOUBLE, and its execute() keeps statements per connection.
#
# Seen: MySQL 9.7.4 with mysql2 3.24.6, a column VARCHAR(64), sql_mode strict. The first execution
# inserts the number 42, the next ones the texts 007, 1e5 and 9007199254740993:
#
#   42 | 7 | 100000 | 9.007199254740992e15
#
# With CAST(? AS CHAR), or if the first execution has a text too, all texts stay as they are. MySQL
# documents that types are derived again only if a later type cannot be used (since 8.0.22).
#
# Needs root or user namespaces, mmdebstrap, Node.js and npm. Exits with 1 if the output differs.
set -euo pipefail
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; wait 2>/dev/null; rm -rf "$tmp"' EXIT

mode=chrootless
[ "$(id -u)" != 0 ] || mode=root
mkdir "$tmp/root" "$tmp/data" "$tmp/client"
mmdebstrap --mode=$mode --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --format=tar --include=mysql-server-core,libc-bin sid - 2>"$tmp/log" |
	{ tar --extract --directory "$tmp/root" --exclude './dev/*' --no-same-owner && cat >/dev/null; }
libs=$(printf '%s:' "$tmp"/root/usr/lib/*-linux-gnu*)
run() { "$(ls "$tmp"/root/usr/lib64/ld-linux-*.so.* | head -n 1)" --library-path "$libs" "$tmp/root/usr/sbin/mysqld" --no-defaults \
	--basedir="$tmp/root/usr" --lc-messages-dir="$tmp/root/usr/share/mysql" --datadir="$tmp/data" --user="$(id -un)" "$@"; }
run --initialize-insecure >>"$tmp/log" 2>&1
run --socket="$tmp/s" --skip-networking --mysqlx=OFF --secure-file-priv=NULL --pid-file="$tmp/pid" >>"$tmp/log" 2>&1 &
server=$!

cd "$tmp/client"
npm install --silent --no-audit --no-fund --ignore-scripts mysql2@3.24.6 >/dev/null
cat >run.js <<'JS'
const mysql = require('mysql2/promise');
async function connect() {
  for (let i = 0; ; i++) {
    try { return await mysql.createConnection({ socketPath: process.argv[2], user: 'root' }); } catch (e) { if (i > 300) throw e; }
    await new Promise((done) => setTimeout(done, 100));
  }
}
(async () => {
  const c = await connect();
  await c.query('CREATE DATABASE d');
  await c.query('USE d');
  for (const [value, first] of [['?', 42], ['CAST(? AS CHAR)', 42], ['?', '42']]) {
    await c.query('CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(64))');
    const sql = `INSERT INTO t (v) VALUES (${value})`;
    for (const v of [first, '007', '1e5', '9007199254740993']) await c.execute(sql, [v]);
    const [rows] = await c.query('SELECT v FROM t ORDER BY id');
    console.log(rows.map((r) => r.v).join(' | '));
    await c.query('DROP TABLE t');
    c.unprepare(sql);
  }
  await c.end();
})();
JS
got=$(node run.js "$tmp/s")
want='42 | 7 | 100000 | 9.007199254740992e15
42 | 007 | 1e5 | 9007199254740993
42 | 007 | 1e5 | 9007199254740993'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
