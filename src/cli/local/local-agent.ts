import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type * as z from 'zod'
import { allowEntryFor } from '../../agent/upstreams/forward-rules.ts'
import { parseForwardTarget } from '../../agent/upstreams/forward-target.ts'
import type { Advice } from '../../agent/verdict.ts'
import { INSTALLED_SOCKET, localSocket } from '../../api/local-socket.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { exchange, type ReadAnswer, request } from '../../base/net/node-http.ts'
import { parseConfig } from '../../config.ts'
import {
  AgentClient,
  AgentRefusal,
  type AgentRequest,
  type AgentResponse,
  errorLines,
  type Problem,
  type Transport,
  type TransportRequest,
} from '../agent-client.ts'
import type { CommandContext } from '../command-context.ts'
import {
  adviceText,
  hasAgentService,
  loneGateway,
  restartCommand,
  startCommand,
  stoppedService,
} from './stopped-service.ts'
import { plainLine } from './terminal-text.ts'

/** How often an agent that is starting is asked again, and how long between. */
const MAX_TRIES = 120
const RETRY_MS = 500
/** Settings of the installed agent. */
const INSTALLED_SETTINGS = '/etc/device-agent/agent.env'
/** Limits of a response. */
interface SocketLimits {
  /** Longest time without a byte. */
  readonly silenceMs: number
  readonly maxBytes: number
}

/** A thousand tunnels with the largest policies stay below the limit of bytes. */
const LIMITS: SocketLimits = { silenceMs: 60_000, maxBytes: 128 * 1024 * 1024 }

/** The agent that runs on this device, as its socket shows it. Every failure is a StartError. */
export class LocalAgent {
  readonly #client: AgentClient
  readonly #context: Pick<CommandContext, 'stderr' | 'stop'>

  constructor(
    socketPath: string,
    context: Pick<CommandContext, 'stderr' | 'stop'>,
    limits: Partial<SocketLimits> = {},
  ) {
    this.#client = new AgentClient(new SocketTransport(socketPath, { ...LIMITS, ...limits }))
    this.#context = context
  }

  /** The agent of this folder, else of the service. */
  static find(context: CommandContext, dataDir: string | undefined): LocalAgent {
    const found =
      LocalAgent.inFolder(context, dataDir) ??
      (dataDir === undefined ? LocalAgent.ofService(context) : undefined)
    if (found) return found
    const path = socketIn(context, dataDir)
    const paths = [path, ...(dataDir === undefined ? [INSTALLED_SOCKET] : [])]
    if (paths.some(isHidden)) throw new StartError(NO_ACCESS)
    if (isOnReadOnlyDisk(path)) throw new ReadOnlyError(path)
    const gateway = dataDir === undefined ? loneGateway() : undefined
    if (gateway) throw gateway
    const stopped = dataDir === undefined ? stoppedService() : undefined
    if (stopped) throw new StartError(adviceText(stopped))
    throw new StartError(
      `No agent is running: there is no socket at ${paths.join(' or ')}. ` +
        (dataDir === undefined
          ? `Start it (${startCommand(hasAgentService())}), or set --data-dir to its data directory.`
          : 'Start the agent of this directory, or leave out --data-dir to ask the installed service.'),
    )
  }

  /** The agent of the given folder or of the settings, if it exists. */
  static inFolder(context: CommandContext, dataDir: string | undefined): LocalAgent | undefined {
    const path = socketIn(context, dataDir)
    return existsSync(path) ? new LocalAgent(path, context) : undefined
  }

  /** The agent of the installed service, where it runs. */
  static ofService(context: CommandContext): LocalAgent | undefined {
    return existsSync(INSTALLED_SOCKET) ? new LocalAgent(INSTALLED_SOCKET, context) : undefined
  }

  /** The body of a 2xx response. Waits for an agent that has just been started, and says so. */
  async ask<T>(request: AgentRequest, schema: z.ZodType<T>): Promise<T> {
    return (await this.exchange(request, schema)).body
  }

  /** Like `ask`, with the headers. */
  async exchange<T>(
    request: AgentRequest,
    schema: z.ZodType<T>,
  ): Promise<{ readonly body: T; readonly headers: AgentResponse['headers'] }> {
    const response = await this.#whenStarted(request)
    return { body: this.#client.read(response, schema), headers: response.headers }
  }

  async #whenStarted(request: AgentRequest): Promise<AgentResponse> {
    const { stderr, stop } = this.#context
    for (let tries = 1; ; tries += 1) {
      const response = await this.#client.send(request)
      const isStarting = response.status === 503 && response.problem?.code === 'starting'
      if (!isStarting || tries > MAX_TRIES || stop.aborted) return response
      if (tries === 1)
        stderr.write('The agent is starting. Waiting until it has loaded its tunnels.\n')
      await systemClock.sleep(RETRY_MS, stop).catch(() => {})
    }
  }
}

/** The socket of an agent on this device: only its users can open it, so there is no token. */
class SocketTransport implements Transport {
  readonly #socketPath: string
  readonly #limits: SocketLimits
  readonly unknownFormat: string

  constructor(socketPath: string, limits: SocketLimits) {
    this.#socketPath = socketPath
    this.unknownFormat = `The agent has another version than this command. Restart it (${restartCommand(isOfService(socketPath))}).`
    this.#limits = limits
  }

  exchange({ method, path, headers, content }: TransportRequest): Promise<ReadAnswer> {
    const { silenceMs, maxBytes } = this.#limits
    const sent = request({
      socketPath: this.#socketPath,
      method,
      path,
      timeout: silenceMs,
      headers: { host: 'localhost', ...headers },
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${silenceMs / 1_000} s`)))
    return exchange(sent, content, maxBytes)
  }

  failure(error: NodeJS.ErrnoException): StartError {
    // A stale socket stays there when the agent is started again and cannot replace it.
    const isBarred = error.code === 'ECONNREFUSED' && isOnReadOnlyDisk(this.#socketPath)
    if (isBarred) return new ReadOnlyError(this.#socketPath, { cause: error })
    const reason =
      sentenceOf(error.code, this.#socketPath) ?? `The agent does not answer: ${error.message}.`
    return new StartError(reason, { cause: error })
  }

  refusal({ status, problem }: AgentResponse): StartError {
    if (!problem) return new StartError(`The agent returned status ${status}.`)
    return new AgentRefusal(refusalText(problem, this.#socketPath), problem)
  }
}

function socketIn({ environment }: CommandContext, dataDir: string | undefined): string {
  if (dataDir !== undefined) return join(dataDir, 'local.sock')
  return localSocket(parseConfig(environment).agent).socketPath
}

/** True where this user cannot see whether there is a socket. */
export function isHidden(socketPath: string): boolean {
  try {
    statSync(socketPath)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES'
  }
}

/** True where an agent may run and cannot make its socket. */
function isOnReadOnlyDisk(socketPath: string): boolean {
  try {
    accessSync(dirname(socketPath), constants.W_OK)
    return false
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EROFS'
  }
}

/** Thrown where the file system of the socket is read-only: an agent may run, and cannot be asked. */
export class ReadOnlyError extends StartError {
  readonly advice: Advice

  constructor(socketPath: string, options?: ErrorOptions) {
    const advice = {
      problem: `The agent cannot be asked: no socket can be made at ${socketPath}, because its file system is read-only. An agent that runs there goes on serving its tunnels.`,
      remedy:
        'Remount the file system for writing, and check the kernel log for the cause. The agent then makes its socket within 10 s. Until then, its API (AGENT_LISTEN) answers with a token.',
    }
    super(adviceText(advice), options)
    this.advice = advice
  }
}

const NO_ANSWER =
  'The agent closed the connection without an answer. It may have no open files left: see device-agent logs, raise LimitNOFILE= in its unit and restart it.'

/** Another user may ask. */
export const NO_ACCESS =
  'Permission denied. Run this command with sudo: only root and the user of the agent have access.'

const SENTENCES: Readonly<Record<string, string>> = {
  ECONNRESET: NO_ANSWER,
  EPIPE: NO_ANSWER,
  EACCES: NO_ACCESS,
}

/** State of an agent that was here. The text adds how to start it. */
const STOPPED: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'The agent is not running (stale socket).',
  ENOENT: 'The agent has just stopped.',
}

const isOfService = (socketPath: string) => socketPath === INSTALLED_SOCKET

function sentenceOf(code = '', socketPath: string): string | undefined {
  const stopped = STOPPED[code]
  if (stopped === undefined) return SENTENCES[code]
  return `${stopped} Start it (${startCommand(isOfService(socketPath))}).`
}

/** Remedies for refusals of the API, by code. */
const REMEDIES: Readonly<Record<string, string>> = {
  'tunnel-not-found': 'To see all tunnels, run device-agent tunnels list.',
  'precondition-failed':
    'Another program changed the tunnel at the same time. Look at it with device-agent tunnels show, then run the command again.',
  'token-not-found': 'To see all tokens, run device-agent token list.',
}

function refusalText(problem: Problem, socketPath: string): string {
  const { code, detail } = problem
  const lines = errorLines(problem).map((line) => `  ${line}`)
  const remedy = forwardRemedy(detail, socketPath) ?? REMEDIES[code]
  const advice = remedy === undefined ? [] : [`  → ${remedy}`]
  return [`${detail} (${code})`, ...lines, ...advice].map(plainLine).join('\n')
}

const LINKS = / links to a path /

/** Says where AGENT_FORWARD_ALLOW of the agent stands, if that setting is the reason. */
function forwardRemedy(detail: string, socketPath: string): string | undefined {
  const [, given = '', rule = ''] =
    /^Forwarding to (\S+) is not allowed: (.* AGENT_FORWARD_ALLOW\b)/.exec(detail) ?? []
  const target = parseForwardTarget(given)
  if (target === undefined) return undefined
  // The link itself is in the list already.
  const entry = LINKS.test(rule) ? 'unix: with the path of the link target' : allowEntryFor(target)
  const [file, restart] = isOfService(socketPath)
    ? [INSTALLED_SETTINGS, 'run sudo systemctl restart device-agent']
    : ['.env, in the folder where the agent was started', 'restart the agent']
  return `Add ${entry} to AGENT_FORWARD_ALLOW in ${file}, then ${restart}.`
}
