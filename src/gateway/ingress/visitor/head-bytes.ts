/** Heads up to this length are a part of what each request costs, and not counted. */
const USUAL_HEAD_BYTES = 4_096
/** They are kept as they came, and as they go on. */
const COPIES_OF_HEAD = 2

/** Bytes that a head is counted for while its exchange lasts. */
export function countedHeadBytes(bytes: number): number {
  return bytes > USUAL_HEAD_BYTES ? COPIES_OF_HEAD * bytes : 0
}
