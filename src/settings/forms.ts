import { isIP } from 'node:net'
import { resolve } from 'node:path'
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

/**
 * What is wrong with a text: the end of a sentence that begins with the name of the setting. It does not repeat
 * the text of a secret.
 */
export class Problem {
  readonly message: string

  constructor(message: string) {
    this.message = message
  }
}

/**
 * Form of the text of a setting. These are functions and no schemas of zod: building a schema for each setting
 * took a tenth of the time of a start.
 */
export interface Form<Value> {
  /** Returns the value of a text, or its problem. */
  readonly read: (text: string) => Value | Problem
  /** Whether the text is a secret, or may contain one. */
  readonly isSecret: boolean
}

type Read<Value> = Form<Value>['read']

/** A form of texts that are no secrets. */
export const form = <Value>(read: Read<Value>): Form<Value> => ({ read, isSecret: false })

/** A form of texts that are a secret, or may contain one. */
export const secretForm = <Value>(read: Read<Value>): Form<Value> => ({ read, isSecret: true })

/** The value of a text that has the form. Throws an Error with its problem if it does not. */
export function readValue<Value>({ read }: Form<Value>, text: string): Value {
  const value = read(text)
  if (value instanceof Problem) throw new Error(`A value ${value.message}.`)
  return value
}

/** The form with its values changed. */
export function changed<From, To>(from: Form<From>, change: (value: From) => To): Form<To> {
  const read = (text: string) => {
    const value = from.read(text)
    return value instanceof Problem ? value : change(value)
  }
  return { read, isSecret: from.isSecret }
}

/** A form of texts that are also their values. */
const text = (isGood: (text: string) => boolean, message: string) =>
  form((given) => (isGood(given) ? given : new Problem(message)))

/** Numbers as JavaScript reads them, in which `isGood`. */
const number = (isGood: (value: number) => boolean, message: string) =>
  form((given) => {
    const value = Number(given)
    return isGood(value) ? value : new Problem(message)
  })

/** A whole number. The unit is part of the message. */
export function whole(min: number, max: number, unit?: string) {
  const message = `must be a whole number${unit ? ` of ${unit}` : ''} from ${min} to ${max}`
  return number((value) => Number.isSafeInteger(value) && value >= min && value <= max, message)
}

/** Whole seconds, read as milliseconds. */
export const seconds = (min: number, max: number) => changed(whole(min, max, 'seconds'), toMs)

/** Seconds with decimals, read as milliseconds. */
export function secondsBetween(min: number, max: number) {
  const message = `must be between ${min} and ${max} seconds`
  return changed(
    number((value) => value >= min && value <= max, message),
    toMs,
  )
}

const toMs = (value: number) => value * 1_000

/** Whole seconds, or 0 with a meaning of its own. */
export function secondsOrZero(min: number, max: number) {
  const message = `must be a whole number of seconds from ${min} to ${max}, or 0`
  const isGood = (value: number) => value === 0 || (value >= min && value <= max)
  return number((value) => Number.isSafeInteger(value) && isGood(value), message)
}

/** One of several words. */
export function oneOf<const Words extends readonly [string, string, ...string[]]>(
  words: Words,
): Form<Words[number]> {
  const isLong = words.length > 2
  const message = `must be ${isLong ? `one of ${words.join(', ')}` : words.join(' or ')}`
  return form((given) => words.find((word) => word === given) ?? new Problem(message))
}

export const flag = changed(oneOf(['true', 'false']), (word) => word === 'true')
export const path = form((given) => resolve(given))
export const secret = secretForm((given) => new Secret(given))

/** Characters of `Authorization: Bearer …` (RFC 6750 section 2.1). */
export const apiToken = secretForm((given) => {
  if (!/^[\w.~+/-]+=*$/.test(given)) {
    return new Problem(
      'must contain only letters, digits and - . _ ~ + / (bearer token characters)',
    )
  }
  if (given.length < 20) return new Problem('must have at least 20 characters')
  return new Secret(given)
})
export const sha256 = text(
  (given) => /^[0-9a-f]{64}$/.test(given),
  'must be a SHA-256 hash in hex, as written by provision',
)
export const region = text(
  (given) => /^[\w.-]{1,32}$/.test(given),
  'must have 1 to 32 letters, digits, dots, hyphens or underscores',
)

const EMAIL = /^[\w'+-]+(?:\.[\w'+-]+)*@(?:[a-z0-9][a-z0-9-]*\.)+[a-z]{2,}$/i
export const email = text((given) => EMAIL.test(given), 'must be an email address')

export const listen = form(
  (given): ListenAddress | Problem =>
    parseListenAddress(given) ?? new Problem('must be host:port, such as 127.0.0.1:7040'),
)

export const portRange = form(
  (given): PortRange | Problem =>
    parsePortRange(given) ??
    new Problem('must be host:first-last with at most 10000 ports, such as 0.0.0.0:20000-20100'),
)

/** Each additional address costs at most one connection. More addresses add no safety. */
/** Addresses in SVC_SERVER_ADDR. */
export const MAX_SERVERS = 5
const isServer = (address: string) => (parseListenAddress(address)?.port ?? 0) > 0
export const servers = form((given): string[] | Problem => {
  const all = given === '' ? [] : given.split(',').map((address) => address.trim())
  if (all.length > MAX_SERVERS || !all.every(isServer)) {
    return new Problem(`must be host:port, or up to ${MAX_SERVERS} addresses separated by commas`)
  }
  return all.some(isIPv6Address) ? new Problem(IPV6_SERVER) : all
})

const isDomain = (name: string) =>
  name.length <= 253 && /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]+$/.test(name)

export const domain = form((given) => {
  const name = given.toLowerCase()
  return isDomain(name)
    ? name
    : new Problem('must be a domain name, such as agent.site.example.com')
})

export const wildcardDomain = form((given) => {
  const name = given.toLowerCase()
  return name.startsWith('*.') && isDomain(name.slice(2))
    ? name
    : new Problem('must be a wildcard domain, such as *.site.example.com')
})

export const httpsUrl = text((given) => {
  if (!URL.canParse(given)) return false
  const { protocol, hostname } = new URL(given)
  return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname))
}, 'must be an https URL, such as https://acme.example.com/directory')

/** Texts separated by commas or spaces. */
export const list = form((given): readonly string[] => itemsOf(given))

const itemsOf = (given: string) => given.split(/[\s,]+/).filter((item) => item !== '')

/** A list of values that `parse` reads. Instead of a value, `parse` returns the problem of a text. */
function listOf<Value extends object>(parse: (item: string) => Value | string) {
  return form((given): readonly Value[] | Problem => {
    const values: Value[] = []
    for (const item of itemsOf(given)) {
      const parsed = parse(item)
      if (typeof parsed === 'string') return new Problem(parsed)
      values.push(parsed)
    }
    return values
  })
}

export const outboundAllow = listOf<AllowEntry>((item) => {
  const parsed = parseAllowEntry(item)
  return 'problem' in parsed ? `cannot list ${item}: ${parsed.problem}` : parsed
})

export const cidrs = listOf<Cidr>(
  (item) =>
    parseCidr(item) ??
    'must be addresses or CIDRs, such as 10.0.0.0/8 or 2001:db8::7, separated by commas',
)

export const publicNames = form((given): readonly PublicName[] | Problem => {
  const names = parsePublicNames(itemsOf(given))
  return 'problem' in names ? new Problem(names.problem) : names
})

export const ipAddresses = form((given): readonly string[] | Problem => {
  const all = itemsOf(given)
  return all.every((item) => isIP(parseListenAddress(item)?.host ?? item) !== 0)
    ? all
    : new Problem('must be IP addresses with an optional :port')
})

/** Name that a client reports, and a version. */
export interface ClientVersion {
  readonly name: string
  readonly version: string
}

const CLIENT_VERSION = /^(@?[a-z][\w.-]*(?:\/[a-z][\w.-]*)?)\/v?(\d+(?:\.\d+){0,3})$/i

export const clientVersions = listOf<ClientVersion>((item) => {
  const [, name, version] = CLIENT_VERSION.exec(item) ?? []
  return name && version
    ? { name: name.toLowerCase(), version }
    : `must be name/version, such as ngrok-go/1.11, separated by commas; ${item} is not`
})

/** `off`: no check. `tcp`: the service accepts a connection. A path: it returns a status below 500. */
export type UpstreamHealth = 'off' | 'tcp' | `/${string}`

export const HEALTH_FORM = 'must be off, tcp, or a path such as /healthz'
/** A path is used unchanged in a request line. */
export const HEALTH_PATTERN = /^(off|tcp|\/[!-~]{0,255})$/
export const upstreamHealth = form((given) =>
  HEALTH_PATTERN.test(given) ? (given as UpstreamHealth) : new Problem(HEALTH_FORM),
)
