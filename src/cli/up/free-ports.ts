import { createServer } from 'node:net'
import { formatListenAddress, type ListenAddress } from '../../base/listen-address.ts'
import type { Logger } from '../../base/logger.ts'
import type { Config } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'

/**
 * The configuration with a free port for each listener whose usual one another program has. What
 * somebody has set stays: there the start says what is in the way.
 */
export async function withFreePorts(
  config: Config,
  environment: CommandContext['environment'],
  log: Logger,
): Promise<Config> {
  const free = async (setting: string, listen: ListenAddress): Promise<ListenAddress> => {
    if (environment[setting] !== undefined || !(await isTaken(listen))) return listen
    const address = formatListenAddress(listen)
    log.warn({ setting }, `${address} is already in use, using a free port instead`)
    return { ...listen, port: 0 }
  }
  const { agent, gateway } = config
  return {
    ...config,
    agent: { ...agent, listen: await free('AGENT_LISTEN', agent.listen) },
    gateway: {
      ...gateway,
      agentListen: await free('GATEWAY_AGENT_LISTEN', gateway.agentListen),
      httpListen: await free('GATEWAY_HTTP_LISTEN', gateway.httpListen),
      httpsListen: await free('GATEWAY_HTTPS_LISTEN', gateway.httpsListen),
      apiListen: await free('GATEWAY_API_LISTEN', gateway.apiListen),
    },
  }
}

function isTaken({ host, port }: ListenAddress): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'EADDRINUSE'))
    probe.listen({ host, port }, () => probe.close(() => resolve(false)))
  })
}
