import { join } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import type { Closer } from '../base/closer.ts'
import { type ListenAddress, parseListenAddress } from '../base/listen-address.ts'
import { type Logger, LogTail } from '../base/logger.ts'

import type { Secret } from '../base/secret.ts'
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

interface UpOptions {
  readonly json?: boolean
}

/** `device-agent up`: agent and gateway together on this machine, ready to be tried. */
export function upCommand(context: CommandContext): Command {
  return new Command('up')
    .description('run an agent and a gateway on this machine, ready to try')
    .option('--json', 'print one JSON line when ready')
    .action(async ({ json = false }: UpOptions) => {
      const { environment } = context
      const config = parseConfig(environment)
      // Somebody who reads the walk wants no log around it, unless it is asked for: `logs` has it.
      const isQuiet = !json && !environment.LOG_LEVEL
      const logTail = new LogTail()
      const { logLevel } = config
      const shown = isQuiet ? 'warn' : logLevel
      const log = openProcessLog(context, logLevel, { tail: logTail, shown })
      await serve({
        log,
        stop: context.stop,
        drainMs: config.agent.drainMs + config.gateway.drainMs,
        start: async (closer) => {
          const upOptions = { config, log, logTail }
          const service = await startService(context, upOptions, closer)
          const { served, ready } = await startAgent(context, { ...upOptions, ...service }, closer)
          if (json) context.stdout.write(`${JSON.stringify(ready)}\n`)
          else context.stdout.write(describeUp(ready, await startSample(closer), config))
          return served
        },
      })
    })
}

interface StartOptions {
  readonly config: Config
  readonly log: Logger
  readonly logTail: LogTail
}

/** What the agent connects to, and what people are told of it. */
interface Service {
  readonly agent: string
  readonly neighbours: readonly ListenAddress[]
  readonly authtoken: Secret
  readonly broken: Promise<string>
  readonly ready: Omit<UpReady, 'agent_api' | 'agent_domain' | 'api_token'>
  readonly config: Config
}

async function startService(
  { environment }: CommandContext,
  { config: wanted, log }: StartOptions,
  closer: Closer,
): Promise<Service> {
  const { startGateway } = await import('./gateway-service.ts')
  const config = await withFreePorts(wanted, environment, log)
  const authtokenPath = join(config.agent.dataDir, 'authtoken')
  const gateway = await startGateway(
    { config: config.gateway, authtokenPath, deviceName: 'this device', log },
    closer,
  )
  const { addresses, managementApi, authtoken, apiKey, broken } = gateway
  const { agent, http, https, api } = addresses
  return {
    ...{ agent: localAddress(agent), authtoken, broken, config },
    neighbours: [agent, http, https, ...(api ? [api] : [])],
    ready: {
      ingress_http: `http://${localAddress(http)}`,
      ingress_https: `https://${localAddress(https)}`,
      ca_cert: addresses.caCertPath,
      reserved_domain: config.gateway.reservedDomain,
      authtoken: authtoken.reveal(),
      management_api: managementApi,
      api_key: apiKey.reveal(),
    },
  }
}

const hostOf = (url: string) => new URL(url).host

async function startAgent(
  { environment, stop }: CommandContext,
  { config, log, logTail, ...service }: StartOptions & Service,
  closer: Closer,
): Promise<{ served: Served; ready: UpReady }> {
  const { startSupervisedDaemon } = await import('./supervised-daemon.ts')
  const domain = agentDomain(config)
  if (config.agent.authtoken || config.agent.authtokenFile || config.agent.serverAddrs.length > 0) {
    log.warn(
      'ignoring SVC_AUTHTOKEN and SVC_SERVER_ADDR, because up runs its own gateway; use device-agent run',
    )
  }
  const { ready, agent, neighbours } = service
  const agentConfig: Config['agent'] = {
    ...config.agent,
    domain,
    authtoken: service.authtoken,
    authtokenFile: undefined,
    serverAddrs: [agent],
    // Whatever the domain is and wherever DNS leads, up serves it here.
    ingressAddr: parseListenAddress(hostOf(ready.ingress_https)),
    caCertPath: ready.ca_cert,
  }
  const served = await startSupervisedDaemon(
    { config: agentConfig, version: readVersion(), neighbours, environment, log, logTail, stop },
    closer,
  )
  await served.ownEndpointOnline(OWN_ENDPOINT_WITHIN_MS)
  return {
    served: { broken: Promise.race([served.broken, service.broken]) },
    ready: {
      agent_api: `http://${localAddress(served.address)}`,
      agent_domain: domain,
      api_token: served.apiToken(),
      ...ready,
    },
  }
}

/** The agent's own name has to lie below the domain that its authtoken may bind. */
function agentDomain({ agent, gateway }: Config): string {
  const suffix = gateway.reservedDomain.slice(1)
  const domain = agent.domain ?? `agent${suffix}`
  if (domain.endsWith(suffix)) return domain
  throw new StartError(
    `AGENT_DOMAIN ${domain} is not below ${gateway.reservedDomain}. ` +
      'Set GATEWAY_RESERVED_DOMAIN to a wildcard that covers it.',
  )
}

async function startSample(closer: Closer): Promise<number> {
  const sample = closer.own('sample service', new SampleService(), (it) => it.stop())
  return sample.start()
}
