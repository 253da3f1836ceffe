import { readFileSync } from 'node:fs'
import { Command, Option } from 'commander'
import * as z from 'zod'
import { parseForwardTarget } from '../../agent/upstreams/forward-target.ts'
import type { TunnelStatusView } from '../../api/tunnel-view.ts'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { urlText } from './status-text.ts'
import { paintFor, plainLine } from './terminal-text.ts'

interface Options {
  readonly dataDir?: string
  readonly json?: boolean
}

interface AddOptions extends Options {
  readonly policy?: string
  readonly protocol: string
  readonly pooling?: boolean
  readonly proxyProtocol?: string
  readonly verifyTls: boolean
  readonly tlsMinVersion?: string
  readonly maxConnections?: string
  readonly http2?: boolean
  readonly upstreamTimeout?: string
  readonly health?: string
}

/** `device-agent tunnels …`: the tunnels of the agent on this device. */
export function tunnelsCommand(context: CommandContext): Command {
  const tunnels = new Command('tunnels').description(
    'list, add, change and remove the tunnels of this device',
  )
  const verb = (usage: string, description: string) =>
    tunnels
      .command(usage)
      .description(description)
      .option(
        '--data-dir <folder>',
        'data directory of the agent; default: from the settings, or of the service',
      )
      .option('--json', 'print JSON on stdout')
  verb('list', 'show all tunnels').action((options: Options) => list(context, options))
  verb('show <tunnel>', 'show a tunnel by host, id or first host label').action(
    (tunnel: string, options: Options) => show(context, tunnel, options),
  )
  verb(
    'add <domain-or-service> [forwards-to]',
    'add a tunnel to 8001, localhost:8001, https://nas.lan:5001 or unix:/run/app.sock; without a domain it gets a random name and keeps it',
  )
    .usage('[options] [domain] <forwards-to>')
    .option(
      '--protocol <name>',
      'http, tls or tcp; the domain of a tcp tunnel is host:port, without it the gateway chooses a port',
      'http',
    )
    .option('--policy <file>', 'traffic policy in JSON or YAML; - for standard input')
    .option(
      '--pooling',
      'share the address with other devices of the account that also enable pooling',
    )
    .addOption(
      new Option(
        '--proxy-protocol <version>',
        'send the client address to the upstream in a PROXY header',
      ).choices(['1', '2']),
    )
    .option('--http2', 'use HTTP/2 to the upstream, for example for gRPC')
    .option('--upstream-timeout <seconds>', 'time to wait for the first byte of a response')
    .option('--health <check>', 'health check: off, tcp, or a path that returns a status below 500')
    .option('--no-verify-tls', 'accept any certificate of an https:// upstream')
    .option(
      '--tls-min-version <version>',
      'for old https:// upstreams: 1.0, 1.1 or 1.2; also allows weak ciphers and short keys',
    )
    .option('--max-connections <count>', 'connections that the upstream accepts at once')
    .action((first: string, second: string | undefined, options: AddOptions, command: Command) => {
      if (second !== undefined) return add(context, { domain: first, forwards_to: second }, options)
      if (isForwardTarget(first)) return add(context, { forwards_to: first }, options)
      return command.error(
        `error: ${first} is not a service. Add the port: tunnels add ${first} PORT`,
      )
    })
  verb(
    'set-policy <tunnel> [file]',
    'replace the policy of a tunnel, JSON or YAML; - for standard input',
  )
    .option('--default', 'use the default policy of the device')
    .action((tunnel: string, file: string | undefined, options: Options & { default?: boolean }) =>
      setPolicy(context, tunnel, { ...options, file }),
    )
  verb('remove <tunnel>', 'close and delete a tunnel').action((tunnel: string, options: Options) =>
    remove(context, tunnel, options),
  )
  return tunnels
}

/** Whether the only argument is a service. A name alone is a domain whose service is missing. */
const isForwardTarget = (text: string) => parseForwardTarget(text) !== undefined

/** Loaded late, as in other commands: --help must not wait for them. */
async function open(context: CommandContext, { dataDir }: Options) {
  const { LocalAgent } = await import('./local-agent.ts')
  const { TunnelSpecView, TunnelStatusView, TunnelView } = await import('../../api/tunnel-view.ts')
  const agent = LocalAgent.find(context, dataDir)
  const find = (tunnel: string) => agent.ask({ path: pathOf(tunnel) }, TunnelStatusView)
  return { agent, find, TunnelSpecView, TunnelStatusView, TunnelView }
}

const pathOf = (tunnel: string) => `/tunnels/${encodeURIComponent(tunnel)}`

async function list(context: CommandContext, options: Options): Promise<void> {
  const { agent, TunnelStatusView } = await open(context, options)
  const tunnels = await agent.ask({ path: '/tunnels?view=status' }, z.array(TunnelStatusView))
  const { stdout, environment } = context
  if (options.json) {
    stdout.write(`${JSON.stringify(tunnels)}\n`)
    return
  }
  if (tunnels.length === 0) {
    stdout.write('No tunnels. Add a tunnel to a local port with device-agent tunnels add PORT.\n')
    return
  }
  const { problemText, tunnelTable } = await import('./status-text.ts')
  const paint = paintFor(stdout, environment)
  stdout.write(tunnelTable(tunnels, Date.now(), paint) + problemText(tunnels, paint))
}

async function show(context: CommandContext, tunnel: string, options: Options): Promise<void> {
  const { find } = await open(context, options)
  const found = await find(tunnel)
  if (options.json) {
    context.stdout.write(`${JSON.stringify(found)}\n`)
    return
  }
  const { policy, ...fields } = found
  const width = Math.max(...Object.keys(fields).map((name) => name.length))
  for (const [name, value] of Object.entries(fields)) {
    if (value === null) continue
    context.stdout.write(`${name.padEnd(width)}  ${plainLine(fieldText(value))}\n`)
  }
  const document: unknown = typeof policy === 'string' ? JSON.parse(policy) : policy
  const lines = JSON.stringify(document, null, 2).split('\n').map(plainLine)
  context.stdout.write(`policy\n${lines.join('\n')}\n`)
}

/** `timeout 60, health tcp`. Deeper values of a newer agent are printed as JSON. */
function fieldText(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value)
  return Object.entries(value)
    .map(([name, part]) => `${name} ${typeof part === 'object' ? JSON.stringify(part) : part}`)
    .join(', ')
}

async function add(
  context: CommandContext,
  spec: { readonly domain?: string; readonly forwards_to: string },
  options: AddOptions,
): Promise<void> {
  const { agent, TunnelView, TunnelStatusView } = await open(context, options)
  const policy = options.policy === undefined ? {} : { policy: readPolicy(options.policy) }
  const { protocol, pooling: pooling_enabled } = options
  const body = { protocol, ...spec, ...policy, ...upstreamOf(options), pooling_enabled }
  const request = { method: 'POST', path: '/tunnels', body } as const
  const { made, location = pathOf(made.domain) } = await agent.create(request, TunnelView)
  report(context, options, await agent.ask({ path: location }, TunnelStatusView))
}

/** Upstream settings from the command line only. */
function upstreamOf(options: AddOptions): { readonly upstream?: object } {
  const { proxyProtocol, verifyTls, tlsMinVersion, http2, upstreamTimeout, health } = options
  const { maxConnections } = options
  const upstream = {
    ...(upstreamTimeout !== undefined && { timeout: Number(upstreamTimeout) }),
    ...(health !== undefined && { health }),
    ...(http2 && { http2 }),
    ...(proxyProtocol !== undefined && { proxy_protocol: Number(proxyProtocol) }),
    ...(!verifyTls && { verify_tls: false }),
    ...(tlsMinVersion !== undefined && { tls_min_version: tlsMinVersion }),
    ...(maxConnections !== undefined && { max_connections: Number(maxConnections) }),
  }
  return Object.keys(upstream).length === 0 ? {} : { upstream }
}

async function setPolicy(
  context: CommandContext,
  tunnel: string,
  options: Options & { readonly file?: string | undefined; readonly default?: boolean },
): Promise<void> {
  if ((options.file === undefined) === (options.default !== true)) {
    throw new StartError('Give either a file or --default.')
  }
  const policy = options.file === undefined ? null : readPolicy(options.file)
  const { agent, find, TunnelView, TunnelSpecView } = await open(context, options)
  const { domain } = await find(tunnel)
  if (domain === '') {
    throw new StartError('The tunnel has no name yet. Try again when the link is up.')
  }
  // The stored tunnel without its status, so that other fields stay unchanged.
  const specs = await agent.ask({ path: '/tunnels?view=spec' }, z.array(TunnelSpecView))
  const body = { ...specs.find((spec) => spec.domain === domain), policy }
  await agent.ask({ method: 'PUT', path: pathOf(domain), body }, TunnelView)
  report(context, options, await find(domain))
}

async function remove(context: CommandContext, tunnel: string, options: Options): Promise<void> {
  const { agent, find } = await open(context, options)
  const { domain, id } = await find(tunnel)
  // By id: another tunnel may have the name by now.
  await agent.ask({ method: 'DELETE', path: pathOf(id) }, z.undefined())
  const said = options.json ? JSON.stringify({ removed: domain, id }) : `Removed ${domain || id}.`
  context.stdout.write(`${said}\n`)
}

function report(
  { stdout }: CommandContext,
  { json }: Options,
  tunnel: Pick<TunnelStatusView, 'url' | 'condition' | 'remedy'>,
): void {
  const follows =
    tunnel.url === '' ? ' device-agent tunnels list shows the name when it is known.' : ''
  const remedy = tunnel.remedy === null ? follows : ` ${tunnel.remedy}`
  stdout.write(
    json
      ? `${JSON.stringify(tunnel)}\n`
      : `${plainLine(`${urlText(tunnel)}: ${tunnel.condition.replace('_', ' ')}.${remedy}`)}\n`,
  )
}

/** As text: the agent parses JSON and YAML, and reports errors. */
function readPolicy(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read the policy ${file} (${code}).`, { cause: error })
  }
}
