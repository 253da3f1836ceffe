import { type Condition, isServing } from './condition.ts'
import type { Reason } from './problem.ts'
import type { Tunnel } from './tunnel.ts'

/** Maximum length of the headline. */
export const MAX_HEADLINE = 80
/** Maximum number of lines below it. */
const MAX_ADVICE = 3
/** A shortened name keeps at least this many characters. */
const MIN_NAME = 12

/** A problem and its fix, one or two sentences each. */
export interface Advice {
  readonly problem: string
  /** Empty if nothing has to be done. */
  readonly remedy: string
}

/** A problem of the device, before it is fitted into a headline. */
export interface Cause extends Advice {
  /** Form for the headline. Default: the problem. */
  readonly short?: string
  /** Name in the text, which may be shortened. A sentence that begins with it keeps its lower case. */
  readonly name?: string | undefined
  /** Further tunnels or services with the same problem, for example `2 more tunnels`. */
  readonly others?: string | undefined
}

/** Status of a device: the most important cause, then the problems with their fixes. */
export interface Verdict {
  readonly headline: string
  readonly advice: readonly Advice[]
}

export function verdictFrom(serving: string, causes: readonly Cause[]): Verdict {
  return {
    headline: headlineOf(serving, causes[0]),
    advice: causes
      .filter(({ remedy }) => remedy !== '')
      .slice(0, MAX_ADVICE)
      .map(adviceOf),
  }
}

/** All texts of the verdict that do not come from a Problem. `name`: a host, an address or a domain. */
export const VERDICT_TEXTS = {
  connecting: (name: string) => `connecting to ${name}`,
  suspect: () => 'the public address does not answer',
  clocks: () => 'the clocks of this device and the gateway differ',
  parked: () => 'the gateway told this device to stop',
  duplicate: () => 'another device has the same identity',
  refusesToken: () => 'the gateway refuses the authtoken',
  disabled: () => 'the gateway has disabled the account of this device',
  refusesDevice: () => 'the gateway refuses this device',
  refusesVersion: () => 'the gateway does not support this agent version',
  limit: () => 'a limit of the account is reached',
  notAllowed: (name: string) => `the gateway does not allow ${name}`,
  conflict: (name: string) => `${name} is in use elsewhere`,
  policy: (name: string) => `the gateway refuses the policy of ${name}`,
  refusesTunnel: (name: string) => `the gateway refuses ${name}`,
  notOpened: (name: string) => `${name} cannot be opened`,
  notAllowedService: (name: string) => `the device may not forward to ${name}`,
  notUpdated: (name: string) => `the change of ${name} is not in effect`,
  saturated: () => 'too many concurrent requests',
  ownOffline: (name: string) => `the agent API is not online at ${name}`,
  renewal: () => 'the session cannot be renewed',
  copy: () => 'a second device has the identity of this device',
  standby: (name: string) => `no standby connection to ${name}`,
  damaged: (name: string) => `the stored tunnel ${name} is damaged`,
  defaultPolicy: () => 'the file of the default policy cannot be used',
  descriptors: () => 'the agent has no open files left',
  memory: () => 'the agent has no memory left',
  outdatedPolicy: (name: string) => `new checks refuse the policy of ${name}`,
  slowLink: () => 'the link is slow',
  flapping: () => 'the link is lost again and again',
  unverified: () => 'this device cannot reach its public address',
} as const satisfies Record<string, (name: string) => string>

/** Texts for a tunnel that the service refuses, by reason. */
const REFUSED_TUNNEL: Partial<Record<Reason, (name: string) => string>> = {
  acl: VERDICT_TEXTS.notAllowed,
  conflict: VERDICT_TEXTS.conflict,
  policy: VERDICT_TEXTS.policy,
  limit: VERDICT_TEXTS.limit,
}
const REFUSED_LINK: Partial<Record<Reason, () => string>> = {
  auth: VERDICT_TEXTS.refusesToken,
  limit: VERDICT_TEXTS.limit,
  internal: VERDICT_TEXTS.refusesVersion,
}

export function refusedTunnelText(reason: Reason, name: string): string {
  return (REFUSED_TUNNEL[reason] ?? VERDICT_TEXTS.refusesTunnel)(name)
}

export function refusedLinkText(reason: Reason, serviceCode: string | undefined): string {
  if (serviceCode === 'ERR_NGROK_636') return VERDICT_TEXTS.disabled()
  return (REFUSED_LINK[reason] ?? VERDICT_TEXTS.refusesDevice)()
}

/** Says how many tunnels serve visitors. */
export function servingText(tunnels: readonly Tunnel[]): string {
  const total = tunnels.length
  const count = (fits: (status: Tunnel['status']) => boolean) =>
    tunnels.filter(({ status }) => fits(status)).length
  const has = (condition: Condition) => (status: Tunnel['status']) => status.condition === condition
  const serving = count(isServing)
  // An address that the device cannot check is online, and may work.
  const verb = count(has('unverified')) > 0 ? ['is online', 'are online'] : ['works', 'work']
  if (total === 0) return 'No tunnels.'
  if (serving === total)
    return total === 1 ? `The tunnel ${verb[0]}.` : `All ${total} tunnels ${verb[1]}.`
  if (count(has('busy')) === total)
    return total === 1 ? 'The tunnel is busy.' : `All ${total} tunnels are busy.`
  if (count(has('opening')) === total)
    return total === 1 ? 'The tunnel is opening.' : `All ${total} tunnels are opening.`
  const checking = count(has('checking'))
  if (checking === total)
    return total === 1 ? 'Checking the tunnel.' : `Checking all ${total} tunnels.`
  if (total === 1) return 'The tunnel does not work.'
  const unchecked = checking === 1 ? ' 1 is being checked.' : ` ${checking} are being checked.`
  return `${serving} of ${total} tunnels ${verb[1]}.${checking > 0 ? unchecked : ''}`
}

function adviceOf({ problem, remedy, name, others }: Cause): Advice {
  return { problem: sentence(withOthers(problem, others), name), remedy: sentence(remedy, '') }
}

function headlineOf(serving: string, cause: Cause | undefined): string {
  if (!cause) return serving
  const { short, problem, name = '', others } = cause
  const room = MAX_HEADLINE - serving.length - 1
  const parts = (short ?? problem).split(/(?=[;:,.] )|(?= \()/)
  const forms = parts.map((_, at) => parts.slice(0, parts.length - at).join(''))
  const all = [...forms.map((form) => withOthers(form, others)), ...forms]
  const texts = all.map((form) => sentence(form, name))
  const fitting = texts.find((text) => text.length <= room)
  if (fitting !== undefined) return `${serving} ${fitting}`
  // The cause matters more than tunnels that are being checked.
  const [count = serving] = serving.split(/(?<=\.) /)
  if (count !== serving) return headlineOf(count, cause)
  return `${serving} ${cut(texts.at(-1) ?? '', name, room)}`
}

function withOthers(text: string, others: string | undefined): string {
  return others === undefined ? text : `${text.replace(/\.$/, '')} (and ${others})`
}

/** Shortens the name, or else the text. */
function cut(text: string, name: string, room: number): string {
  const kept = name.length - (text.length - room) - 1
  if (name !== '' && kept >= MIN_NAME) return text.replace(name, `${name.slice(0, kept)}…`)
  return `${text.slice(0, room - 1)}…`
}

/** A host, an address or a file at the start. It may be another than the name of the cause. */
const ADDRESS = /^\S+[.:]\S/

/** Adds the capital letter and the full stop. A name at the start keeps its lower case. */
export function sentence(text: string, name = ''): string {
  if (text === '') return ''
  const isName = (name !== '' && text.startsWith(name)) || ADDRESS.test(text)
  const whole = isName ? text : text[0]?.toUpperCase() + text.slice(1)
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`
}

/** Splits a text into its first sentence, the problem, and the rest, the remedy. */
export function causeIn(text: string): Cause {
  const [, problem = text, remedy = ''] = /^(.*?)\. (.*)$/s.exec(text) ?? []
  return { problem, remedy }
}
