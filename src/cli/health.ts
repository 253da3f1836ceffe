import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import { exchange, request } from '../base/net/node-http.ts'
import { parseConfig } from '../config.ts'
import type { CommandContext } from './command-context.ts'
import { localAddress } from './local-address.ts'

const MAX_WAIT_MS = 5_000
const MAX_BYTES = 65_536

/** `device-agent health`: whether the process works, for health checks of containers. Ends with 1 when it does not. */
export function healthCommand({ environment, stdout }: CommandContext): Command {
  return new Command('health')
    .description('check that the running agent works, for health checks of containers')
    .option('--gateway', 'check the gateway instead of the agent')
    .addHelpText(
      'after',
      '\nReads AGENT_LISTEN or GATEWAY_API_LISTEN. A device without a network is healthy: for its link,\nrun device-agent status.',
    )
    .action(async ({ gateway: isGateway = false }: { gateway?: boolean }) => {
      const config = parseConfig(environment)
      const name = isGateway ? 'gateway' : 'agent'
      const address = localAddress(isGateway ? config.gateway.apiListen : config.agent.listen)
      const status = await healthStatus(name, address)
      if (status !== 200) {
        throw new StartError(
          `The ${name} at ${address} is not healthy (status ${status}). Check its log.`,
        )
      }
      stdout.write(`The ${name} at ${address} is healthy.\n`)
    })
}

async function healthStatus(name: string, address: string): Promise<number | undefined> {
  const sent = request(`http://${address}/healthz`, { timeout: MAX_WAIT_MS })
  sent.on('timeout', () => sent.destroy(new Error(`no answer within ${MAX_WAIT_MS / 1_000} s`)))
  try {
    const { response } = await exchange(sent, undefined, MAX_BYTES)
    return response.statusCode
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    throw new StartError(
      `The ${name} does not answer at ${address} (${code ?? message}). ` +
        'Start it, or run this command with the settings that it has.',
      { cause: error },
    )
  }
}
