import type { Logger } from '../../base/logger.ts'
import type { AgentIdentity } from '../endpoints/connected-agent.ts'
import { ServiceError } from '../records/service-error.ts'
import type { SessionTable } from './session-table.ts'

/** How long the older session of a device has to show that it is alive. */
const ANSWER_MS = 2_000

/**
 * Sees to it that one process of a device is connected: a session of another process that answers a
 * heartbeat stays, one that does not is a ghost and ends. Throws ServiceError 830 when one stays: the
 * data folder of the device was copied.
 */
export async function settleRivals(
  identity: AgentIdentity,
  sessions: Pick<SessionTable, 'rivalOf'>,
  log: Logger,
): Promise<void> {
  for (;;) {
    const rival = sessions.rivalOf(identity)
    if (!rival) return
    if (!(await rival.answers(ANSWER_MS))) {
      const reason = 'another process of the device has connected, and this one does not answer'
      rival.end(reason, 'duplicate')
      continue
    }
    const { deviceId, remoteAddress } = identity
    const ip = ipOf(rival.identity.remoteAddress)
    log.warn(
      { device: deviceId, session: rival.id, remote: rival.identity.remoteAddress, remoteAddress },
      'the same device is connected twice: the newer process is refused',
    )
    rival.noteDuplicate(ipOf(remoteAddress))
    throw new ServiceError(
      830,
      `The device ${deviceId} is connected already, from ${ip}, by another process with the same data folder or a copy of it. ` +
        'Give one of the two an identity of its own: device-agent identity reset.',
    )
  }
}

/** Without the port. */
export function ipOf(address: string): string {
  return address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')
}
