import { join } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import type { Closer } from '../base/closer.ts'
import { parseListenAddress } from '../base/listen-address.ts'
import { LogTail } from '../base/log/log-tail.ts'
import type { Logger } from '../base/logger.ts'
import { type Config, parseConfig } from '../config.ts'
import type { CommandContext } from './command-context.ts'
import { localAddress } from './local-address.ts'
import { openProcessLog } from './process-log.ts'
import { SampleService } from './sample-service.ts'
import { type Served, serve } from './serve.ts'
import { withFreePorts } from './up/free-ports.ts'
import { describeUp, type UpReady } from './up/up-text.ts'
import { readVersion } from './version.ts'

const OWN_ENDPOINT_WITHIN_MS = 20_000

/** `device-agent up`: agent and gateway together on this machine, ready to be tried. */
export function upCommand(context: CommandContext): Command {
  return new Command('up')
    .description('run agent and gateway together on this machine, provisioned and ready to try')
    .option('--json', 'print one JSON line when all is ready, and nothing else')
    .action(async ({ json = false }: { json?: boolean }) => {
      const config = parseConfig(context.environment)
      // Somebody who reads the walk wants no log around it, unless it is asked for: `logs` has it.
      const isQuiet = !json && !context.environment.LOG_LEVEL
      const logTail = new LogTail()
      const { logLevel } = config
      const shown = isQuiet ? 'warn' : logLevel
      const log = openProcessLog(context, logLevel, { tail: logTail, shown })
      await serve({
        log,
        stop: context.stop,
        drainMs: config.agent.drainMs + config.gateway.drainMs,
        start: async (closer) => {
          const free = await withFreePorts(config, context.environment, log)
          const { served, ready } = await start(context, free, { log, logTail }, closer)
          if (json) context.stdout.write(`${JSON.stringify(ready)}\n`)
          else context.stdout.write(describeUp(ready, await startSample(closer), config))
          return served
        },
      })
    })
}

async function start(
  { environment, stop }: CommandContext,
  config: Config,
  { log, logTail }: { readonly log: Logger; readonly logTail: LogTail },
  closer: Closer,
): Promise<{ served: Served; ready: UpReady }> {
  const [{ startGateway }, { startSupervisedDaemon }] = await Promise.all([
    import('./gateway-service.ts'),
    import('./supervised-daemon.ts'),
  ])
  const domain = agentDomain(config)
  if (config.agent.authtoken || config.agent.authtokenFile || config.agent.serverAddrs.length > 0) {
    log.warn('up runs its own gateway: SVC_AUTHTOKEN and SVC_SERVER_ADDR are for run')
  }
  const authtokenPath = join(config.agent.dataDir, 'authtoken')
  const gateway = await startGateway(
    { config: config.gateway, authtokenPath, deviceName: 'this device', log },
    closer,
  )
  const { addresses, managementApi, authtoken, apiKey } = gateway
  const agentConfig: Config['agent'] = {
    ...config.agent,
    domain,
    authtoken,
    authtokenFile: undefined,
    serverAddrs: [localAddress(addresses.agent)],
    // Whatever the domain is and wherever DNS leads, up serves it here.
    ingressAddr: parseListenAddress(localAddress(addresses.https)),
    caCertPath: addresses.caCertPath,
  }
  const { agent, http, https, api } = addresses
  const neighbours = [agent, http, https, ...(api ? [api] : [])]
  const served = await startSupervisedDaemon(
    { config: agentConfig, version: readVersion(), neighbours, environment, log, logTail, stop },
    closer,
  )
  await served.ownEndpointOnline(OWN_ENDPOINT_WITHIN_MS)
  const ready: UpReady = {
    agent_api: `http://${localAddress(served.address)}`,
    agent_domain: domain,
    api_token: served.apiToken(),
    ingress_http: `http://${localAddress(addresses.http)}`,
    ingress_https: `https://${localAddress(addresses.https)}`,
    ca_cert: addresses.caCertPath,
    reserved_domain: config.gateway.reservedDomain,
    authtoken: authtoken.reveal(),
    management_api: managementApi,
    api_key: apiKey.reveal(),
  }
  return { served: { broken: Promise.race([served.broken, gateway.broken]) }, ready }
}

/** The agent's own name has to lie below the domain that its authtoken may bind. */
function agentDomain({ agent, gateway }: Config): string {
  const suffix = gateway.reservedDomain.slice(1)
  const domain = agent.domain ?? `agent${suffix}`
  if (domain.endsWith(suffix)) return domain
  throw new StartError(
    `AGENT_DOMAIN ${domain} is not below ${gateway.reservedDomain}: ` +
      'set GATEWAY_RESERVED_DOMAIN to the wildcard above it.',
  )
}

async function startSample(closer: Closer): Promise<number> {
  const sample = closer.own('sample service', new SampleService(), (it) => it.stop())
  return sample.start()
}
