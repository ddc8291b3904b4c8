// Runs protocol/conformance/reader.mjs for a test. The argument is the folder protocol. Each line
// of input and output is a JSON object. A line with `key` fetches it: `load` asks for the value,
// which comes in a line with `value`, `missing` or `fails`.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { createClient } from 'redis'
import { named, parse, reader } from './protocol/conformance/reader.mjs'

const folder = process.argv[2]
const text = name => readFileSync(`${folder}/${name}`, 'utf8')
const cases = name => JSON.parse(text(`conformance/${name}.json`))
const say = line => console.log(JSON.stringify(line))
const same = (what, got, want) => {
  if (JSON.stringify(got) !== JSON.stringify(want)) say({ wrong: what, got, want })
}

for (const c of cases('names').cases.filter(c => typeof c.key === 'string')) {
  same(c.reason, [named('fill', c.key) || null, named('hold', c.key) || null], [c.lease, c.hold])
}
for (const c of cases('entries').cases.filter(c => !c.codec)) {
  let e
  try { e = parse(Buffer.from(c.entry.base64, 'base64')) } catch {}
  const tags = [...(c.tags ?? []), ...Object.keys(e?.t ?? {})]
  const current = tags.every(t => c.versions?.[t] && c.versions[t] === e.t?.[t])
  const valid = e && !e.leave && current && c.at < e.e
  const read = e?.leave ? 'leave' : valid ? 'fresh' : 'miss'
  // this reader has no use for expired entries
  same(c.reason, read, c.read === 'stale' || c.read === 'on_error' ? 'miss' : c.read)
  if (valid) same(c.reason, e.n ? undefined : e.v, c.not_found ? undefined : JSON.parse(c.value))
}

const client = await createClient({ url: process.env.REDIS_URL, disableClientInfo: true })
  .on('error', () => {}).connect()
const scripts = ['lease', 'stamp', 'fill', 'release'].map(n => [n, text(`scripts/${n}.lua`)])
const lua = Object.fromEntries(scripts)
const fetch = reader(client, lua, 5000)
const loads = new Map()
say({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  const { id, key, ttl, tags, ...answer } = JSON.parse(line)
  if (!key) {
    loads.get(id)(answer)
    continue
  }
  const load = async () => {
    say({ id, load: true })
    const { value, fails } = await new Promise(resolve => loads.set(id, resolve))
    if (fails) throw new Error(fails)
    return value
  }
  fetch(key, ttl, load, tags).then(
    value => say({ id, value }), error => say({ id, error: error.message }))
}
await client.close()
