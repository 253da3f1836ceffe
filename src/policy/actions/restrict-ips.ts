import * as z from 'zod'
import {
  type Address,
  type AddressRanges,
  type Cidr,
  parseAddress,
  parseCidr,
  wholeRange,
} from '../../base/net/network.ts'
import { CLOSE, CONTINUE, NO_ERROR, refuse } from '../exchange/outcome.ts'
import type { PolicyExchange } from '../exchange/policy-exchange.ts'
import { EvaluationError } from '../expression/expression-problem.ts'
import { PHASES } from '../phase.ts'
import { type ActionContext, defineAction } from './action.ts'

const MAX_RANGES = 1_000
const MAX_POLICIES = 100
/** Ranges in a message. */
const MAX_SHOWN = 6
/** To read the address, to look whether a range has it, and to read a range that is computed. */
const ADDRESS_STEPS = 30
const MATCH_STEPS = 4
const READ_STEPS = 60
const ranges = z.array(z.string().min(1).max(4_096)).max(MAX_RANGES).default([])

/**
 * Admits addresses in a range of `allow` or of its IP policies, and in none of `deny`. The address is that of
 * the connection, never of a header. Without any range, no address passes.
 */
export const restrictIps = defineAction({
  type: 'restrict-ips',
  phases: PHASES,
  config: z.strictObject({
    enforce: z.boolean().default(true),
    allow: ranges,
    deny: ranges,
    ip_policies: z.array(z.string()).max(MAX_POLICIES).default([]),
  }),
  fields: {
    enforce: 'false: only sets the result action, and refuses nothing.',
    allow:
      'Addresses or CIDR ranges that may pass. Without allow and ip_policies, none may. May contain expressions.',
    deny: 'Addresses or CIDR ranges that are refused, even if allow has them. May contain expressions.',
    ip_policies: 'Ids of IP policies of the gateway, which add to allow and deny.',
  },
  example: {
    enforce: true,
    allow: ['10.0.0.0/8'],
    deny: ['10.0.0.66'],
    ip_policies: ['ipp_office'],
  },
  results: {
    action: 'string',
    matched_cidr: 'string',
    'error.code': 'string',
    'error.message': 'string',
  },
  build({ enforce, allow, deny, ip_policies: policies }, context) {
    for (const [index, id] of policies.entries()) checkReference(id, index, context)
    if (allow.length === 0 && policies.length === 0) {
      const sentence =
        'Without allow, no address passes. To deny only some addresses, allow 0.0.0.0/0 and ::/0.'
      context.problem('empty', [], sentence, { severity: 'warning' })
    }
    const allowed = rangesOf(allow, 'allow', context)
    const denied = rangesOf(deny, 'deny', context)
    const refusal =
      context.phase === 'on_tcp_connect'
        ? CLOSE
        : refuse(403, 'ERR_NGROK_3205', 'Your IP address is not allowed at this endpoint.')
    return (exchange) => {
      const address = parseAddress(exchange.connection.clientIp)
      exchange.account.spend(ADDRESS_STEPS)
      const referenced = policies.map((id) => readPolicy(id, context))
      const no = address && find([denied, ...referenced.map(denyOf)], address, exchange)
      const yes = address && find([allowed, ...referenced.map(allowOf)], address, exchange)
      const passes = yes !== undefined && no === undefined
      exchange.results.set('restrict_ips', {
        action: passes ? 'allow' : 'deny',
        matched_cidr: (no ?? yes)?.text ?? '',
        error: NO_ERROR,
      })
      return passes || !enforce ? CONTINUE : refusal
    }
  },
})

type RangeSource = (exchange: PolicyExchange) => Cidr

function rangesOf(
  texts: readonly string[],
  field: 'allow' | 'deny',
  context: ActionContext,
): readonly (Cidr | RangeSource)[] {
  return texts.flatMap((text, index) => {
    const template = context.template(text, [field, index])
    const { constant } = template
    if (constant === undefined)
      return (exchange: PolicyExchange) => readRange(template.render(exchange))
    const range = parseCidr(constant)
    if (range) {
      warnOfHost(constant, [field, index], context)
      return range
    }
    const message = `${constant} is not an IP address or CIDR range.${rangeAdvice(constant)}`
    context.problem('badCidr', [field, index], message)
    return []
  })
}

/** `203.0.113.7/24` looks like one address and means 256. */
function warnOfHost(text: string, at: readonly (string | number)[], context: ActionContext): void {
  const whole = wholeRange(text)
  if (whole === undefined) return
  const sentence = `${text} is the whole range ${whole}. For one address, write ${text.split('/')[0]}.`
  context.problem('badCidr', at, sentence, { severity: 'warning' })
}

/** A device that checks a policy does not know the IP policies of the gateway. */
function checkReference(id: string, index: number, context: ActionContext): void {
  const { ipPolicy } = context.reach
  const at = ['ip_policies', index]
  if (!ipPolicy) {
    const sentence = `The IP policy ${id} can only be checked by the gateway.`
    context.problem('policyReference', at, sentence, { severity: 'warning' })
  } else if (!ipPolicy(id)) {
    context.problem('policyReference', at, `The IP policy ${id} does not exist.`)
  }
}

/** Read at each run, so that changes count at once. Without the policy, no address passes. */
function readPolicy(id: string, { reach }: ActionContext): AddressRanges {
  const ranges = reach.ipPolicy?.(id)
  if (!ranges) throw new EvaluationError(`the IP policy ${id} does not exist`)
  return ranges
}

/** What to write for other notations of ranges. */
function rangeAdvice(text: string): string {
  const parts = text.trim().split(/[\s,;]+/)
  if (parts.length > 1 && parts.every(parseCidr)) {
    return ` Write each range as an item: [${parts.slice(0, MAX_SHOWN).join(', ')}${parts.length > MAX_SHOWN ? ', …' : ''}].`
  }
  if (/^(?:\*|all|any|everyone|anywhere)$/i.test(text)) return ' Write 0.0.0.0/0 and ::/0.'
  const [, network] = /^((?:\d{1,3}\.){1,3})(?:\*(?:\.|$))+$/.exec(text) ?? []
  if (network !== undefined) {
    const bytes = network.split('.').slice(0, -1)
    const range = `${[...bytes, '0', '0', '0'].slice(0, 4).join('.')}/${bytes.length * 8}`
    return parseCidr(range) ? ` Write ${range}.` : ''
  }
  if (/^[\d.]+-[\d.]+$/.test(text)) return ' Write the range as CIDR, such as 10.0.0.0/28.'
  if (/^\$\w+$|^<.*>$/.test(text)) return ' Replace the placeholder with an address.'
  return /^(?=.*[a-z])[a-z\d-]+(?:\.[a-z\d-]+)*$/i.test(text)
    ? ' Write its address: names are not looked up.'
    : ''
}

const allowOf = ({ allow }: AddressRanges) => allow
const denyOf = ({ deny }: AddressRanges) => deny

function readRange(text: string): Cidr {
  const range = parseCidr(text)
  if (!range) throw new EvaluationError(`${text} is not an IP address or CIDR range`)
  return range
}

function find(
  lists: readonly (readonly (Cidr | RangeSource)[])[],
  address: Address,
  exchange: PolicyExchange,
): Cidr | undefined {
  for (const list of lists) {
    for (const candidate of list) {
      exchange.account.spend(typeof candidate === 'function' ? READ_STEPS : MATCH_STEPS)
      const range = typeof candidate === 'function' ? candidate(exchange) : candidate
      if (range.contains(address)) return range
    }
  }
  return undefined
}
