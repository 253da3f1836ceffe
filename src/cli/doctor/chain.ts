import type { StartError } from '../../base/app-error.ts'
import type { Config } from '../../config.ts'
import { unpassedCredential, withCredential } from '../local/unpassed-credential.ts'
import { agentChecks, type SeenAgent } from './agent-checks.ts'
import { certificateChecks } from './certificate-checks.ts'
import { type AgentToken, deviceChecks } from './device-checks.ts'
import { type Finding, skipped } from './finding.ts'
import { listenCheck } from './listen-check.ts'
import { clockSkew, serviceChecks } from './service-checks.ts'

/** Each link of the chain behind the settings, in its order; told as soon as it was looked at. */
export async function* chainChecks(
  config: Config['agent'],
  seen: SeenAgent | StartError,
  stop: AbortSignal,
): AsyncGenerator<readonly Finding[]> {
  // A running agent may have settings that this program does not have.
  const status = 'status' in seen ? seen.status : undefined
  const { authtokenFile, serverAddrs } = config
  const given = status?.link.server_addr ?? undefined
  const addresses = serverAddrs.length === 0 && given !== undefined ? [given] : serverAddrs
  const used = { ...config, serverAddrs: addresses }
  const token = tokenOf(seen, authtokenFile)
  yield deviceChecks(used, token)
  if (!status) yield await listenCheck(config.listen)
  const skew = hasService(used, token) ? clockSkew(used, status, stop) : undefined
  yield skew ? await serviceChecks(used, skew, stop) : [NOT_JOINED]
  yield await agentChecks('status' in seen ? withCredential(seen, authtokenFile) : seen)
  if ('status' in seen) yield await certificateChecks(seen, config.ingress, stop, await skew)
}

const NOT_JOINED = skipped(
  'gateway',
  'skipped, this device has no gateway address and no authtoken',
)

/** Without an address, only an authtoken means the hosted service. */
function hasService(config: Config['agent'], token: AgentToken): boolean {
  const { serverAddrs, authtoken, authtokenFile } = config
  if (serverAddrs.length > 0 || authtoken || authtokenFile !== undefined) return true
  return token === 'there'
}

function tokenOf(seen: SeenAgent | StartError, file: string | undefined): AgentToken {
  if (!('status' in seen)) return 'unknown'
  if (seen.status.link.reason !== 'auth') return 'there'
  return unpassedCredential(seen.status, file) ?? 'unknown'
}
