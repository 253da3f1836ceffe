import { Command } from 'commander'
import { InheritedSockets, type ListenAddress } from '../base/listen-address.ts'
import type { Logger } from '../base/logger.ts'
import { type Config, parseConfig } from '../config.ts'
import { apiKeyPath, firstAuthtokenPath } from './api-key-file.ts'
import type { CommandContext } from './command-context.ts'
import { checkFirstStart, type WantedAddress } from './first-start.ts'
import { agentReach, localAddress, outsideAddress } from './local-address.ts'
import { openProcessLog } from './process-log.ts'
import { gatewayStopMs, serve } from './serve.ts'

/** The output of `gateway --json`, on one line. */
export interface GatewayReady {
  readonly agent_listen: string
  /** Addresses for devices, the best first. */
  readonly agent_addresses: readonly string[]
  readonly ingress_http: string
  readonly ingress_https: string
  readonly ca_cert: string
  readonly reserved_domain: string
  readonly authtoken_file: string
  readonly management_api: string
  readonly api_key_file: string
  /** Address of the DNS server for ACME challenges; omitted if it is off. */
  readonly dns_listen: string | undefined
}

/** `device-agent gateway`: the service alone, for a site server that devices connect to. */
export function gatewayCommand(context: CommandContext): Command {
  const { environment, stdout, stop, sockets, predecessor, onReload = () => {} } = context
  return new Command('gateway')
    .description('run the gateway, the server that devices connect to')
    .option('--json', 'print one JSON line with the addresses when ready')
    .addHelpText(
      'after',
      '\nWith device-gateway.socket, SIGHUP (systemctl reload device-gateway) starts the installed version\nwithout downtime.',
    )
    .action(async ({ json = false }: { json?: boolean }) => {
      const config = parseConfig(environment)
      const log = openProcessLog(context, config.logLevel)
      const gateway = claimSockets(config.gateway, sockets, log)
      const authtokenPath = firstAuthtokenPath(config.gateway)
      await serve({
        log,
        stop,
        drainMs: gatewayStopMs(gateway),
        start: async (closer) => {
          const { startSupervisedGateway } = await import('./supervised-gateway.ts')
          const deviceName = 'first device'
          // All steps that can fail are done. The previous process releases the data directory now.
          await predecessor?.released()
          await checkFirstStart(gateway.dataDir, addressesOf(gateway))
          const { addresses, managementApi, broken, reload } = await startSupervisedGateway(
            {
              config: gateway,
              authtokenPath,
              deviceName,
              hasPredecessor: predecessor !== undefined,
              environment,
              log,
              stop,
            },
            closer,
          )
          if (isReloadable(gateway, environment)) onReload(() => void reload.request())
          const names = gateway.publicNames
          const ready: GatewayReady = {
            agent_listen: localAddress(addresses.agent),
            agent_addresses: agentReach(addresses.agent, names).addresses,
            ingress_http: `http://${localAddress(addresses.http)}`,
            ingress_https: `https://${localAddress(addresses.https)}`,
            ca_cert: addresses.caCertPath,
            reserved_domain: config.gateway.reservedDomain,
            authtoken_file: authtokenPath,
            management_api: managementApi,
            api_key_file: apiKeyPath(config.gateway),
            dns_listen: addresses.dns && localAddress(addresses.dns),
          }
          stdout.write(json ? `${JSON.stringify(ready)}\n` : describe(ready, addresses, names))
          await predecessor?.serving()
          return { broken, left: reload.left, bereft: reload.bereft }
        },
      })
    })
}

function addressesOf(config: Config['gateway']): WantedAddress[] {
  const agents = 'Agents cannot connect'
  const visitors = 'Visitors cannot connect'
  const api = 'The management API cannot listen'
  return [
    { listen: config.agentListen, setting: 'GATEWAY_AGENT_LISTEN', failure: agents },
    { listen: config.httpListen, setting: 'GATEWAY_HTTP_LISTEN', failure: visitors },
    { listen: config.httpsListen, setting: 'GATEWAY_HTTPS_LISTEN', failure: visitors },
    { listen: config.apiListen, setting: 'GATEWAY_API_LISTEN', failure: api },
  ]
}

/** The settings with the sockets of the service manager where it has opened them. */
function claimSockets(
  config: Config['gateway'],
  sockets: InheritedSockets = new InheritedSockets(),
  log: Logger,
): Config['gateway'] {
  const claimed = {
    ...config,
    agentListen: sockets.claim(config.agentListen),
    httpListen: sockets.claim(config.httpListen),
    httpsListen: sockets.claim(config.httpsListen),
    apiListen: sockets.claim(config.apiListen),
  }
  for (const address of sockets.closeRest()) {
    log.warn(
      { address },
      'no setting uses this address of device-gateway.socket, connections to it hang; run device-agent service install --gateway',
    )
  }
  return claimed
}

/** Without a service manager a SIGHUP is that of a terminal that was closed. */
function isReloadable(
  { agentListen, httpListen }: Config['gateway'],
  { NOTIFY_SOCKET }: CommandContext['environment'],
): boolean {
  return Boolean(NOTIFY_SOCKET) || [agentListen, httpListen].some(({ fd }) => fd !== undefined)
}

function describe(
  ready: GatewayReady,
  { agent, http, https }: Record<'agent' | 'http' | 'https', ListenAddress>,
  names: Config['gateway']['publicNames'],
): string {
  const { addresses, advice } = agentReach(agent, names)
  // The SDK dials no IPv6 address, so a name replaces it.
  const [first = `<host name of this gateway>:${agent.port}`] = addresses
  const listens = addresses.length > 0 ? addresses.join(', ') : ready.agent_listen
  const warning = advice === undefined ? '' : `\nwarning: ${advice}\n`
  return `The gateway is up.

  devices    connect to ${listens}
  visitors   connect to http://${outsideAddress(http, names)} and https://${outsideAddress(https, names)}
  domain     ${ready.reserved_domain}
  management ${ready.management_api} (API key: ${ready.api_key_file})

Set these on each device, and copy the two files to the device:

  SVC_SERVER_ADDR=${first}
  SVC_CA_CERT=${ready.ca_cert}
  SVC_AUTHTOKEN_FILE=${ready.authtoken_file}
${warning}`
}
