import { isIP } from 'node:net'
import { resolve } from 'node:path'
import * as z from 'zod'
import {
  IPV6_SERVER,
  isIPv6Address,
  isLoopback,
  type ListenAddress,
  type PortRange,
  parseListenAddress,
  parsePortRange,
} from '../base/listen-address.ts'
import { type Cidr, parseCidr } from '../base/net/network.ts'
import { type PublicName, parsePublicNames } from '../base/net/public-names.ts'
import { Secret } from '../base/secret.ts'
import { type AllowEntry, parseAllowEntry } from '../policy/outbound/outbound-allow.ts'

/** Forms of the values of settings. Each reads the text of a setting, or says what the text must be. */

/** A whole number. The unit is part of the message. */
export function whole(min: number, max: number, unit?: string) {
  const message = `must be a whole number${unit ? ` of ${unit}` : ''} from ${min} to ${max}`
  return z.coerce.number({ error: message }).int(message).min(min, message).max(max, message)
}

/** Whole seconds, read as milliseconds. */
export const seconds = (min: number, max: number) => whole(min, max, 'seconds').transform(toMs)

/** Seconds with decimals, read as milliseconds. */
export function secondsBetween(min: number, max: number) {
  const message = `must be between ${min} and ${max} seconds`
  return z.coerce.number({ error: message }).min(min, message).max(max, message).transform(toMs)
}

const toMs = (value: number) => value * 1_000

/** Whole seconds, or 0 with a meaning of its own. */
export function secondsOrZero(min: number, max: number) {
  const message = `must be a whole number of seconds from ${min} to ${max}, or 0`
  return z.coerce
    .number({ error: message })
    .int(message)
    .refine((value) => value === 0 || (value >= min && value <= max), message)
}

/** One of several words. */
export function oneOf<const Words extends readonly [string, string, ...string[]]>(words: Words) {
  const isLong = words.length > 2
  const error = `must be ${isLong ? `one of ${words.join(', ')}` : words.join(' or ')}`
  return z.enum(words, { error })
}

export const flag = oneOf(['true', 'false']).transform((text) => text === 'true')
export const path = z.string().transform((text) => resolve(text))
/** Marks forms whose text is a secret, or may contain one. */
export const SECRET = { isSecret: true }
const anySecret = z.string().transform((text) => new Secret(text))
export const secret = anySecret.meta(SECRET)

/** Characters of `Authorization: Bearer …` (RFC 6750 section 2.1). */
export const apiToken = anySecret
  .refine((token) => token.reveal().length >= 20, 'must have at least 20 characters')
  .refine(
    (token) => /^[\w.~+/-]+=*$/.test(token.reveal()),
    'must contain only letters, digits and - . _ ~ + / (bearer token characters)',
  )
  .meta(SECRET)
export const sha256 = z
  .string()
  .regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 hash in hex, as written by provision')
export const region = z
  .string()
  .regex(/^[\w.-]{1,32}$/, 'must have 1 to 32 letters, digits, dots, hyphens or underscores')
export const email = z.email('must be an email address')

export const listen = z.string().transform((text, context): ListenAddress => {
  const address = parseListenAddress(text)
  if (address) return address
  context.addIssue({ code: 'custom', message: 'must be host:port, such as 127.0.0.1:7040' })
  return z.NEVER
})

export const portRange = z.string().transform((text, context): PortRange => {
  const range = parsePortRange(text)
  if (range) return range
  const message = 'must be host:first-last with at most 10000 ports, such as 0.0.0.0:20000-20100'
  context.addIssue({ code: 'custom', message })
  return z.NEVER
})

/** Each additional address costs at most one connection. More addresses add no safety. */
const MAX_SERVERS = 5
const isServer = (text: string) => (parseListenAddress(text)?.port ?? 0) > 0
export const servers = z
  .string()
  .transform((text) => (text === '' ? [] : text.split(',').map((address) => address.trim())))
  .refine(
    (all) => all.length <= MAX_SERVERS && all.every(isServer),
    `must be host:port, or up to ${MAX_SERVERS} addresses separated by commas`,
  )
  .refine((all) => !all.some(isIPv6Address), IPV6_SERVER)

export const domain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(
    (text) =>
      text.length <= 253 && /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+$/.test(text),
    'must be a domain name, such as agent.site.example.com',
  )

export const wildcardDomain = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(
    (text) => text.startsWith('*.') && domain.safeParse(text.slice(2)).success,
    'must be a wildcard domain, such as *.site.example.com',
  )

export const httpsUrl = z.string().refine((text) => {
  if (!URL.canParse(text)) return false
  const { protocol, hostname } = new URL(text)
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname))
}, 'must be an https URL, such as https://acme.example.com/directory')

/** Texts separated by commas or spaces. */
export const list = z
  .string()
  .transform((text): readonly string[] => text.split(/[\s,]+/).filter((item) => item !== ''))

/** A list of values that `parse` reads. Instead of a value, `parse` returns the problem of a text. */
function listOf<Value extends object>(parse: (text: string) => Value | string) {
  return list.transform((texts, context): readonly Value[] =>
    texts.flatMap((text): Value[] => {
      const parsed = parse(text)
      if (typeof parsed !== 'string') return [parsed]
      context.addIssue({ code: 'custom', message: parsed })
      return []
    }),
  )
}

export const outboundAllow = listOf<AllowEntry>((text) => {
  const parsed = parseAllowEntry(text)
  return 'problem' in parsed ? `cannot list ${text}: ${parsed.problem}` : parsed
})

export const cidrs = listOf<Cidr>(
  (text) =>
    parseCidr(text) ??
    'must be addresses or CIDRs, such as 10.0.0.0/8 or 2001:db8::7, separated by commas',
)

export const publicNames = list.transform((texts, context): readonly PublicName[] => {
  const names = parsePublicNames(texts)
  if (!('problem' in names)) return names
  context.addIssue({ code: 'custom', message: names.problem })
  return []
})

export const ipAddresses = list.refine(
  (all) => all.every((text) => isIP(parseListenAddress(text)?.host ?? text) !== 0),
  'must be IP addresses with an optional :port',
)

/** Name that a client reports, and a version. */
export interface ClientVersion {
  readonly name: string
  readonly version: string
}

const CLIENT_VERSION = /^(@?[a-z][\w.-]*(?:\/[a-z][\w.-]*)?)\/v?(\d+(?:\.\d+){0,3})$/i

export const clientVersions = listOf<ClientVersion>((text) => {
  const [, name, version] = CLIENT_VERSION.exec(text) ?? []
  return name && version
    ? { name: name.toLowerCase(), version }
    : `must be name/version, such as ngrok-go/1.11, separated by commas; ${text} is not`
})

/** `off`: no check. `tcp`: the service accepts a connection. A path: it returns a status below 500. */
export type UpstreamHealth = 'off' | 'tcp' | `/${string}`

const HEALTH_FORM = 'must be off, tcp, or a path such as /healthz'
/** A path is used unchanged in a request line. */
export const upstreamHealth = z
  .string(HEALTH_FORM)
  .regex(/^(off|tcp|\/[!-~]{0,255})$/, HEALTH_FORM)
  .transform((text) => text as UpstreamHealth)
