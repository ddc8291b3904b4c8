/** The version of a tag. */
export const stampKey = (tag: string) => `stamp:${tag}`;

/** The lease of a key: the right to store one entry. undefined: the key cannot have one, so store nothing. */
export const leaseKey = (key: string) => beside("lock:fill:", key);

/** The tombstone of a key: while it exists, nothing is stored. undefined as for `leaseKey`. */
export const holdKey = (key: string) => beside("lock:hold:", key);

/** Returns a name in the slot of a key: a hash tag is kept, and a key without braces is wrapped in them. */
function beside(prefix: string, key: string): string | undefined {
  if (key === "" || !key.isWellFormed()) return undefined; // Redis would get another key
  if (!/[{}]/.test(key)) return `${prefix}{${key}}`;
  const tagged = /^[^{]*\{[^}]+\}/.test(key);
  const wrapped = /^\{[^{}]+\}$/.test(key); // its lease would be that of the text inside
  return tagged && !wrapped ? prefix + key : undefined;
}

/** Reports whether all tags can have versions. A value with another tag is not stored. */
export const stampable = (tags: readonly string[]) => tags.every((tag) => holdKey(stampKey(tag)) !== undefined);
