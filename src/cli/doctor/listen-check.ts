import { createServer } from 'node:net'
import { formatListenAddress, type ListenAddress, listenOn } from '../../base/listen-address.ts'
import { exchange, request } from '../../base/net/node-http.ts'
import { portUser } from '../local/port-owners.ts'
import { localAddress } from '../local-address.ts'
import { bad, type Finding } from './finding.ts'

const MAX_WAIT_MS = 3_000
const MAX_BYTES = 4_096
/** The answer of an agent to `GET /healthz`. */
const HEALTHY = /^\{\s*"status":\s*"ok"\s*\}\s*$/

/** Where no agent can be asked: whether another program has its address. Empty if the address is free. */
export async function listenCheck(listen: ListenAddress): Promise<Finding[]> {
  if (!(await isTaken(listen)) || (await isAgent(listen))) return []
  const user = portUser(listen.port)
  const flaw = `${formatListenAddress(listen)} is used by ${user}, so the agent cannot start`
  const remedy = 'Stop that program, or set AGENT_LISTEN to another address. Then start the agent.'
  return [bad('listen address', flaw, remedy)]
}

async function isTaken(listen: ListenAddress): Promise<boolean> {
  const server = createServer()
  try {
    await listenOn(server, listen)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
  } finally {
    server.close()
  }
}

/** An agent that this command cannot ask, for example because its data directory is another one. */
async function isAgent(listen: ListenAddress): Promise<boolean> {
  const signal = AbortSignal.timeout(MAX_WAIT_MS)
  const sent = request(`http://${localAddress(listen)}/healthz`, { signal })
  try {
    return HEALTHY.test((await exchange(sent, undefined, MAX_BYTES)).text)
  } catch {
    return false
  }
}
