import { readFileSync } from 'node:fs'
import { Command, InvalidArgumentError, Option } from 'commander'
import * as z from 'zod'
import { parseForwardTarget } from '../../agent/upstreams/forward-target.ts'
import type { TunnelSpecView, TunnelStatusView } from '../../api/tunnel-view.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { AgentRefusal } from '../agent-client.ts'
import type { CommandContext } from '../command-context.ts'
import { mistakesError, problemLine } from '../mistakes.ts'
import { commandRemedy } from './command-remedy.ts'
import type { LocalAgent } from './local-agent.ts'
import { urlText } from './status-text.ts'
import { paintFor, plainLine } from './terminal-text.ts'

interface Options {
  readonly dataDir?: string
  readonly json?: boolean
}

/** Options of a tunnel. Without an option, its field has the default or stays as it is. */
interface TunnelOptions extends Options {
  readonly policy?: string
  readonly protocol?: string
  readonly pooling?: boolean
  readonly proxyProtocol?: string
  readonly verifyTls?: boolean
  readonly tlsMinVersion?: string
  readonly maxConnections?: string
  readonly http2?: boolean
  readonly upstreamTimeout?: string
  readonly health?: string
}

interface SetOptions extends TunnelOptions {
  readonly domain?: string
}

/** Time for the first check of a service, and between two looks at it. */
const CHECK_MS = 3_000
const ASK_AGAIN_MS = 100

/** Value of an option that removes the field, so that its default applies. */
const DEFAULT = 'default'

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
      .option('--json', 'print one JSON line on stdout')
  verb('list', 'show all tunnels').action((options: Options) => list(context, options))
  verb('show <tunnel>', 'show a tunnel by host, id or first host label').action(
    (tunnel: string, options: Options) => show(context, tunnel, options),
  )
  const adding = verb(
    'add <domain-or-service> [forwards-to]',
    'add a tunnel to 8001, localhost:8001, https://nas.lan:5001 or unix:/run/app.sock; without a domain it gets a random name and keeps it',
  ).usage('[options] [domain] <forwards-to>')
  withTunnelOptions(adding)
    .option('--no-verify-tls', 'accept any certificate of an https:// upstream')
    .action(
      (first: string, second: string | undefined, options: TunnelOptions, command: Command) => {
        const flaw = serviceFlaw(second ?? first)
        if (flaw !== undefined) return command.error(`error: ${flaw}`)
        if (second !== undefined)
          return add(context, { domain: first, forwards_to: second }, options)
        if (isForwardTarget(first)) return add(context, { forwards_to: first }, options)
        return command.error(
          `error: ${first} is not a service. Add the port: tunnels add ${first} PORT`,
        )
      },
    )
  const setting = verb(
    'set <tunnel> [forwards-to]',
    'change a tunnel; what is not given stays, and the value default resets an option',
  ).option('--domain <name>', 'new public name; the old name is released after it')
  withTunnelOptions(setting)
    .option('--no-pooling', 'do not share the address')
    .option('--no-http2', 'use HTTP/1.1 to the upstream')
    .option('--verify-tls', 'verify the certificate of an https:// upstream')
    .option('--no-verify-tls', 'accept any certificate of an https:// upstream')
    .action(
      (tunnel: string, forwardsTo: string | undefined, options: SetOptions, command: Command) => {
        const { dataDir: _, json: __, ...given } = options
        if (forwardsTo === undefined && Object.keys(given).length === 0)
          return command.error('error: Nothing to change. Set a service or an option.')
        const flaw = forwardsTo === undefined ? undefined : serviceFlaw(forwardsTo)
        if (flaw !== undefined) return command.error(`error: ${flaw}`)
        return set(context, tunnel, forwardsTo, options)
      },
    )
  verb(
    'set-policy <tunnel> [file]',
    'replace the policy of a tunnel, JSON or YAML; - for standard input',
  )
    .option('--default', 'use the default policy of the device')
    .action(
      (
        tunnel: string,
        file: string | undefined,
        options: Options & { default?: boolean },
        command: Command,
      ) => {
        if ((file === undefined) === (options.default !== true))
          return command.error('error: Give either a file or --default.')
        return setPolicy(context, tunnel, { ...options, file })
      },
    )
  verb('remove <tunnel>', 'close and delete a tunnel').action((tunnel: string, options: Options) =>
    remove(context, tunnel, options),
  )
  return tunnels
}

/** The options that `add` and `set` share. */
function withTunnelOptions(command: Command): Command {
  return command
    .option(
      '--protocol <name>',
      'http, tls or tcp; the domain of a tcp tunnel is host:port, without it the gateway chooses a port (default of a new tunnel: http)',
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
      ).choices(['1', '2', DEFAULT]),
    )
    .option('--http2', 'use HTTP/2 to the upstream, for example for gRPC')
    .option(
      '--upstream-timeout <seconds>',
      'time to wait for the first byte of a response',
      parsedNumber,
    )
    .option('--health <check>', 'health check: off, tcp, or a path that returns a status below 500')
    .option(
      '--tls-min-version <version>',
      'for old https:// upstreams: 1.0, 1.1 or 1.2; also allows weak ciphers and short keys',
    )
    .option(
      '--max-connections <count>',
      'connections that the upstream accepts at once',
      parsedNumber,
    )
}

const SCHEME = /^http:\/\/(.+?)\/?$/i
const DIGITS = /(?:^|:)(\d+)$/

/** A common mistake in a service, with its fix. */
function serviceFlaw(text: string): string | undefined {
  if (isForwardTarget(text)) return undefined
  const plain = SCHEME.exec(text)?.[1]
  if (plain !== undefined && isForwardTarget(plain)) {
    return `Write the service without http://: ${plain}`
  }
  const port = DIGITS.exec(plain ?? text)?.[1]
  return port === undefined ? undefined : `A port is a number from 1 to 65535, not ${port}.`
}

/** Number of an option. Commander names the option. */
function parsedNumber(text: string): string {
  if (text === DEFAULT || (text.trim() !== '' && Number.isFinite(Number(text)))) return text
  throw new InvalidArgumentError('It must be a number.')
}

/** Whether the only argument is a service. A name alone is a domain whose service is missing. */
const isForwardTarget = (text: string) => parseForwardTarget(text) !== undefined

/** Loaded late, as in other commands: --help must not wait for them. */
async function open(context: CommandContext, { dataDir }: Options) {
  const { LocalAgent } = await import('./local-agent.ts')
  const { TunnelSpecView, TunnelStatusView, TunnelView } = await import('../../api/tunnel-view.ts')
  const agent = LocalAgent.find(context, dataDir)
  const find = (tunnel: string) => agent.ask({ path: pathOf(tunnel) }, TunnelStatusView)
  /** The stored tunnel without its status, so that other fields stay unchanged. */
  const named = async ({ domain }: TunnelStatusView) => {
    if (domain === '') {
      throw new StartError('The tunnel has no name yet. Try again when the link is up.')
    }
    const specs = await agent.ask({ path: '/tunnels?view=spec' }, z.array(TunnelSpecView))
    const spec = specs.find((it) => it.domain === domain)
    if (!spec) throw new StartError(`${domain} has just been deleted.`)
    return spec
  }
  return { agent, find, named, TunnelStatusView, TunnelView }
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
  const { withOwnName } = await import('./own-name.ts')
  const problems = withOwnName(problemText(tunnels, paint), context, options.dataDir)
  stdout.write(tunnelTable(tunnels, Date.now(), paint) + problems)
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
  options: TunnelOptions,
): Promise<void> {
  const { agent, TunnelView, TunnelStatusView } = await open(context, options)
  const body = { protocol: 'http', ...spec, ...fieldsOf(options) }
  const request = { method: 'POST', path: '/tunnels', body } as const
  const { body: made, headers } = await agent.exchange(request, TunnelView).catch(async (error) => {
    const refusal = addRefusal(error, spec)
    const hint = await nameHint(agent, refusal, spec.domain)
    return rethrow(hint ?? refusal, { context, options, file: options.policy, body })
  })
  const path = headers.location ?? pathOf(made.domain)
  const ask = () => agent.ask({ path }, TunnelStatusView)
  await report(context, options, await whenChecked(ask, context.stop))
}

/** Returns the tunnel once its service was checked. Without a check, as it is after `CHECK_MS`. */
async function whenChecked(
  ask: () => Promise<TunnelStatusView>,
  stop: AbortSignal,
): Promise<TunnelStatusView> {
  const until = systemClock.monotonic() + CHECK_MS
  for (;;) {
    const tunnel = await ask()
    const isChecked = tunnel.upstream !== 'unknown' || tunnel.upstream_settings.health === 'off'
    if (isChecked || tunnel.state !== 'online' || systemClock.monotonic() > until) return tunnel
    await systemClock.sleep(ASK_AGAIN_MS, stop).catch(() => {})
    if (stop.aborted) return tunnel
  }
}

/** Fields of a tunnel from the command line only. Undefined: removed from a stored tunnel. */
function fieldsOf(options: TunnelOptions, before: TunnelSpecView['upstream'] = {}): object {
  const { policy, protocol, pooling } = options
  return {
    ...(policy !== undefined && { policy: policy === DEFAULT ? null : readPolicy(policy) }),
    ...(protocol !== undefined && { protocol }),
    ...(pooling !== undefined && { pooling_enabled: pooling }),
    upstream: { ...before, ...upstreamOf(options) },
  }
}

function upstreamOf(options: TunnelOptions): object {
  const { proxyProtocol, verifyTls, tlsMinVersion, http2, upstreamTimeout, health } = options
  const { maxConnections } = options
  const text = (value: string) => (value === DEFAULT ? undefined : value)
  const number = (value: string) => (value === DEFAULT ? undefined : Number(value))
  return {
    ...(upstreamTimeout !== undefined && { timeout: number(upstreamTimeout) }),
    ...(health !== undefined && { health: text(health) }),
    ...(http2 !== undefined && { http2: http2 || undefined }),
    ...(proxyProtocol !== undefined && { proxy_protocol: number(proxyProtocol) }),
    ...(verifyTls !== undefined && { verify_tls: verifyTls && undefined }),
    ...(tlsMinVersion !== undefined && { tls_min_version: text(tlsMinVersion) }),
    ...(maxConnections !== undefined && { max_connections: number(maxConnections) }),
  }
}

/** Changes the given fields. A change that another client made in between is not overwritten. */
async function set(
  context: CommandContext,
  tunnel: string,
  forwardsTo: string | undefined,
  options: SetOptions,
): Promise<void> {
  const { domain: newDomain } = options
  const { agent, find, named, TunnelView, TunnelStatusView } = await open(context, options)
  const path = pathOf(tunnel)
  const { body: found, headers } = await agent.exchange({ path }, TunnelStatusView)
  const spec = await named(found)
  const to = newDomain?.toLowerCase() ?? spec.domain
  const body = {
    ...spec,
    ...fieldsOf(options, spec.upstream),
    domain: to,
    ...(forwardsTo !== undefined && { forwards_to: forwardsTo }),
  }
  const asSeen = { 'if-match': headers.etag ?? '*' }
  const refused = (error: unknown) =>
    rethrow(error, { context, options, file: options.policy, body })
  if (to === spec.domain) {
    const change = { method: 'PUT', path: pathOf(to), body, headers: asSeen } as const
    await agent.ask(change, TunnelView).catch(refused)
  } else {
    // The new name opens first, so that visitors always have one of the two.
    await agent.ask({ method: 'POST', path: '/tunnels', body }, TunnelView).catch(refused)
    const old = { method: 'DELETE', path: pathOf(found.id), headers: asSeen } as const
    await agent.ask(old, z.undefined())
  }
  await report(context, options, await find(to))
}

async function setPolicy(
  context: CommandContext,
  tunnel: string,
  options: Options & { readonly file?: string | undefined; readonly default?: boolean },
): Promise<void> {
  const policy = options.file === undefined ? null : readPolicy(options.file)
  const { agent, find, named, TunnelView } = await open(context, options)
  const spec = await named(await find(tunnel))
  const { domain } = spec
  const body = { ...spec, policy }
  await agent
    .ask({ method: 'PUT', path: pathOf(domain), body }, TunnelView)
    .catch((error) => rethrow(error, { context, options, file: options.file, body }))
  await report(context, options, await find(domain))
}

async function remove(context: CommandContext, tunnel: string, options: Options): Promise<void> {
  const { agent, find } = await open(context, options)
  const { domain, id } = await find(tunnel)
  // By id: another tunnel may have the name by now.
  await agent.ask({ method: 'DELETE', path: pathOf(id) }, z.undefined())
  const said = options.json ? JSON.stringify({ removed: domain, id }) : `Removed ${domain || id}.`
  context.stdout.write(`${said}\n`)
}

async function report(
  context: CommandContext,
  { json, dataDir }: Options,
  tunnel: Pick<TunnelStatusView, 'url' | 'url_part' | 'condition' | 'remedy'>,
): Promise<void> {
  if (json) {
    context.stdout.write(`${JSON.stringify(tunnel)}\n`)
    return
  }
  const { withOwnName } = await import('./own-name.ts')
  const follows =
    tunnel.url === '' ? ' device-agent tunnels list shows the name when it is known.' : ''
  const remedy =
    tunnel.remedy === null ? follows : ` ${commandRemedy(tunnel.remedy, tunnel.url_part)}`
  const line = `${urlText(tunnel)}: ${tunnel.condition.replace('_', ' ')}.${remedy}`
  context.stdout.write(`${withOwnName(plainLine(line), context, dataDir)}\n`)
}

/** Names the command for a tunnel that exists, and the option for a pool. */
function addRefusal(
  error: unknown,
  { domain, forwards_to }: { readonly domain?: string; readonly forwards_to: string },
): unknown {
  if (!(error instanceof AgentRefusal)) return error
  const { problem } = error
  const [, existing] = /^(\S+) already has a tunnel\./.exec(problem.detail) ?? []
  if (existing !== undefined) {
    return new StartError(
      `${existing} already has a tunnel. (${problem.code})\n  → To change it, run device-agent tunnels set ${domain ?? existing} ${forwards_to}`,
    )
  }
  const text = error.message.replace(
    'Set pooling_enabled on all tunnels of the domain or on none',
    'Use --pooling on all devices of the domain, or --no-pooling on all',
  )
  return text === error.message ? error : new AgentRefusal(text, problem)
}

/** The part of the status with the name of the device. */
const WithOwnName = z.object({ own_endpoint: z.object({ domain: z.string() }).nullable() })

/** The refusal with a name that the device may have. Undefined: it is about something else, or no name is known. */
async function nameHint(
  agent: LocalAgent,
  error: unknown,
  domain = '',
): Promise<AgentRefusal | undefined> {
  if (!(error instanceof AgentRefusal) || /^$|:/.test(domain)) return undefined
  const { code, errors } = error.problem
  const isLabel = !domain.includes('.') && errors.some(({ pointer }) => pointer === '/domain')
  if (!isLabel && code !== 'forbidden') return undefined
  const status = await agent.ask({ path: '/status' }, WithOwnName).catch(() => undefined)
  // A device with a wildcard of its own has its API at `agent.`.
  const base = status?.own_endpoint?.domain.replace(/^agent\./, '')
  if (base === undefined) return undefined
  const example = isLabel ? `, such as ${domain}.${base}` : ''
  const hint = plainLine(`  → Names of this device end in ${base}${example}.`)
  return new AgentRefusal(`${error.message}\n${hint}`, error.problem)
}

interface Refused {
  readonly context: CommandContext
  readonly options: Options
  readonly file: string | undefined
  readonly body: object
}

/**
 * Throws the error, with the name of this device. Mistakes of a policy from a file are shown with their lines, as by
 * `policy check`.
 */
async function rethrow(
  refusal: unknown,
  { context, options, file, body }: Refused,
): Promise<never> {
  if (!(refusal instanceof AgentRefusal)) throw refusal
  const { withOwnName } = await import('./own-name.ts')
  const named = withOwnName(refusal.message, context, options.dataDir)
  const error = new AgentRefusal(named, refusal.problem)
  const text = 'policy' in body ? body.policy : undefined
  if (file === undefined || typeof text !== 'string') throw error
  const errors = error.problem.errors.filter(({ pointer }) => /^\/policy(?:\/|$)/.test(pointer))
  if (errors.length === 0) throw error
  const { checkPolicy } = await import('../../policy/check.ts')
  const found = checkPolicy(text, { service: 'embedded' }).filter(
    ({ severity }) => severity === 'error',
  )
  if (found.length > 0) {
    throw mistakesError(
      file,
      found.map((problem) => plainLine(problemLine(file, problem))),
    )
  }
  const { SourcePositions } = await import('../../policy/document/policy-text.ts')
  const positions = new SourcePositions(text)
  const lines = errors.map(({ pointer, detail }) => {
    const { line, column } = positions.find(pointer.slice('/policy'.length))
    return plainLine(`${file}:${line}:${column}: ${detail}`)
  })
  throw mistakesError(file, lines)
}

/** As text: the agent parses JSON and YAML, and reports errors. */
function readPolicy(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const reason = code === 'ENOENT' ? 'there is no such file' : code
    throw new StartError(`Cannot read the policy ${file}: ${reason}.`, { cause: error })
  }
}
