import { domainToASCII, domainToUnicode } from 'node:url'
import { ServiceError } from './service-error.ts'

/** A domain with the random label of its CNAME targets. */
type Labeled = { readonly dnsLabel: string }

/** Target of the CNAME record of a reserved domain. */
export function cnameTarget({ dnsLabel }: Labeled, cnameBase: string): string {
  return `${dnsLabel}.cname.${cnameBase}`
}

/** Target of the CNAME record of its `_acme-challenge` name. */
export function challengeTarget({ dnsLabel }: Labeled, cnameBase: string): string {
  return `${dnsLabel}.${challengeZone(cnameBase)}`
}

/** Zone for ACME challenges, for which this gateway is the name server. */
export function challengeZone(cnameBase: string): string {
  return `acme.${cnameBase}`
}

/** Problems of a domain name. Bind and management API have their own codes for them. */
export type DomainProblem =
  | 'character'
  | 'underscore'
  | 'repeated-dot'
  | 'first-character'
  | 'last-character'
  | 'hyphens'
  | 'punycode'
  | 'label-length'
  | 'length'
  | 'top-level'
  | 'not-qualified'
  | 'wildcard-place'

const SENTENCES: Record<DomainProblem, string> = {
  character: 'only a-z, 0-9, dots and hyphens are allowed',
  underscore: 'underscores are not allowed',
  'repeated-dot': 'two dots in a row are not allowed',
  'first-character': 'each label must start with a letter or digit',
  'last-character': 'each label must end with a letter or digit',
  hyphens: '"--" as characters 3 and 4 of a label is only allowed in "xn--"',
  punycode: 'a label that starts with "xn--" must be valid punycode',
  'label-length': 'a label can have at most 63 characters',
  length: 'a domain can have at most 253 characters',
  'top-level': 'the last label must not be a number',
  'not-qualified': 'at least two labels are required',
  'wildcard-place': 'a "*" is only allowed as the whole first label',
}
/** RFC 1035 section 2.3.4. */
const MAX_LABEL = 63
/** 255 octets on the wire (RFC 1035 section 2.3.4) are 253 characters of text. */
const MAX_NAME = 253

/** The service's code for each problem; reserving and binding have codes of their own. */
export type DomainCodes = Readonly<Record<DomainProblem, number>>

/** Throws the ServiceError of the first problem of a lower-case name. */
export function checkDomain(name: string, codes: DomainCodes): void {
  const problem = findDomainProblem(name)
  if (!problem) return
  const ascii = problem === 'character' ? domainToASCII(name) : ''
  const advice = ascii && !findDomainProblem(ascii) ? `; write ${ascii}` : ''
  throw new ServiceError(
    codes[problem],
    `The domain ${name} is not valid: ${SENTENCES[problem]}${advice}.`,
  )
}

/**
 * The first problem of a lower-case host name, or undefined. A leading `*.` is allowed.
 * Any top-level name will do, because a site may have its own; a number will not: that is an IP.
 */
export function findDomainProblem(name: string): DomainProblem | undefined {
  if (name.length > MAX_NAME) return 'length'
  if (name.includes('_')) return 'underscore'
  if (/[^a-z0-9.*-]/.test(name)) return 'character'
  if (name.includes('..')) return 'repeated-dot'
  const labels = name.split('.')
  if (labels.length > 1 && labels[0] === '*') labels.shift()
  if (labels.some((label) => label.includes('*'))) return 'wildcard-place'
  for (const label of labels) {
    const problem = findLabelProblem(label)
    if (problem) return problem
  }
  if (!name.includes('.')) return 'not-qualified'
  return /^\d+$/.test(labels.at(-1) ?? '') ? 'top-level' : undefined
}

function findLabelProblem(label: string): DomainProblem | undefined {
  if (label.length > MAX_LABEL) return 'label-length'
  if (label === '' || label.startsWith('-')) return 'first-character'
  if (label.endsWith('-')) return 'last-character'
  if (label.slice(2, 4) !== '--') return undefined
  // RFC 5891 section 4.2.3.1 keeps `--` in places 3 and 4 for labels that carry a meaning.
  if (!label.startsWith('xn--')) return 'hyphens'
  // An invalid label gives an empty text on Node 20, and stays unchanged on Node 24.
  const decoded = domainToUnicode(label)
  return decoded === '' || decoded === label ? 'punycode' : undefined
}

/** Whether `name` is `wildcard` or a name below it at any depth, but not its apex. */
export function isBelow(name: string, wildcard: string): boolean {
  return wildcard.startsWith('*.') && name.endsWith(wildcard.slice(1)) && name !== wildcard.slice(1)
}

/** The wildcards above a name or a wildcard, the most specific first. */
export function* wildcardsAbove(name: string): Generator<string> {
  const host = name.startsWith('*.') ? name.slice(2) : name
  // A dot at 0 would leave nothing for the star to stand for.
  for (let dot = host.indexOf('.', 1); dot !== -1; dot = host.indexOf('.', dot + 1)) {
    yield `*${host.slice(dot)}`
  }
}

const INTERNAL = /\.internal(?::\d+)?$/

/**
 * True for names, and TCP addresses, that only policies reach: they need no reservation, no certificate
 * and no port.
 */
export function isInternal(host: string): boolean {
  return INTERNAL.test(host)
}
