import { domainToUnicode } from 'node:url'

/** What can be wrong with a domain name; bind and management answer each with a code of its own. */
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

/** RFC 1035 section 2.3.4. */
const MAX_LABEL = 63
/** 255 octets on the wire (RFC 1035 section 2.3.4) are 253 characters of text. */
const MAX_NAME = 253

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
  return domainToUnicode(label) === '' ? 'punycode' : undefined
}

/** True when `name` is `wildcard` itself or any name below it, at whatever depth; not its apex. */
export function isBelow(name: string, wildcard: string): boolean {
  return wildcard.startsWith('*.') && name.endsWith(wildcard.slice(1)) && name !== wildcard.slice(1)
}

/** True for names that only policies reach: they need no reservation and no certificate. */
export function isInternal(name: string): boolean {
  return name.endsWith('.internal')
}
