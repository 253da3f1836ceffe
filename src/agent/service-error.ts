import { AppError, type ErrorCode } from '../base/app-error.ts'
import type { Secret } from '../base/secret.ts'
import { untrustedProblem } from './probes/connection-problem.ts'
import {
  JOIN,
  joinToAllow,
  networkProblem,
  type Problem,
  type Reason,
  STOP_ONE,
} from './problem.ts'

/** Effect of one or more codes of the service on the device. */
interface ErrorMapping {
  /** Numbers in `ERR_NGROK_<number>`. */
  readonly codes: readonly number[]
  readonly reason: Reason
  readonly permanent: boolean
  /** The agent's error code for a request that caused this refusal. */
  readonly answer: ErrorCode
  readonly remedy: string
}

const TOKEN_CODES = [105, 106, 107, 300, 4018]

/** All codes that an agent can receive in an auth or bind reply. */
const MEANINGS: readonly ErrorMapping[] = [
  {
    codes: TOKEN_CODES,
    reason: 'auth',
    permanent: true,
    answer: 'service-refused',
    // The status adds the place of the authtoken: see `withTokenPlace`.
    remedy: JOIN,
  },
  {
    codes: [102, 103, 115, 116, 337, 338, 636, 15014],
    reason: 'auth',
    permanent: true,
    answer: 'service-refused',
    remedy:
      'The account may not connect. Ask the owner of the gateway to enable the account. All tunnels are offline until then.',
  },
  {
    codes: [308, 316, 356, 395, 399],
    reason: 'acl',
    permanent: true,
    answer: 'forbidden',
    remedy:
      'Use a name that the ACL rules of the authtoken allow. Or add a rule in the console of the gateway.',
  },
  {
    codes: [307, 309, 318, 319, 320, 321, 354, 15002],
    reason: 'acl',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Reserve the domain for this account, or use a reserved domain.',
  },
  {
    // No random name or TCP address can be given. The detail says why.
    codes: [15013],
    reason: 'acl',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Use a reserved domain or address of this account, or reserve another at the gateway.',
  },
  {
    codes: [326, 327, 328, 329, 330, 331, 347, 355, 396, 397],
    reason: 'acl',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Use a valid domain name.',
  },
  {
    codes: [334],
    reason: 'conflict',
    permanent: false,
    answer: 'domain-online-elsewhere',
    remedy: 'Close the domain on the other device, or use another domain.',
  },
  {
    codes: [18016, 18017],
    reason: 'conflict',
    permanent: false,
    answer: 'domain-online-elsewhere',
    remedy: 'Set pooling_enabled on all tunnels of the domain or on none, or use another domain.',
  },
  {
    // Sent only by our gateway.
    codes: [830],
    reason: 'duplicate',
    permanent: true,
    answer: 'service-refused',
    remedy: STOP_ONE,
  },
  {
    codes: [9025, 9026],
    reason: 'policy',
    permanent: true,
    answer: 'policy-invalid',
    remedy: 'Correct the traffic policy.',
  },
  {
    codes: [812],
    reason: 'policy',
    permanent: true,
    answer: 'policy-invalid',
    remedy: 'Make the traffic policy shorter. It exceeds the size limit of the gateway.',
  },
  {
    codes: [108, 324, 348, 350, 18021],
    reason: 'limit',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Close other sessions or tunnels of the account, or raise the limit of the account.',
  },
  {
    codes: [313, 314, 315],
    reason: 'limit',
    permanent: true,
    answer: 'service-refused',
    remedy: 'The plan of the account does not include this feature. Use another domain or plan.',
  },
  {
    codes: [349, 351],
    reason: 'limit',
    permanent: false,
    answer: 'service-refused',
    remedy: 'No action needed. The gateway limits the rate, and the agent slows down.',
  },
  {
    codes: [742],
    reason: 'network',
    permanent: false,
    answer: 'service-refused',
    remedy: 'No action needed. The gateway is restarting, and the agent reconnects automatically.',
  },
  {
    // The service says why in its message, such as a gateway that does not reach its database.
    codes: [803],
    reason: 'network',
    permanent: false,
    answer: 'service-refused',
    remedy: 'No action needed on the device. The agent retries automatically.',
  },
  {
    // The detail names the option or address that the service cannot serve.
    codes: [301],
    reason: 'internal',
    permanent: true,
    answer: 'service-refused',
    remedy:
      'Change the option or address that the gateway refuses. If the gateway does not know the option, update the gateway.',
  },
  {
    // The detail says which of the two is older.
    codes: [811],
    reason: 'internal',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Update the agent. If the agent is newer than the gateway, update the gateway.',
  },
  {
    codes: [100, 109, 110, 111, 112, 119, 120, 121, 335, 800, 801, 813],
    reason: 'internal',
    permanent: true,
    answer: 'service-refused',
    remedy: 'Update the agent. The gateway does not support this version.',
  },
]

/** Whether the gateway cannot confirm a name for now, although another gateway may serve it. */
export function isUnconfirmed({ serviceCode }: Problem): boolean {
  return serviceCode === 'ERR_NGROK_803'
}

/** Whether the gateway refused the authtoken itself, and not its account. */
export function isTokenRefused(serviceCode: string | undefined): boolean {
  return TOKEN_CODES.some((code) => serviceCode === `ERR_NGROK_${code}`)
}

/** Used for unknown codes, which are refusals too. */
const UNKNOWN: Omit<ErrorMapping, 'codes'> = {
  reason: 'internal',
  permanent: true,
  answer: 'service-refused',
  remedy: 'Look up the code in the documentation of the gateway.',
}

const BY_CODE = new Map(
  MEANINGS.flatMap((meaning) => meaning.codes.map((code) => [`ERR_NGROK_${code}`, meaning])),
)

/**
 * Finds the TCP address without a rule. It becomes part of a command, so it has only the characters of addresses.
 * Another name may also need a reserved domain, so it gets no command.
 */
const UNRULED =
  /(?: do not allow | The rule bind:)((?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,45}\]):(?:\d{1,5}|\*))(?:\.$| allows )/

/** A TCP address outside the range of the gateway, which the text names. */
const UNSERVED = /is not served by this gateway\. Its TCP addresses are /

/** Converts a refusal by the service to a Problem. `detail` must not contain a secret. */
export function serviceProblem(detail: string, serviceCode: string | undefined): Problem {
  if (serviceCode === undefined) return networkProblem(detail)
  const { reason, permanent, remedy } = BY_CODE.get(serviceCode) ?? UNKNOWN
  // The gateway knows the option, and names its addresses.
  if (UNSERVED.test(detail)) {
    return { reason, detail, remedy: 'Use one of these TCP addresses.', permanent, serviceCode }
  }
  const address = serviceCode === 'ERR_NGROK_316' ? UNRULED.exec(detail)?.[1] : undefined
  const allow = address === undefined ? '' : joinToAllow(address)
  return { reason, detail, remedy: `${remedy}${allow}`, permanent, serviceCode }
}

/** Returns the agent's error for a request that the service refused. */
export function refusalAnswer({ detail, remedy, serviceCode }: Problem): AppError {
  const { answer } = BY_CODE.get(serviceCode ?? '') ?? UNKNOWN
  return new AppError(answer, `${withFullStop(detail)} ${remedy}`, { serviceCode })
}

function withFullStop(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`
}

const PREFIX = /^failed to (?:connect session|start listener): /
/** The SDK's only message about certificates. Without our CA certificate, the preflight cannot check them. */
const UNTRUSTED = 'tls handshake error'
/** The SDK's message for an answer to the authentication that is none. */
const FOREIGN = /failed to deserialize rpc response$/
const CODE = / error_code: (ERR_NGROK_\d+)$/

/** Converts an SDK error to a Problem. The code of the service is at the end of the message. */
export function sdkProblem(error: unknown, authtoken: Secret): Problem {
  const message = messageOf(error, authtoken).replace(PREFIX, '')
  if (message === UNTRUSTED) return untrustedProblem(message)
  return serviceProblem(message.replace(CODE, ''), CODE.exec(message)?.[1])
}

/** Whether the error means that another server than a service of tunnels answers. */
export function isForeign(error: unknown): boolean {
  return error instanceof Error && FOREIGN.test(error.message)
}

/** Removes the authtoken, which some messages of the service repeat. */
export function messageOf(error: unknown, authtoken: Secret): string {
  return authtoken.scrub(error instanceof Error ? error.message : String(error)).trim()
}
