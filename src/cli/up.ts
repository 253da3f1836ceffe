import { once } from 'node:events'
import { existsSync } from 'node:fs'
import type { Server } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { join } from 'node:path'
import { Command } from 'commander'
import { StartError } from '../base/app-error.ts'
import type { Closer } from '../base/closer.ts'
import {
  formatListenAddress,
  formatPortRange,
  type ListenAddress,
  type PortRange,
  parseListenAddress,
} from '../base/listen-address.ts'
import { type Logger, LogTail } from '../base/logger.ts'
import { createServer } from '../base/net/node-http.ts'
import type { Secret } from '../base/secret.ts'
import { type Config, parseConfig } from '../config.ts'
import { apiKeyPath } from './api-key-file.ts'
import type { CommandContext } from './command-context.ts'
import { shownPath } from './local/terminal-text.ts'
import { localAddress } from './local-address.ts'
import { openProcessLog } from './process-log.ts'
import { gatewayStopMs, type Served, serve } from './serve.ts'
import { readVersion } from './version.ts'

/** Output of `up --json`, on one line. */
export interface UpReady {
  readonly agent_api: string
  readonly agent_domain: string
  /** Null when the file of the token cannot be read. */
  readonly api_token: string | null
  readonly ingress_http: string
  readonly ingress_https: string
  /** `host:first-last` of the TCP endpoints. */
  readonly tcp_ports: string
  readonly ca_cert: string
  readonly reserved_domain: string
  readonly authtoken: string
  readonly management_api: string
  readonly api_key: string
}

/** Ports of TCP endpoints, if GATEWAY_TCP_LISTEN is not set. The gateway skips ports that are taken. */
const TCP_PORTS: PortRange = { host: '127.0.0.1', first: 7_100, last: 7_119 }

const UNREADABLE = 'cannot read its file: delete the file and start again'

/** Addresses and three commands to paste, for new users. */
export function describeUp(ready: UpReady, samplePort: number, config: Config): string {
  const { agent } = config
  const tokenFile = shownPath(`${agent.dataDir}/api-token`)
  const isInFile = !agent.apiToken && ready.api_token !== null
  const token = isInFile ? `$(cat ${tokenFile})` : '$AGENT_API_TOKEN'
  const host = `hello${ready.reserved_domain.slice(1)}`
  const authorization = `-H "authorization: Bearer ${token}"`
  const body = JSON.stringify({
    protocol: 'http',
    forwards_to: `localhost:${samplePort}`,
    domain: host,
  })
  return `Agent and gateway are up.

  device page  ${ready.agent_api}/page/ (sign in with a code of device-agent page, or the API token)
  agent API    ${ready.agent_api}  and  https://${ready.agent_domain}:${new URL(ready.ingress_https).port}
  API token    ${isInFile ? tokenFile : agent.apiToken ? 'AGENT_API_TOKEN' : UNREADABLE}
  public       ${ready.ingress_http}  and  ${ready.ingress_https} (CA: ${shownPath(ready.ca_cert)})
  TCP          ${ready.tcp_ports}, for tunnels with the protocol tcp
  domain       ${ready.reserved_domain}
  console      ${ready.management_api}/console/ (API key: ${shownPath(apiKeyPath(config.gateway))})
  sample       http://127.0.0.1:${samplePort}, a service to test with

Paste these into another terminal, in this folder:

  # create a tunnel to the sample service (or to another port)
  curl -sS ${authorization} -H 'content-type: application/json' -d '${body}' ${ready.agent_api}/tunnels

  # list all tunnels of this device
  curl -sS ${authorization} ${ready.agent_api}/tunnels

  # visit the tunnel
  ${visitOf(host, ready.ingress_http)}

Tunnels are stored: after Ctrl-C, the next start brings them back.
`
}

const visitOf = (host: string, ingress: string) => {
  const { port, hostname } = new URL(ingress)
  return `curl -sS --resolve ${host}:${port}:${hostname} http://${host}:${port}/`
}

/**
 * The configuration with a free port for each listener whose default port is in use. A configured port stays,
 * and the start reports the conflict.
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
  // Another `up` in this folder has all the ports, and is the cause to report.
  if (existsSync(gateway.dataDir)) {
    // Loaded on demand, as in the services: it needs SQLite, which may be missing.
    const { lockFolder } = await import('../store/data-folder.ts')
    lockFolder({ folder: gateway.dataDir, owner: 'gateway', log }).release()
  }
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
    const probe = createTcpServer()
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'EADDRINUSE'))
    probe.listen({ host, port }, () => probe.close(() => resolve(false)))
  })
}

/** A sample upstream for the first tunnel. It returns the request as text. */
class SampleService {
  readonly #server: Server = createServer((request, response) => {
    const { method, url, headers } = request
    response.setHeader('content-type', 'text/plain; charset=utf-8')
    response.end(
      `Hello from the device.\n\n${method} ${url}\nhost: ${headers.host}\n` +
        `x-forwarded-for: ${headers['x-forwarded-for']}\n`,
    )
  })

  /** Listens on loopback and answers its port. It is fixed, so that a stored tunnel works after a restart. */
  async start(): Promise<number> {
    try {
      const { SAMPLE_PORT } = await import('../agent/upstreams/local-services.ts')
      await this.#listen(SAMPLE_PORT)
    } catch {
      await this.#listen(0)
    }
    return (this.#server.address() as AddressInfo).port
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  async #listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1')
    await once(this.#server, 'listening')
  }
}

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
      // The introduction is easier to read without a log. `logs` shows it, and LOG_LEVEL turns it on.
      const isQuiet = !json && !environment.LOG_LEVEL
      const logTail = new LogTail()
      const { logLevel } = config
      const shown = isQuiet ? 'warn' : logLevel
      const log = openProcessLog(context, logLevel, { tail: logTail, shown })
      await serve({
        log,
        stop: context.stop,
        drainMs: config.agent.drainMs + gatewayStopMs(config.gateway),
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

/** Address for the agent, and texts for people. */
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
  const tcpListen = config.gateway.tcpListen ?? TCP_PORTS
  const gateway = await startGateway(
    { config: { ...config.gateway, tcpListen }, authtokenPath, deviceName: 'this device', log },
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
      tcp_ports: formatPortRange(tcpListen),
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
    // `up` serves every domain on this machine, independent of DNS.
    ingress: parseListenAddress(hostOf(ready.ingress_https)),
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
