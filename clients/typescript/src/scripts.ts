import { createHash } from "node:crypto";
import { lua } from "./lua.js";

/** A command as Redis gets it. Its name is in lower case, which ioredis needs less time for. */
export type Command = readonly (string | Buffer)[];

const texts = new Map<string, string>();
const sha1 = (text: string) => createHash("sha1").update(text).digest("hex");

function script(text: string) {
  const sha = sha1(text);
  texts.set(sha, text);
  return (keys: readonly string[], ...args: (string | Buffer)[]): Command => ["evalsha", sha, String(keys.length), ...keys, ...args];
}

// The files of protocol/scripts, which explain their keys, arguments and answers.
export const lease = script(lua.lease);
export const stamp = script(lua.stamp);
export const fill = script(lua.fill);
export const release = script(lua.release);

/** Returns the command that sends the whole text of an EVALSHA, for a server that does not have it. */
export const whole = ([, sha, ...rest]: Command): Command => ["eval", texts.get(sha as string)!, ...rest];
