import { accessSync, constants, existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import * as z from 'zod'
import { INSTALLED_SOCKET, localSocket } from '../../api/local-socket.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import { exchange, request } from '../../base/net/node-http.ts'
import { parseConfig } from '../../config.ts'
import type { CommandContext } from '../command-context.ts'
import { plainLine } from './terminal-text.ts'

/**
 * Parses JSON of a program that may be newer, and say more: what a strict schema does not know is left
 * out. Nothing else is forgiven.
 */
function safeParseKnown<T>(schema: z.ZodType<T>, value: unknown): z.ZodSafeParseResult<T> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed
  const known = structuredClone(value)
  for (const issue of parsed.error.issues) {
    if (issue.code !== 'unrecognized_keys') return parsed
    const object = issue.path.reduce(memberOf, known)
    for (const key of issue.keys) Reflect.deleteProperty(object as object, key)
  }
  return schema.safeParse(known)
}

function memberOf(value: unknown, key: PropertyKey): unknown {
  return (value as Record<PropertyKey, unknown>)[key]
}

const TIMEOUT_MS = 60_000
/** How often an agent that is starting is asked again, and how long between. */
const MAX_TRIES = 120
const RETRY_MS = 500
/** A thousand tunnels with the largest policies that the API takes stay below it. */
const MAX_ANSWER_BYTES = 128 * 1024 * 1024

const Problem = z.object({
  detail: z.string(),
  code: z.string(),
  errors: z.array(z.object({ pointer: z.string(), detail: z.string() })).optional(),
})

export interface LocalRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  readonly body?: object
}

interface Answer {
  readonly status: number
  readonly text: string
}

/** The agent that runs on this device, as its socket shows it. Every failure is a StartError. */
export class LocalAgent {
  readonly #socketPath: string
  readonly #context: Pick<CommandContext, 'stderr' | 'stop'>

  constructor(socketPath: string, context: Pick<CommandContext, 'stderr' | 'stop'>) {
    this.#socketPath = socketPath
    this.#context = context
  }

  /** The agent of this folder, else of the service. */
  static find(context: CommandContext, dataDir: string | undefined): LocalAgent {
    const found =
      LocalAgent.inFolder(context, dataDir) ??
      (dataDir === undefined ? LocalAgent.ofService(context) : undefined)
    if (found) return found
    const path = socketIn(context, dataDir)
    if (isOnReadOnlyDisk(path)) throw new StartError(readOnlyText(path))
    const paths = [path, ...(dataDir === undefined ? [INSTALLED_SOCKET] : [])]
    throw new StartError(
      `No agent is running: there is no socket at ${paths.join(' or ')}. ` +
        'Start it (systemctl start device-agent), or set --data-dir to its data directory.',
    )
  }

  /** The agent of this folder, or of the one that the settings name, where there is one. */
  static inFolder(context: CommandContext, dataDir: string | undefined): LocalAgent | undefined {
    const path = socketIn(context, dataDir)
    return existsSync(path) ? new LocalAgent(path, context) : undefined
  }

  /** The agent of the installed service, where it runs. */
  static ofService(context: CommandContext): LocalAgent | undefined {
    return existsSync(INSTALLED_SOCKET) ? new LocalAgent(INSTALLED_SOCKET, context) : undefined
  }

  /** What it answers with a 2xx, checked. Waits for one that has just been started, and says so. */
  async ask<T>(what: LocalRequest, schema: z.ZodType<T>): Promise<T> {
    const { status, value } = await this.#whenStarted(what)
    if (status >= 200 && status < 300) {
      const parsed = safeParseKnown(schema, value)
      if (parsed.success) return parsed.data
      throw new StartError(
        'The agent has another version than this command. Restart it (systemctl restart device-agent).',
      )
    }
    throw new StartError(refusalText(value) ?? `The agent returned status ${status}.`)
  }

  async #whenStarted(what: LocalRequest): Promise<{ status: number; value: unknown }> {
    const { stderr, stop } = this.#context
    for (let tries = 1; ; tries += 1) {
      const { status, text } = await this.#send(what)
      const value = text === '' ? undefined : tryJson(text)
      const isStarting = status === 503 && Problem.safeParse(value).data?.code === 'starting'
      if (!isStarting || tries > MAX_TRIES || stop.aborted) return { status, value }
      if (tries === 1)
        stderr.write('The agent is starting. Waiting until it has loaded its tunnels.\n')
      await systemClock.sleep(RETRY_MS, stop).catch(() => {})
    }
  }

  async #send({ method = 'GET', path, body }: LocalRequest): Promise<Answer> {
    const content = body === undefined ? undefined : JSON.stringify(body)
    const sent = request({
      socketPath: this.#socketPath,
      method,
      path,
      timeout: TIMEOUT_MS,
      headers: {
        host: 'localhost',
        ...(content === undefined ? {} : { 'content-type': 'application/json' }),
      },
    })
    sent.on('timeout', () => sent.destroy(new Error(`no answer within ${TIMEOUT_MS / 1_000} s`)))
    try {
      const { response, text } = await exchange(sent, content, MAX_ANSWER_BYTES)
      return { status: response.statusCode ?? 0, text }
    } catch (error) {
      throw this.#failure(error as NodeJS.ErrnoException)
    }
  }

  #failure(error: NodeJS.ErrnoException): StartError {
    // A stale socket stays there when the agent is started again and cannot replace it.
    const isBarred = error.code === 'ECONNREFUSED' && isOnReadOnlyDisk(this.#socketPath)
    const reason = isBarred
      ? readOnlyText(this.#socketPath)
      : (SENTENCES[error.code ?? ''] ?? `The agent does not answer: ${error.message}.`)
    return new StartError(reason, { cause: error })
  }
}

function socketIn({ environment }: CommandContext, dataDir: string | undefined): string {
  if (dataDir !== undefined) return join(dataDir, 'local.sock')
  return localSocket(parseConfig(environment).agent).socketPath
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

function readOnlyText(socketPath: string): string {
  return (
    `The agent cannot be asked: no socket can be made at ${socketPath}, because its file system is read-only. ` +
    'An agent that runs there goes on serving its tunnels. ' +
    'Remount the file system for writing, and check the kernel log for the cause. ' +
    'The agent then makes its socket within 10 s. Until then, its API (AGENT_LISTEN) answers with a token.'
  )
}

const NO_ANSWER =
  'The agent closed the connection without an answer. It may have no open files left: see device-agent logs, raise LimitNOFILE= in its unit and restart it.'

const SENTENCES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'The agent is not running (stale socket). Start it (systemctl start device-agent).',
  ECONNRESET: NO_ANSWER,
  EPIPE: NO_ANSWER,
  ENOENT: 'The agent has just stopped. Start it (systemctl start device-agent).',
  EACCES:
    'Permission denied. Run this command with sudo: only root and the group of the service have access.',
}

/** What a person does here about a refusal that is put in the words of the API, by its code. */
const REMEDIES: Readonly<Record<string, string>> = {
  'tunnel-not-found': 'To see all tunnels, run device-agent tunnels list.',
  'token-not-found': 'To see all tokens, run device-agent token list.',
}

function refusalText(value: unknown): string | undefined {
  const problem = Problem.safeParse(value).data
  if (!problem) return undefined
  const lines = (problem.errors ?? []).map(({ pointer, detail }) => `  ${pointer}: ${detail}`)
  const remedy = REMEDIES[problem.code]
  const advice = remedy === undefined ? [] : [`  → ${remedy}`]
  return [`${problem.detail} (${problem.code})`, ...lines, ...advice].map(plainLine).join('\n')
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
