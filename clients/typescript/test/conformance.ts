import { readFileSync } from "node:fs";

/** Returns a file of protocol/conformance. */
export function conformance<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`../../../protocol/conformance/${name}.json`, import.meta.url), "utf8")) as T;
}

/** A field of bytes in these files: see their README. */
export type Bytes = string | { base64: string } | { repeat: string; times: number };

export function bytesOf(field: Bytes): Buffer {
  if (typeof field === "string") return Buffer.from(field);
  return "base64" in field ? Buffer.from(field.base64, "base64") : Buffer.from(field.repeat.repeat(field.times));
}
