// Builds dist/: ES modules in dist/esm and CommonJS in dist/cjs, each with its types. With --lua it
// only writes src/lua.ts: the scripts of protocol/scripts, byte for byte, as a module that bundlers
// carry too.
import { spawnSync } from "node:child_process";
import { copyFileSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";

const at = (path) => new URL(path, import.meta.url);

/** Writes src/lua.ts, which exports `lua`: the text of each script by its name without `.lua`. */
export function writeLua() {
  const folder = at("../../protocol/scripts/");
  const scripts = readdirSync(folder).filter((name) => name.endsWith(".lua")).sort();
  const lines = scripts.map((name) => `  ${name.slice(0, -4)}: ${JSON.stringify(readFileSync(new URL(name, folder), "utf8"))},\n`);
  const text = `// Written by build.mjs from protocol/scripts.\nexport const lua = {\n${lines.join("")}} as const;\n`;
  let before = "";
  try {
    before = readFileSync(at("src/lua.ts"), "utf8");
  } catch {
    // The first run.
  }
  if (text !== before) writeFileSync(at("src/lua.ts"), text);
}

function build() {
  const made = at("node_modules/.dist"); // a build that fails leaves dist as it was
  rmSync(made, { recursive: true, force: true });
  for (const format of ["esm", "cjs"]) {
    const tsc = ["node_modules/typescript/bin/tsc", "--project", `tsconfig.${format}.json`, "--outDir", `node_modules/.dist/${format}`];
    const { status } = spawnSync(process.execPath, tsc, { cwd: at("."), stdio: "inherit" });
    if (status !== 0) process.exit(1);
  }
  writeFileSync(at("node_modules/.dist/cjs/package.json"), '{ "type": "commonjs" }\n');
  rmSync(at("dist"), { recursive: true, force: true });
  renameSync(made, at("dist"));
  copyFileSync(at("../../LICENSE"), at("LICENSE"));
}

if (import.meta.main ?? process.argv[1] === new URL(import.meta.url).pathname) {
  writeLua();
  if (!process.argv.includes("--lua")) build();
}
