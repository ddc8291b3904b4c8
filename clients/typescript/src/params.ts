/** A field of an invalidation cannot be written. Nothing was inserted. */
export class FieldError extends Error {
  override readonly name = "FieldError";
  constructor(
    /** `entity`, `id`, `params`, `params.NAME`, `trace` or `not_before`; "" if it is not an invalidation. */
    readonly field: string,
    readonly problem: string,
    /** The position among the invalidations of the call, from 0. */
    readonly index = 0,
  ) {
    super(`invalidation ${index}: ${field && `${field}: `}${problem}`);
  }
}

const fail = (problem: string): never => {
  throw new FieldError("params", problem);
};
const early = "the JSON ends too early";

/**
 * Returns the names that a JSON object gives a value: null gives none, an empty list does. Values
 * are scalars or lists of scalars. Throws a FieldError for other texts, as the worker refuses them,
 * in one pass that decodes nothing: numbers may have any form, and any size that MySQL accepts.
 */
export function givenParams(source: string): Set<string> {
  let at = 0;
  const seen = new Set<string>();
  const given = new Set<string>();

  const eat = (pattern: RegExp) => {
    pattern.lastIndex = at;
    const found = pattern.exec(source)?.[0] ?? "";
    at += found.length;
    return found;
  };
  const peek = () => {
    eat(/[ \t\n\r]+/y);
    return source[at] ?? "";
  };
  const unexpected = (want: string) => {
    if (peek() === "") return fail(early);
    const c = String.fromCodePoint(source.codePointAt(at)!);
    const quoted = c === '"' ? c : c === "'" ? "\\'" : JSON.stringify(c).slice(1, -1);
    return fail(`not JSON: '${quoted}' at byte ${Buffer.byteLength(source.slice(0, at))}, want ${want}`);
  };
  const expect = (c: string) => {
    if (peek() !== c) unexpected(c);
    at++;
  };
  const word = (text: string) => {
    if (!source.startsWith(text, at)) unexpected("a value");
    at += text.length;
  };
  const number = () => {
    const from = at;
    const digits = (pattern: RegExp) => eat(pattern) || unexpected("a digit");
    eat(/-/y);
    digits(/0|[1-9][0-9]*/y);
    if (eat(/\./y)) digits(/[0-9]+/y);
    if (eat(/[eE][+-]?/y)) digits(/[0-9]+/y);
    const text = source.slice(from, at);
    if (!Number.isFinite(Number(text))) fail(`${clip(text)} is a number that MySQL does not accept; pass text`);
  };
  const string = (): string => {
    if (peek() !== '"') unexpected('"');
    const text = JSON.parse(eat(/"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y) + '"') as string;
    if (!text.isWellFormed()) fail("a lone surrogate (\\ud800 to \\udfff) is not a character");
    const rest = source.slice(at, at + 6);
    if (/^(\\(u.{0,3})?)?$/.test(rest)) fail(early);
    if (rest.startsWith("\\")) fail("an unknown escape in a string");
    if (!rest.startsWith('"')) fail("a control character in a string must be escaped");
    at++;
    return text;
  };
  const scalar = (): boolean => {
    const c = peek();
    if (c === "{") fail("an object is neither a scalar nor a list of scalars");
    if (c === "n") {
      word("null");
      return false;
    }
    const read = c === '"' ? string : c === "t" ? () => word("true") : c === "f" ? () => word("false") : number;
    if (!/["tf0-9-]/.test(c)) unexpected("a value");
    try {
      read();
    } catch (error) {
      fail(`decode value: ${(error as FieldError).problem}`);
    }
    return true;
  };
  const members = (end: string, member: () => void) => {
    at++;
    if (peek() !== end) {
      for (member(); peek() !== end; member()) expect(",");
    }
    at++;
  };
  const value = (): boolean => {
    if (peek() !== "[") return scalar();
    members("]", () => void (peek() === "[" ? fail("a list within a list is not a scalar") : scalar()));
    return true;
  };
  const member = () => {
    const name = string();
    try {
      if (seen.has(name)) fail("the name is given twice");
      seen.add(name);
      expect(":");
      if (value()) given.add(name);
    } catch (error) {
      throw new FieldError(paramField(name), (error as FieldError).problem);
    }
  };

  if (!source.isWellFormed()) fail("the parameters are not valid UTF-8");
  const first = peek();
  if (first === "n") word("null");
  else if (first === "{") members("}", member);
  else fail(first === "" ? early : "the parameters must be a JSON object of scalars and lists of scalars");
  if (peek() !== "") fail("something follows the JSON object");
  return given;
}

/** Returns the field of a parameter in errors. */
export const paramField = (name: string) => (name === "" ? "params" : `params.${clip(name)}`);

/** Keeps a text that is part of an error short. */
export const clip = (text: string) => (text.length <= 40 ? text : `${text.slice(0, 40).replace(/[\ud800-\udbff]$/, "")}...`);

/** Names the type of a value that is not accepted. */
export function kind(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = value.constructor?.name; // which an object without a prototype does not have
  return Array.isArray(value) ? "a list" : name && name !== "Object" ? `an object of class ${name}` : "an object";
}
