/** May stand in a token: method, field name, chunk extension (RFC 9110 5.6.2). */
export const TOKEN = 1
/** May stand in a field value: VCHAR, obs-text, SP, HTAB (RFC 9110 5.5). */
export const VALUE = 2
/** May stand in a start line: VCHAR, obs-text, SP. */
export const LINE = 4
/** May stand in a request target: VCHAR without `#` (RFC 9112 3.2, RFC 3986 4.3). */
export const TARGET = 8
/** May stand in a host name or IPv4 address; stricter than reg-name (RFC 3986 3.2.2). */
export const HOST = 16

const TOKEN_MARKS = "!#$%&'*+-.^_`|~"

/** The classes of each byte, as a set of the bits above. */
export const BYTE_CLASS: Uint8Array = Uint8Array.from({ length: 256 }, (_, byte) => {
  const char = String.fromCharCode(byte)
  const isVisible = byte > 0x20 && byte < 0x7f
  const isAlphanumeric = /[0-9A-Za-z]/.test(char)
  const isText = isVisible || byte >= 0x80 || char === ' '
  return (
    (isAlphanumeric || TOKEN_MARKS.includes(char) ? TOKEN : 0) |
    (isText || char === '\t' ? VALUE : 0) |
    (isText ? LINE : 0) |
    (isVisible && char !== '#' ? TARGET : 0) |
    (isAlphanumeric || '-._'.includes(char) ? HOST : 0)
  )
})

/** True when `text` from `from` to `to` has only characters of one class, and at least one. */
export function consistsOf(text: string, from: number, to: number, bits: number): boolean {
  for (let at = from; at < to; at += 1) {
    // A latin1 string: no character is above 255.
    if (((BYTE_CLASS[text.charCodeAt(at)] as number) & bits) === 0) return false
  }
  return to > from
}
