import { isIPv6 } from 'node:net'
import { parseAddress, parseCidr } from '../../base/net/network.ts'
import { plainHost, plainTarget } from '../exchange/request-path.ts'
import { quote } from '../expression/comparison.ts'

/** How a text is compared with a value: as a whole, or as a part of it. */
export type Place = 'equal' | 'start' | 'end' | 'part'

/** A kind of text that a value never has, or never contains. */
interface ImpossibleText {
  /** Variables, or one of the names below. */
  readonly of: readonly string[]
  readonly at: readonly Place[]
  readonly isImpossible: (text: string, place: Place) => boolean
  /** A clause: `methods are upper case`. */
  readonly because: string
  /** The text in the form of the value. */
  readonly right?: (text: string, place: Place) => string
  /** A condition in place of the comparison with all these texts. Undefined: there is none. */
  readonly form?: (shown: string, texts: readonly string[], place: Place) => string | undefined
  /** The hosted service may have other values. */
  readonly isOurs?: boolean
}

/** The name of a header, as a macro over a map of headers reads it. */
export const HEADER_NAME = '@header_name'
/** The result of `lower()` and `lowerAscii()`. */
export const LOWER_CASE = '@lower'
/** The result of `upper()` and `upperAscii()`. */
export const UPPER_CASE = '@upper'

const ANYWHERE: readonly Place[] = ['equal', 'start', 'end', 'part']
const WHOLE: readonly Place[] = ['equal']
const FROM_START: readonly Place[] = ['equal', 'start']
const TO_END: readonly Place[] = ['equal', 'end']

const HOSTS = ['req.host', 'req.url.host', 'conn.tls.sni']
const ALL_HOSTS = [...HOSTS, 'endpoint.host']
const PATHS = ['req.url.path', 'req.url.raw_path']
const URLS = ['req.url', 'req.url.raw']
const ADDRESSES = ['conn.client_ip', 'conn.server_ip']
const MEDIA_TYPES = ['req.content_type', 'res.content_type']
const COUNTRIES = [
  'conn.geo',
  ...ADDRESSES.flatMap((ip) => [`${ip}.geo.location`, `${ip}.geo.registered_location`]),
].map((place) => `${place}.country_code`)

/** The variables that have one of a few values. */
const CHOICES: readonly (readonly [name: string, values: readonly string[]])[] = [
  ['req.url.scheme', ['http', 'https']],
  ['endpoint.protocol', ['http', 'https', 'tcp', 'tls']],
  ['req.version', ['HTTP/1.0', 'HTTP/1.1', 'HTTP/2.0']],
  ['conn.tls.version', ['1.0', '1.1', '1.2', '1.3']],
]

const TESTS = { start: 'startsWith', end: 'endsWith', part: 'contains' } as const

const lower = (text: string) => text.toLowerCase()
const upper = (text: string) => text.toUpperCase()
const hasUpper = (text: string) => /[A-Z]/.test(text)
const hasLower = (text: string) => /[a-z]/.test(text)

/**
 * Texts that a value never has, in the order in which they are told. An empty text is none of them: a
 * comparison with it asks whether there is a value.
 */
const IMPOSSIBLE: readonly ImpossibleText[] = [
  {
    of: ['req.method'],
    at: ANYWHERE,
    isImpossible: hasLower,
    because: 'methods are upper case',
    right: upper,
  },
  {
    of: ALL_HOSTS,
    at: ANYWHERE,
    isImpossible: (text) => text.includes('/'),
    because: 'a host has no scheme and no path',
    right: (text) => text.replace(/^[a-z][a-z\d+.-]*:\/\//i, '').replace(/\/.*$/, ''),
    isOurs: true,
  },
  {
    of: ALL_HOSTS,
    at: TO_END,
    isImpossible: (text) => /^[^:]*:\d{1,5}$|\]:\d{1,5}$/.test(text),
    because: 'a host has no port here',
    right: (text) => text.replace(/:\d+$/, ''),
    isOurs: true,
  },
  {
    of: HOSTS,
    at: ANYWHERE,
    isImpossible: (text) => text.includes('*'),
    because: 'a host has no wildcard',
    form: (shown, [text = '', ...others], place) =>
      place === 'equal' && others.length === 0 && /^\*\.[^*]+$/.test(text)
        ? `${shown}.endsWith(${quote(plainHost(text.slice(1)))})`
        : undefined,
  },
  {
    of: ALL_HOSTS,
    at: ANYWHERE,
    isImpossible: hasUpper,
    because: 'hosts are lower case here',
    right: lower,
    isOurs: true,
  },
  {
    of: ALL_HOSTS,
    at: TO_END,
    isImpossible: (text) => /[^.]\.$/.test(text),
    because: 'a host has no dot at its end here',
    right: (text) => text.slice(0, -1),
    isOurs: true,
  },
  {
    of: [...PATHS, 'req.url.uri'],
    at: FROM_START,
    isImpossible: (text) => !/^[/*]/.test(text),
    because: 'a path begins with a slash',
    right: (text, place) => (/^[\w%.~-]/.test(text) ? orNone(pathOfUrl(text), place) : ''),
  },
  {
    of: PATHS,
    at: ANYWHERE,
    isImpossible: (text) => /[?#]/.test(text),
    because: 'a path ends before the query, which is in req.url.query',
    form: (shown, [text = '', ...others], place) => {
      if (place !== 'equal' || others.length > 0) return undefined
      const [path = '', query = '', ...more] = text.split('?')
      return more.length === 0 && !text.includes('#') && !isOtherPath(path)
        ? `${shown} == ${quote(path)} && req.url.query == ${quote(query)}`
        : undefined
    },
  },
  {
    of: ['req.url.path'],
    at: ANYWHERE,
    isImpossible: isOtherPath,
    because: 'the path is decoded and has no doubled slashes here',
    // A part of a path is asked for to find a certain spelling.
    right: (text, place) => (place === 'equal' ? orNone(plainTarget(text).path, place) : ''),
    form: (_, [text = '', ...others], place) => {
      if (place === 'equal' || others.length > 0) return undefined
      if (mismatchOf('req.url.raw_path', text, place)) return undefined
      return `req.url.raw_path.${TESTS[place]}(${quote(text)})`
    },
    isOurs: true,
  },
  {
    of: URLS,
    at: FROM_START,
    isImpossible: (text) =>
      !['http://', 'https://'].some((start) => text.startsWith(start) || start.startsWith(text)),
    because: 'a URL begins with http:// or https://',
    form: (shown, texts, place) => {
      const path = shown.endsWith('.raw') ? 'req.url.raw_path' : 'req.url.path'
      const isPath = (text: string) =>
        text.startsWith('/') && orNone(text, place) !== '' && !mismatchOf(path, text, place)
      if (!texts.every(isPath)) return undefined
      const constants = listed(texts.map(quote))
      if (place === 'start') return `${path}.startsWith(${constants})`
      return texts.length === 1 ? `${path} == ${constants}` : `${path} in [${constants}]`
    },
  },
  {
    of: ['req.url'],
    at: FROM_START,
    isImpossible: (text) => /^https?:\/\/[^/]*[A-Z]/.test(text),
    because: 'hosts are lower case here',
    right: (text) => text.replace(/^https?:\/\/[^/]*/, lower),
    isOurs: true,
  },
  {
    of: URLS,
    at: WHOLE,
    isImpossible: (text) => /^https?:\/\/[^/]+$/.test(text),
    because: 'a URL has a path',
    right: (text) => (text.includes('#') ? '' : text.replace(/^(https?:\/\/[^?]+)/, '$1/')),
  },
  ...CHOICES.map(
    ([name, values]): ImpossibleText => ({
      of: [name],
      at: ANYWHERE,
      isImpossible: (text, place) => !values.some((value) => fits(value, text, place)),
      because: `the value is ${values.join(', ').replace(/, ([^,]*)$/, ' or $1')}`,
      right: (text) => chosen(text, values),
      isOurs: true,
    }),
  ),
  {
    of: ADDRESSES,
    at: ANYWHERE,
    isImpossible: (text) => text.includes('/'),
    because: 'the value is one address, not a range',
    form: (shown, texts) => (texts.every(parseCidr) ? rangeForm(shown, texts) : undefined),
  },
  {
    of: ADDRESSES,
    at: WHOLE,
    isImpossible: (text) => parseAddress(text) === undefined,
    because: 'the value is an IP address',
  },
  {
    of: ADDRESSES,
    at: WHOLE,
    isImpossible: (text) => addressAs(text) !== text,
    because: 'an address has one spelling here',
    right: addressAs,
  },
  {
    of: MEDIA_TYPES,
    at: ANYWHERE,
    isImpossible: (text) => text.includes(';'),
    because: 'the value has no parameters, which are in content_type.parameters',
    right: (text) => text.replace(/\s*;.*$/, ''),
  },
  {
    of: MEDIA_TYPES,
    at: ANYWHERE,
    isImpossible: hasUpper,
    because: 'media types are lower case here',
    right: lower,
    isOurs: true,
  },
  {
    of: COUNTRIES,
    at: ANYWHERE,
    isImpossible: hasLower,
    because: 'country codes are two upper case letters, such as DE',
    right: (text) => (text.length <= 2 ? upper(text) : ''),
  },
  {
    of: COUNTRIES,
    at: WHOLE,
    isImpossible: (text) => text.length !== 2,
    because: 'country codes are two upper case letters, such as DE',
  },
  {
    of: [HEADER_NAME],
    at: ANYWHERE,
    isImpossible: hasUpper,
    because: 'names of headers are lower case here',
    right: lower,
    isOurs: true,
  },
  {
    of: [LOWER_CASE],
    at: ANYWHERE,
    isImpossible: hasUpper,
    because: 'the text before is lower case',
    right: lower,
  },
  {
    of: [UPPER_CASE],
    at: ANYWHERE,
    isImpossible: hasLower,
    because: 'the text before is upper case',
    right: upper,
  },
]

/** The condition that an address is in one of some ranges. */
export function rangeForm(shown: string, ranges: readonly string[]): string {
  return ranges.length === 1
    ? `inCidrRange(${shown}, ${quote(ranges[0] ?? '')})`
    : `inCidrRanges(${shown}, [${listed(ranges.map(quote))}])`
}

const BY_NAME = new Map<string, readonly ImpossibleText[]>()
for (const entry of IMPOSSIBLE) {
  for (const name of entry.of) BY_NAME.set(name, [...(BY_NAME.get(name) ?? []), entry])
}

/**
 * The ranges of addresses that a pattern for a variable consists of: `^(10.0.0.0/8|192.168.0.0/16)`. Undefined
 * for other patterns and variables.
 */
export function rangesInPattern(name: string, pattern: string): readonly string[] | undefined {
  if (!ADDRESSES.includes(name)) return undefined
  const texts = pattern
    .replaceAll('\\', '')
    .replace(/^\^?\(?(?:\?:)?/, '')
    .replace(/\)?\$?$/, '')
    .split('|')
  const areRanges = texts.every(parseCidr) && texts.some((text) => text.includes('/'))
  return areRanges ? texts : undefined
}

/** Why a text is never found in a value, and the right form. */
export interface Mismatch {
  readonly because: string
  /** The text in the form of the value. */
  readonly right: string | undefined
  /** See `ImpossibleText`. */
  readonly form: ImpossibleText['form']
  readonly isOurs: boolean
}

/** Judges a text that a variable is compared with; undefined if it may be found. */
export function mismatchOf(name: string, text: string, place: Place): Mismatch | undefined {
  if (text === '') return undefined
  const entries = (BY_NAME.get(name) ?? []).filter(({ at }) => at.includes(place))
  const found = entries.filter(({ isImpossible }) => isImpossible(text, place))
  const [first] = found
  if (!first) return undefined
  // One text may have several flaws: `Example.com:8080`.
  const right = found.some((entry) => !entry.right)
    ? ''
    : entries.reduce((fixed, { right = String, isImpossible }) => {
        return fixed !== '' && isImpossible(fixed, place) ? right(fixed, place) : fixed
      }, text)
  const { because, form } = first
  const isOurs = found.every((entry) => entry.isOurs)
  return { because, right: right === '' ? undefined : right, form, isOurs }
}

function fits(value: string, text: string, place: Place): boolean {
  switch (place) {
    case 'equal':
      return value === text
    case 'start':
      return value.startsWith(text)
    case 'end':
      return value.endsWith(text)
    case 'part':
      return value.includes(text)
  }
}

/** The one value that is meant, by its letters and digits: `TLSv1.3`, `HTTPS://`. Empty: none. */
function chosen(text: string, values: readonly string[]): string {
  const core = (value: string) => value.toLowerCase().replace(/[^a-z\d]/g, '')
  const written = core(text)
  const [exact] = values.filter((value) => core(value) === written)
  if (exact !== undefined) return exact
  const [digits = ''] = /\d[\d.]*$/.exec(text) ?? []
  if (digits === '') return ''
  const fitting = values.filter((value) => value.endsWith(digits) || value.endsWith(`${digits}.0`))
  return fitting.length === 1 ? (fitting[0] ?? '') : ''
}

/** Most constants in a sentence. */
const MAX_LISTED = 10

/** Constants for a list in a sentence. */
export function listed(constants: readonly string[]): string {
  if (constants.length <= MAX_LISTED) return constants.join(', ')
  return `${constants.slice(0, MAX_LISTED).join(', ')}, …`
}

/** Every path begins with a slash, so a text that became only a slash is no advice. */
function orNone(path: string, place: Place): string {
  return path === '/' && place !== 'equal' ? '' : path
}

function pathOfUrl(text: string): string {
  const path = text.replace(/^https?:\/\/[^/]*/i, '')
  return path.startsWith('/') ? path : `/${path}`
}

/** Escapes of other scripts stand for bytes, so a text with both has no single spelling. */
function isOtherPath(text: string): boolean {
  return /^[!-~]*$/.test(text) && plainTarget(text).path !== text
}

/** The spelling of an address in `conn.client_ip`. Embedded IPv4 has several. */
function addressAs(text: string): string {
  const address = parseAddress(text)
  if (!address) return text
  if (!isIPv6(text) || text.includes('%')) return text
  if (address.kind() === 'ipv4') return address.toString()
  return text.includes('.') ? text : new URL(`http://[${text}]`).hostname.slice(1, -1)
}
