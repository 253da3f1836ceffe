/** Cause of a problem. Each cause has one kind of remedy. */
export type Reason =
  | 'network'
  | 'dns'
  | 'tls'
  | 'clock'
  | 'auth'
  | 'acl'
  | 'conflict'
  | 'duplicate'
  | 'policy'
  | 'limit'
  | 'saturated'
  | 'upstream'
  | 'resources'
  | 'storage'
  | 'internal'

/** Problem of a link or tunnel, for people and programs. Contains no secret. */
export interface Problem {
  readonly reason: Reason
  /** Description of the event, one line. */
  readonly detail: string
  /** Fix, one sentence. */
  readonly remedy: string
  /** True if retrying does not help until a person changes something. */
  readonly permanent: boolean
  /** Error code of the service, for example `ERR_NGROK_334`. */
  readonly serviceCode?: string | undefined
}

/** A Problem for display. Empty without a problem. Times are milliseconds since the epoch. */
export interface ShownProblem {
  readonly reason?: Reason
  readonly serviceCode?: string | undefined
  readonly remedy?: string
  readonly lastError?: string
  readonly nextRetryAt?: number | undefined
}

/** Error that carries a Problem. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError'
  readonly problem: Problem

  constructor(problem: Problem, options?: ErrorOptions) {
    super(problem.detail, options)
    this.problem = problem
  }
}

/** Returns the problem of an error. Other errors are bugs. */
export function problemOf(error: unknown): Problem {
  if (error instanceof ProblemError) return error.problem
  return {
    reason: 'internal',
    detail: error instanceof Error ? error.message : String(error),
    remedy: 'See device-agent logs. The agent retries automatically.',
    permanent: false,
  }
}

/** Problem of a working link: the service has too many requests in progress for this device. */
export function saturatedProblem(detail: string, serviceCode: string): Problem {
  return {
    reason: 'saturated',
    detail,
    remedy:
      'Too many concurrent requests. Wait, or find the busiest tunnel in the console of the gateway.',
    permanent: false,
    serviceCode,
  }
}

/** Problem of a link that failed or could not be established, without a decision by the service. */
export function networkProblem(detail: string): Problem {
  return {
    reason: 'network',
    detail,
    remedy: 'Check the network of the device. The agent reconnects automatically.',
    permanent: false,
  }
}

export function shownProblem(problem: Problem | undefined): ShownProblem {
  if (!problem) return {}
  const { reason, serviceCode, remedy, detail } = problem
  return { reason, serviceCode, remedy, lastError: detail }
}

const joinWith = (name: string, options = '') =>
  `Run device-agent gateway invite --name ${name}${options} on the gateway and device-agent join on this device.`

/** Two devices have the same identity. A reset of the wrong one loses its names, so it comes second. */
export const STOP_ONE =
  'Stop the agent on one of the two devices: after a move, on the old device. To keep both, run device-agent identity reset --yes on the copy.'

/** Ends each step that lacks the name of this device. */
export const UNNAMED = 'NAME is the name of this device.'
/** A step at a gateway of one's own. */
export const JOIN = `${joinWith('NAME')} ${UNNAMED}`

/** The gateway gives a name with an authtoken to another one only with `--replace`. */
const REPLACE = 'If the device has joined before, add --replace.'
/** The same step where the gateway may still have a valid authtoken of this device. */
export const JOIN_AGAIN = `${JOIN} ${REPLACE}`

const REPEAT =
  'The new invitation replaces all rules: repeat the --domain and each --allow of the earlier one.'
const ALLOW = ' Or allow this address.'
/** Added to a remedy: the same step with a rule for a TCP address. */
export const joinToAllow = (address: string) =>
  `${ALLOW} ${joinWith('NAME', ` --allow '${address}'`)} ${UNNAMED} ${REPEAT}`

const STEP = new RegExp(
  `${joinWith('NAME', "( --allow '[^']+')?")} ${UNNAMED}( ${REPLACE})?( ${REPEAT})?`,
  'g',
)

/** Returns a text with the name of this device, which has joined before, in that step. */
export function withDeviceName(text: string, name: string): string {
  return text.replaceAll(STEP, (_step, allow = '', replace?: string) => {
    const options = replace === undefined ? allow : ` --replace${allow}`
    return `${joinWith(name, options)} ${REPEAT}`
  })
}

/** The first step of a device without an authtoken, for both kinds of service. */
export const JOIN_OR_HOSTED = `${JOIN_AGAIN} For the hosted service, copy an authtoken from its dashboard.`

/** Texts name the remote side `the gateway`. Returns a text for the hosted service. */
export function hostedWords(text: string): string {
  if (text.startsWith(JOIN_OR_HOSTED)) return text
  return text
    .replace(new RegExp(`${ALLOW} .*`), '')
    .replace(JOIN_AGAIN, JOIN)
    .replace(JOIN, 'Copy an authtoken from the dashboard of the hosted service.')
    .replace(/\b([Tt])he gateway\b/g, '$1he hosted service')
}

/** The same for a problem as shown. */
export function hostedProblem<T extends ShownProblem>(problem: T): T {
  const { remedy, lastError } = problem
  return {
    ...problem,
    ...(remedy !== undefined && { remedy: hostedWords(remedy) }),
    ...(lastError !== undefined && { lastError: hostedWords(lastError) }),
  }
}
