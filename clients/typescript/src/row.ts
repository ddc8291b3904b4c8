import { isDate } from "node:util/types";
import { FieldError, clip, givenParams, kind, paramField } from "./params.js";
import { intText, uuidText, type Id } from "./read.js";

/** A value of a parameter. A number that is an integer must be exact: up to 2^53 - 1. */
export type Scalar = string | number | bigint | boolean;

/**
 * What a caller changed. Functions of generated modules return it, and the map lists the keys that
 * are stale then.
 */
export interface Invalidation {
  /** A name from the map, such as `product`, of at most 64 characters. */
  readonly entity: string;
  /** The ID of the entity, exactly as in keys, of at most 255 characters. It is sent as text. */
  readonly id: Id;
  /**
   * Other values that the map needs to make the keys. If a value changes, pass the old and the new
   * one in a list, because the keys of both are stale. A value that is undefined is left out.
   */
  readonly params?: Readonly<Record<string, Scalar | readonly Scalar[] | undefined>>;
  /** Replaces `params` by the text of a JSON object, whose numbers keep their form. */
  readonly rawParams?: string;
  /**
   * Parameters that the map requires: a row without one would become a dead letter, so it is
   * refused.
   */
  readonly required?: readonly string[];
  /** The types of `id` and of parameters in the map, from generated modules. Others are text. */
  readonly types?: Readonly<Record<string, "int" | "uuid">>;
  /** Text that the worker records, such as a W3C traceparent, of at most 128 characters. */
  readonly trace?: string;
  /**
   * The earliest time at which the worker processes the row, from 1970 to 9999. Default: no delay.
   */
  readonly notBefore?: Date;
}

/** The columns of a row: entity, entity_id, params, trace and, if it is delayed, due_at. */
export type Row = (string | null)[];

/** Checks all invalidations, and returns their rows by table. Throws a FieldError. */
export function encodeAll(invalidations: readonly Invalidation[]): { now: Row[]; later: Row[] } {
  const now: Row[] = [];
  const later: Row[] = [];
  for (const [index, one] of invalidations.entries()) {
    try {
      checkTypes(one);
      const row = [checkText("entity", one.entity, 64, true), idText(one)];
      const trace = checkText("trace", one.trace ?? "", 128, false);
      const due = one.notBefore === undefined ? [] : [dueText(one.notBefore)];
      (due.length > 0 ? later : now).push([...row, paramsText(one), trace, ...due]);
    } catch (error) {
      throw error instanceof FieldError ? new FieldError(error.field, error.problem, index) : error;
    }
  }
  return { now, later };
}

/** Refuses what the types of TypeScript exclude and the code below does not expect. */
function checkTypes(one: Invalidation): void {
  if (typeof one !== "object" || one === null || Array.isArray(one)) throw new FieldError("", `${kind(one)} is not an invalidation; pass { entity, id }, or what generated code returns`);
  const { params = {}, rawParams = "", required = [], types = {}, notBefore } = one;
  if (!isPlain(params)) throw new FieldError("params", `${kind(params)} is not a plain object; pass names with values, such as { category_id: 7 }`);
  if (typeof rawParams !== "string") throw new FieldError("params", `rawParams: ${kind(rawParams)} is not text`);
  if (!Array.isArray(required)) throw new FieldError("params", `required: ${kind(required)} is not a list of names`);
  if (!isPlain(types)) throw new FieldError("params", `types: ${kind(types)} is not a plain object`);
  if (notBefore !== undefined && !isDate(notBefore)) throw new FieldError("not_before", `${kind(notBefore)} is not a Date`);
}

/** Reports whether a value is an object whose own properties are all that it has: a Map is not. */
function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function checkText(field: string, text: unknown, limit: number, required: boolean): string {
  if (typeof text !== "string") throw new FieldError(field, `${kind(text)} is not text`);
  if (text === "" && required) throw new FieldError(field, "is empty; it is required");
  checkUTF8(field, text);
  const characters = [...text].length;
  if (characters > limit) throw new FieldError(field, `${characters} characters are more than ${limit}`);
  return text;
}

/** Refuses text that is not well-formed. It is shown as Go shows the bytes of a lone surrogate. */
function checkUTF8(field: string, text: string, what = ""): void {
  if (text.isWellFormed()) return;
  const shown = Array.from(clip(text), (c) => {
    if (c.isWellFormed()) return JSON.stringify(c).slice(1, -1);
    const code = c.charCodeAt(0);
    return [0xed, 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)].map((byte) => `\\x${byte.toString(16)}`).join("");
  });
  throw new FieldError(field, `${what}"${shown.join("")}" is not valid UTF-8`);
}

function idText({ id, types }: Invalidation): string {
  if (typeof id !== "string" && typeof id !== "bigint" && typeof id !== "number") {
    throw new FieldError("id", `${kind(id)} is not an ID; pass text, an integer or a bigint`);
  }
  if (typeof id === "number" && !Number.isInteger(id)) throw new FieldError("id", `${id} is not an integer`);
  const text = checkText("id", typeof id === "number" ? numberText("id", id) : String(id), 255, true);
  return typedText("id", text, types?.["id"]);
}

/** Checks the text of a value that has a type in the map. */
function typedText(field: string, text: string, type: "int" | "uuid" | undefined): string {
  const typed = type === "int" ? intText(text) : type === "uuid" ? uuidText(text) : text;
  if (typed !== undefined) return typed;
  throw new FieldError(field, `${JSON.stringify(clip(text))} is not ${type === "int" ? "an integer of 64 bits" : "a UUID"}, as in the map`);
}

function numberText(field: string, n: number): string {
  if (!Number.isFinite(n)) throw new FieldError(field, `${n} is not a number that JSON can represent`);
  if (Number.isInteger(n) && !Number.isSafeInteger(n)) throw new FieldError(field, `${n} is beyond 2^53, where numbers are not exact; pass a bigint or text`);
  return String(n);
}

function dueText(due: Date): string {
  const year = due.getUTCFullYear();
  if (Number.isNaN(year)) throw new FieldError("not_before", "is not a date");
  if (year < 1970 || year > 9999) throw new FieldError("not_before", `year ${year} is outside 1970 to 9999`);
  return due.toISOString().replace("T", " ").replace("Z", "000");
}

function paramsText({ params = {}, rawParams = "", required = [], types = {} }: Invalidation): string | null {
  const names = Object.keys(params).filter((name) => params[name] !== undefined);
  if (rawParams !== "" && names.length > 0) throw new FieldError("params", "params and rawParams are both set; set one");
  const text = names.length > 0 ? `{${names.sort().map((name) => memberText(name, params[name], types[name])).join(",")}}` : rawParams;
  const bytes = Buffer.byteLength(text);
  if (bytes > 65536) throw new FieldError("params", `${bytes} bytes of JSON are more than 65536; pass ids, not documents`);
  const given = rawParams === "" ? new Set(names) : givenParams(rawParams);
  const missing = required.find((name) => !given.has(name));
  if (missing !== undefined) throw new FieldError(paramField(missing), "is missing; the map requires it");
  return text || null;
}

function memberText(name: string, value: unknown, type: "int" | "uuid" | undefined): string {
  if (name === "") throw new FieldError("params", "a parameter has an empty name");
  checkUTF8("params", name, "the name ");
  const scalar = (one: unknown, where = "") => {
    try {
      return scalarText(paramField(name), one, type);
    } catch (error) {
      throw error instanceof FieldError ? new FieldError(error.field, where + error.problem) : error;
    }
  };
  const text = Array.isArray(value) ? `[${Array.from(value, (one, i) => scalar(one, `element ${i}: `)).join(",")}]` : scalar(value);
  return `${JSON.stringify(name)}:${text}`;
}

function scalarText(field: string, value: unknown, type: "int" | "uuid" | undefined): string {
  switch (typeof value) {
    case "number":
    case "bigint":
    case "string": {
      if (typeof value === "string") checkUTF8(field, value);
      const text = typedText(field, typeof value === "number" ? numberText(field, value) : String(value), type);
      return type === "uuid" || (typeof value === "string" && !type) ? JSON.stringify(text) : text;
    }
    case "boolean":
      return typedText(field, String(value), type);
  }
  if (value === null || value === undefined) throw new FieldError(field, `is ${value}; leave it out`);
  throw new FieldError(field, `${kind(value)} is neither a scalar nor a list of scalars; pass text, a number, a bigint, a boolean or a list of these`);
}
