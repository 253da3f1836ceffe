import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Command, InvalidArgumentError } from 'commander'
import { StartError } from '../base/app-error.ts'
import type { Closer } from '../base/closer.ts'
import { type ListenAddress, parseListenAddress } from '../base/listen-address.ts'
import { LogTail } from '../base/log/log-tail.ts'
import type { Logger } from '../base/logger.ts'
import { Secret } from '../base/secret.ts'
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

/** So many gateways may share a database. */
const LEAST_NODES = 2
const MOST_NODES = 8

interface UpOptions {
  readonly json?: boolean
  /** Gateways, a process each; one in this process unless given. */
  readonly nodes?: number
  readonly databaseUrl?: string
}

/** `device-agent up`: agent and gateway together on this machine, ready to be tried. */
export function upCommand(context: CommandContext): Command {
  const command = new Command('up')
    .description('run an agent and a gateway on this machine, ready to try')
    .option('--json', 'print one JSON line when ready')
    .option(
      '--nodes <count>',
      'number of gateways sharing a PostgreSQL database, 2 to 8, one process each',
      parseNodes,
    )
    .option(
      '--database-url <url>',
      'empty PostgreSQL database to share, postgres://user@host/database; default: GATEWAY_DATABASE_URL',
    )
    .addHelpText(
      'after',
      '\nOther users of this machine can see a password in --database-url. Use GATEWAY_DATABASE_URL or\nGATEWAY_DATABASE_PASSWORD_FILE instead.',
    )
  return command.action(async (options: UpOptions) => {
    const { json = false, nodes } = options
    if (nodes === undefined && options.databaseUrl !== undefined) {
      command.error('error: --database-url requires --nodes')
    }
    const { environment } = context
    const config = parseConfig(nodes === undefined ? environment : withoutSite(environment))
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
        const upOptions = { config, log, logTail, shown }
        const service =
          nodes === undefined
            ? await startService(context, upOptions, closer)
            : await startSite(context, { ...options, ...upOptions, nodes }, closer)
        const { served, ready } = await startAgent(context, { ...upOptions, ...service }, closer)
        if (json) context.stdout.write(`${JSON.stringify(ready)}\n`)
        else context.stdout.write(describeUp(ready, await startSample(closer), config))
        return served
      },
    })
  })
}

function parseNodes(text: string): number {
  const count = Number(text)
  if (Number.isInteger(count) && count >= LEAST_NODES && count <= MOST_NODES) return count
  throw new InvalidArgumentError(
    `Use a whole number from ${LEAST_NODES} to ${MOST_NODES}. For a single gateway, omit the option.`,
  )
}

/** The settings of this process, which is no gateway. */
function withoutSite(environment: CommandContext['environment']): CommandContext['environment'] {
  const others = Object.entries(environment).filter(
    ([name]) => !/^GATEWAY_(DATABASE|PEER|JOIN)_/.test(name),
  )
  return Object.fromEntries(others)
}

interface StartOptions {
  readonly config: Config
  readonly log: Logger
  readonly logTail: LogTail
  /** Level of what is shown. */
  readonly shown: string
}

/** What the agent connects to, and what people are told of it. */
interface Service {
  readonly agents: readonly string[]
  readonly neighbours: readonly ListenAddress[]
  readonly authtoken: Secret
  readonly broken: Promise<string>
  readonly ready: Omit<UpReady, 'agent_api' | 'agent_domain' | 'api_token'>
  readonly config: Config
}

/** One gateway, in this process. */
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
    ...{ agents: [localAddress(agent)], authtoken, broken, config },
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

/** Several gateways, a process each; what is told is of the first, beside the list of all. */
async function startSite(
  { environment, stderr }: CommandContext,
  options: StartOptions & { readonly nodes: number; readonly databaseUrl?: string },
  closer: Closer,
): Promise<Service> {
  const { startTrialSite } = await import('./up/trial-site.ts')
  const { nodes: count, databaseUrl = environment.GATEWAY_DATABASE_URL } = options
  const { config, shown, log } = options
  const site = await startTrialSite(
    { count, databaseUrl, environment, usual: config.gateway, stderr, logLevel: shown, log },
    closer,
  )
  const { gateways, broken } = site
  const [{ ready: first }] = gateways
  const read = (path: string) => readFileSync(path, 'utf8').trim()
  const neighbours = gateways.flatMap(({ ready: it }) =>
    [it.agent_listen, ...[it.ingress_http, it.ingress_https, it.management_api].map(hostOf)].map(
      (address) => parseListenAddress(address) ?? [],
    ),
  )
  const authtoken = new Secret(read(first.authtoken_file))
  return {
    agents: gateways.map(({ ready: it }) => it.agent_listen),
    ...{ neighbours: neighbours.flat(), authtoken, broken },
    config: await withFreePorts(config, environment, log, ['AGENT_LISTEN']),
    ready: {
      ...{ ingress_http: first.ingress_http, ingress_https: first.ingress_https },
      ...{ ca_cert: first.ca_cert, reserved_domain: first.reserved_domain },
      ...{ authtoken: authtoken.reveal(), management_api: first.management_api },
      api_key: read(first.api_key_file),
      nodes: gateways.map(({ number, pid, dataDir, ready: it }) => ({
        ...{ number, pid, data_dir: dataDir, agent_listen: it.agent_listen },
        ...{ ingress_http: it.ingress_http, ingress_https: it.ingress_https },
        ...{ management_api: it.management_api, api_key_file: it.api_key_file },
      })),
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
  const { ready, agents, neighbours } = service
  const agentConfig: Config['agent'] = {
    ...config.agent,
    domain,
    authtoken: service.authtoken,
    authtokenFile: undefined,
    serverAddrs: agents,
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
