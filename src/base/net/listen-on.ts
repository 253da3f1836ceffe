import { once } from 'node:events'
import type { ListenOptions, Server } from 'node:net'

/**
 * Connections that wait to be accepted; net.core.somaxconn of the kernel may allow fewer. The kernel forgets who comes
 * when the queue is full, and a client that is forgotten tries again after 1, 2, 4, 8, 16 and 32 s.
 */
const BACKLOG = 4_096

/**
 * Resolves when the server listens. Also for sockets that listen already: Node calls listen(2) on
 * them again, which sets its own 511 in place of what a service manager has set.
 * Throws the error of the system; see `listenProblem`.
 */
export async function listenOn(server: Server, where: ListenOptions): Promise<void> {
  // Node reads the option for addresses alone, and the argument for descriptors.
  server.listen({ ...where, backlog: BACKLOG }, BACKLOG)
  await once(server, 'listening')
}
