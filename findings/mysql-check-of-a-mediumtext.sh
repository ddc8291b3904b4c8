#!/usr/bin/env bash
# One CHECK about a MEDIUMTEXT or LONGTEXT column of a MySQL table makes ALTER TABLE ... MODIFY of
# another column copy the table: whether a VARCHAR may be NULL can be changed in place, while others
# write, but not in such a table. A CHECK about a TEXT column, or one that is NOT ENFORCED, does no
# harm. Without ALGORITHM=INPLACE, MySQL copies the table without a word, and writes wait until it is
# done.
#
# Seen: MySQL 9.7.4, MODIFY v VARCHAR(129) NULL, ALGORITHM=INPLACE, by the type of p and the CHECK:
#
#   TEXT, CHECK (LENGTH(p) > 1): done
#   MEDIUMTEXT, CHECK (LENGTH(p) > 1): 1845
#   LONGTEXT, CHECK (LENGTH(p) > 1): 1845
#   not enforced: done
#   after DROP CHECK: done
#
# MySQL documents in-place changes of NULL per kind of change, and names neither CHECK nor types.
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
  const change = (name) => c.query('ALTER TABLE t MODIFY v VARCHAR(129) NULL, ALGORITHM=INPLACE')
    .then(() => console.log(name + ': done'), (e) => console.log(name + ': ' + e.errno));
  for (const type of ['TEXT', 'MEDIUMTEXT', 'LONGTEXT']) {
    await c.query('DROP TABLE IF EXISTS t');
    await c.query(`CREATE TABLE t (p ${type}, v VARCHAR(129) NOT NULL, CONSTRAINT c CHECK (LENGTH(p) > 1))`);
    await change(type + ', CHECK (LENGTH(p) > 1)');
  }
  await c.query('ALTER TABLE t ALTER CHECK c NOT ENFORCED');
  await change('not enforced');
  await c.query('ALTER TABLE t DROP CHECK c');
  await change('after DROP CHECK');
  await c.end();
})();
JS
got=$(node run.js "$tmp/s")
want='TEXT, CHECK (LENGTH(p) > 1): done
MEDIUMTEXT, CHECK (LENGTH(p) > 1): 1845
LONGTEXT, CHECK (LENGTH(p) > 1): 1845
not enforced: done
after DROP CHECK: done'
printf '%s\n' "$got"
[ "$got" = "$want" ] || { printf 'differs; it was:\n%s\n' "$want" >&2; exit 1; }
