// Follows protocol/conformance/subscriber.mjs in a test: compares its globs with those of Redis and
// shows its cache. Each line of input and output is a JSON object.
const { readFileSync } = await import('node:fs')
const { createInterface } = await import('node:readline')
const say = line => console.log(JSON.stringify(line))
const globs = JSON.parse(readFileSync(`${process.argv[2]}/conformance/globs.json`, 'utf8'))
const begun = performance.now()
for (const c of globs.cases.filter(c => !c.refused)) {
  const bytes = text => typeof text === 'string' ? text : Buffer.from(text.base64, 'base64')
  const got = globs.keys.filter(key => matches(bytes(c.pattern), bytes(key)))
  const want = c.matches
  if (JSON.stringify(got) !== JSON.stringify(want)) say({ wrong: c.reason, got, want })
}
if (!matches('[a]', 'a') || !matches('a*[', 'ab') || !matches('a\\', 'ab')) {
  say({ wrong: 'what is no pattern keeps a key' })
}
const stars = '*a'.repeat(1000)
if (matches(stars + 'b', 'a'.repeat(10_000))) say({ wrong: 'a key without b matches' })
if (performance.now() - begun > 10_000) say({ wrong: `globs took ${performance.now() - begun} ms` })
say({ ready: true })
for await (const line of createInterface({ input: process.stdin })) {
  const { set } = JSON.parse(line)
  if (set) {
    set.forEach(key => cache.set(key, true))
    say({ keys: cache.size })
  } else say({ list: [...cache.keys()] })
}
await client.close()
