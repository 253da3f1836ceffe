/** The fields that a gateway has to look at, lower case; all others pass as they are. */
export const KNOWN_FIELDS = [
  'te',
  'host',
  'expect',
  'upgrade',
  'forwarded',
  'x-real-ip',
  'connection',
  'keep-alive',
  'x-policy-hops',
  'content-length',
  'http2-settings',
  'x-forwarded-for',
  'ngrok-error-code',
  'proxy-connection',
  'x-forwarded-host',
  'transfer-encoding',
  'x-forwarded-proto',
] as const

export type KnownField = (typeof KNOWN_FIELDS)[number]

/** No two known names share length and first letter, so one look-up finds the only candidate. */
const slotOf = (length: number, firstCode: number) => length * 32 + (firstCode & 31)

const BY_SLOT: ReadonlyMap<number, KnownField> = new Map(
  KNOWN_FIELDS.map((field) => [slotOf(field.length, field.charCodeAt(0)), field]),
)

/**
 * Which known field a server may take `name` for that sees `_` and `-` as one, as the variables of
 * CGI do (RFC 3875 4.1.18).
 */
export function resembledField(name: string): KnownField | undefined {
  return name.includes('_') ? knownField(name.replaceAll('_', '-')) : undefined
}

/** Which known field `name` is, in any case. Cheap: it runs for each field of each message. */
export function knownField(name: string): KnownField | undefined {
  const candidate = BY_SLOT.get(slotOf(name.length, name.charCodeAt(0)))
  return candidate !== undefined && (name === candidate || name.toLowerCase() === candidate)
    ? candidate
    : undefined
}
