import { nearest, noField } from '../../base/nearest.ts'
import { PHASES, type Phase } from '../phase.ts'
import { child } from './problem.ts'

type Fields = Readonly<Record<string, unknown>>

/** A problem with the place where it stands. */
export interface Mistake {
  readonly pointer: string
  readonly message: string
}

/** Fields of other documents that hold a policy. */
const HOLDERS = ['traffic_policy', 'trafficPolicy', 'policy'] as const
const LIST_HINT = 'Begin each rule with a dash below a phase, such as on_http_request'

/** What a document is that is not a policy; undefined for an object with phases or with unknown fields. */
export function otherDocument(value: unknown): Mistake | undefined {
  if (value === undefined || value === null || value === '') {
    return whole(`The policy is empty. Write rules below ${list(PHASES, 'or')}.`)
  }
  if (Array.isArray(value)) {
    return whole(
      value.length === 0
        ? 'The policy is an empty list. Write {} for a policy without rules.'
        : `The policy is a list, not an object with phases. ${LIST_HINT}.`,
    )
  }
  if (typeof value === 'string') return textDocument(value)
  if (typeof value !== 'object') return undefined
  const fields = value as Fields
  if (PHASES.some((phase) => phase in fields)) return undefined
  return resource(fields) ?? agentFile(fields) ?? wrapper(fields) ?? bareRule(fields)
}

const whole = (message: string): Mistake => ({ pointer: '', message })

function textDocument(text: string): Mistake | undefined {
  if (!/^\s*[{[]/.test(text) && !PHASES.some((phase) => text.trim().startsWith(phase))) {
    return undefined
  }
  return whole(
    'The policy is a text within quotes. Remove the quotes around it and the backslashes in it.',
  )
}

function resource(fields: Fields): Mistake | undefined {
  const { kind, spec } = fields
  if (typeof kind !== 'string' || !('apiVersion' in fields)) return isSpec(spec)
  const what = `This is a Kubernetes resource (${kind.slice(0, 60)})`
  const place = RESOURCE_PLACES.find((path) => isIn(fields, path))
  return whole(
    place === undefined
      ? `${what} without a policy. Save the part below spec.policy of the resource that has one.`
      : `${what}, not a policy. Save the part below ${place} as the policy.`,
  )
}

/** Where resources have their policy. */
const RESOURCE_PLACES = [
  ...['spec.policy', 'spec.trafficPolicy.policy', 'spec.trafficPolicy.inline', 'policy'],
]

function isIn(fields: unknown, path: string): boolean {
  const [step = '', ...rest] = path.split('.')
  const part: unknown = Object.hasOwn(Object(fields), step) ? Object(fields)[step] : undefined
  return rest.length === 0 ? Object(part) === part : isIn(part, rest.join('.'))
}

function isSpec(spec: unknown): Mistake | undefined {
  if (typeof spec !== 'object' || spec === null || !('policy' in spec)) return undefined
  return { pointer: '/spec', message: 'The policy is below spec.policy. Save that part alone.' }
}

function agentFile(fields: Fields): Mistake | undefined {
  const { endpoints, tunnels } = fields
  const isFile = Array.isArray(endpoints) || (typeof tunnels === 'object' && tunnels !== null)
  if (!isFile) return undefined
  const entries: [string, unknown][] = [
    ...Object.entries(endpoints ?? {}).map(([at, one]): [string, unknown] => [
      `endpoints[${at}]`,
      one,
    ]),
    ...Object.entries(tunnels ?? {}).map(([at, one]): [string, unknown] => [`tunnels.${at}`, one]),
  ]
  const places = entries.flatMap(([place, entry]) => {
    const holder = HOLDERS.find((name) => name in Object(entry))
    return holder ? [`${place}.${holder}`] : []
  })
  const what = 'This is the configuration of an agent, not a policy.'
  if (places.length === 0) return whole(`${what} It contains no policy.`)
  return whole(`${what} Save the part below ${list(places.slice(0, 3), 'or')} as the policy.`)
}

function wrapper(fields: Fields): Mistake | undefined {
  const holder = HOLDERS.find((name) => name in fields)
  if (holder === undefined) return undefined
  const isText = typeof fields[holder] === 'string'
  if ('url' in fields) {
    const part = isText ? `the text in ${holder}` : `the part below ${holder}`
    return {
      pointer: child('', holder),
      message: `This is an endpoint, not a policy. Save ${part} as the policy.`,
    }
  }
  const message = isText
    ? `The policy is a text in ${holder}. Save that text alone.`
    : `The policy is inside ${holder}. Remove the line ${holder} and indent the rest less.`
  return { pointer: child('', holder), message }
}

/** A rule or an action without a phase around it. */
function bareRule(fields: Fields): Mistake | undefined {
  if ('actions' in fields || 'expressions' in fields) {
    return whole(
      'The policy is a single rule without a phase. Write on_http_request: above it, and begin the rule below it with a dash.',
    )
  }
  if (typeof fields.type !== 'string' || 'spec' in fields) return undefined
  return whole(
    'The policy is a single action without a rule. Write on_http_request: above it, below that - actions:, and begin the action with a dash.',
  )
}

/** Why a field of a rule stands beside the phases: a sentence. */
export function strayField(key: string): string | undefined {
  if (key === 'type' || key === 'config') {
    return `${key} belongs to an action. Indent it below actions of a rule.`
  }
  return key === 'actions' || key === 'expressions'
    ? `${key} belongs to a rule. Indent it like the other fields of a rule, below a phase.`
    : undefined
}

const list = (names: readonly string[], word: string) =>
  names.length < 2
    ? names.join('')
    : `${names.slice(0, -1).join(', ')} ${word} ${names.slice(-1).join('')}`

const PHASES_MEANT: ReadonlyMap<string, Phase> = new Map([
  ['onrequest', 'on_http_request'],
  ['request', 'on_http_request'],
  ['httprequest', 'on_http_request'],
  ['onhttp', 'on_http_request'],
  ['onhttprequests', 'on_http_request'],
  ['rules', 'on_http_request'],
  ['onresponse', 'on_http_response'],
  ['response', 'on_http_response'],
  ['httpresponse', 'on_http_response'],
  ['onconnect', 'on_tcp_connect'],
  ['onconnection', 'on_tcp_connect'],
  ['ontcpconnection', 'on_tcp_connect'],
  ['ontcp', 'on_tcp_connect'],
  ['tcpconnect', 'on_tcp_connect'],
  ['ontlsrequest', 'on_tcp_connect'],
  ['ontlsconnect', 'on_tcp_connect'],
])

/** The phase that is meant by an unknown field. */
export function meantPhase(key: string): Phase | undefined {
  const name = key.toLowerCase().replace(/[^a-z]/g, '')
  const same = PHASES.find((phase) => phase.replaceAll('_', '') === name)
  return same ?? PHASES_MEANT.get(name) ?? nearest(key, PHASES)
}

/** Fields of rules and actions under other names. */
const FIELDS_MEANT: ReadonlyMap<string, string> = new Map([
  ['expression', 'expressions'],
  ['expr', 'expressions'],
  ['condition', 'expressions'],
  ['conditions', 'expressions'],
  ['if', 'expressions'],
  ['when', 'expressions'],
  ['match', 'expressions'],
  ['matches', 'expressions'],
  ['action', 'actions'],
  ['then', 'actions'],
  ['do', 'actions'],
  ['title', 'name'],
  ['id', 'name'],
  ['description', 'name'],
  ['configuration', 'config'],
  ['configs', 'config'],
  ['settings', 'config'],
  ['options', 'config'],
  ['params', 'config'],
  ['parameters', 'config'],
  ['with', 'config'],
])

/** The field of a rule or an action that is meant by an unknown one. */
export function meantField(key: string, known: readonly string[]): string | undefined {
  const meant = FIELDS_MEANT.get(key.toLowerCase())
  if (meant !== undefined && known.includes(meant)) return meant
  if (/^(?:action|kind|name)$/i.test(key) && known.includes('type')) return 'type'
  return nearest(key, known)
}

/** The message for an unknown field of a rule or an action, and the field that is meant by it. */
export function unknownField(
  key: string,
  meant: string | undefined,
  owner: string,
  known: readonly string[],
): string {
  return meant === undefined
    ? noField(key, owner, known)
    : `${key} is not a field of ${owner}. Did you mean ${meant}?`
}
