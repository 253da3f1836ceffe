import { spawn } from 'node:child_process'
import { closeSync, createReadStream, openSync, readSync, statSync } from 'node:fs'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { LogView } from '../../api/diagnosis/log.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from './local-agent.ts'

const UNIT = 'device-agent'
const FOLLOW_MS = 1_000
/** Bytes from the end of a file. For more, read the file itself. */
const MAX_FILE_BYTES = 16 * 1024 * 1024
const MAX_CHUNK_BYTES = 1024 * 1024

interface LogRequest {
  /** Number of the newest lines. */
  readonly lines: number
  /** Continues with new lines until `stop`. */
  readonly follow: boolean
  readonly stop: AbortSignal
}

/** Lines of a log as they were written, oldest first. */
type LogLines = AsyncIterable<string>

/** The newest lines since the start of the agent, which it keeps in memory. */
async function* linesOfAgent(agent: LocalAgent, request: LogRequest): LogLines {
  const { lines, follow, stop } = request
  let after = 0
  for (let limit = Math.min(lines, 1_000); ; limit = 1_000) {
    const path = `/log?after=${after}&limit=${limit}`
    const answer = await agent.ask({ path }, LogView).catch((error) => {
      // Following continues over a restart of the agent.
      if (after > 0 && error instanceof StartError) return undefined
      throw error
    })
    for (const { line } of answer?.lines ?? []) yield JSON.stringify(line)
    // Smaller than before: it was started again, and counts from 1.
    const isAnew = answer !== undefined && answer.last < after
    after = isAnew ? 0 : (answer?.last ?? after)
    if (!follow || stop.aborted) return
    if (isAnew) continue
    await systemClock.sleep(FOLLOW_MS, stop).catch(() => {})
    if (stop.aborted) return
  }
}

/** Lines of the service in the journal. Throws a StartError if there is no journal. */
async function* linesOfJournal({ lines, follow, stop }: LogRequest): LogLines {
  const args = [
    '--unit',
    UNIT,
    '--output',
    'cat',
    '--no-pager',
    '--quiet',
    '--lines',
    String(lines),
  ]
  const child = spawn('journalctl', [...args, ...(follow ? ['--follow'] : [])], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const end = () => child.kill()
  stop.addEventListener('abort', end, { once: true })
  let complaint = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    complaint = (complaint + text).slice(-1_000)
  })
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  ended.catch(() => {})
  try {
    yield* linesIn(child.stdout)
    const code = await ended
    if (code === 0 || stop.aborted) return
    throw new StartError(`Cannot read the journal: ${complaint.trim() || `exit ${code}`}.`)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    throw new StartError('This machine has no systemd journal. Set --file to a log file.', {
      cause: error,
    })
  } finally {
    stop.removeEventListener('abort', end)
    end()
  }
}

/** Lines of a file. A replaced or truncated file is read from its beginning. */
async function* linesOfFile(path: string, request: LogRequest): LogLines {
  const { lines, follow, stop } = request
  let at = sizeOf(path).size
  const newest: string[] = []
  for await (const line of linesBetween(path, Math.max(0, at - MAX_FILE_BYTES), at)) {
    newest.push(line)
    if (newest.length > lines) newest.shift()
  }
  yield* newest
  let { ino } = sizeOf(path)
  while (follow && !stop.aborted) {
    await systemClock.sleep(FOLLOW_MS, stop).catch(() => {})
    if (stop.aborted) return
    const now = sizeOf(path)
    if (now.ino !== ino || now.size < at) at = 0
    ino = now.ino
    for (;;) {
      const whole = wholeLines(path, at, now.size)
      if (whole.length === 0) break
      at += whole.length
      yield* whole.toString().trimEnd().split('\n')
    }
  }
}

/** Complete lines only; the rest of a line comes later. */
function wholeLines(path: string, start: number, end: number): Buffer {
  const bytes = Buffer.alloc(Math.min(end - start, MAX_CHUNK_BYTES))
  const file = openSync(path, 'r')
  try {
    const read = bytes.subarray(0, readSync(file, bytes, 0, bytes.length, start))
    // A line without an end is taken in pieces.
    const isEndless = read.length === MAX_CHUNK_BYTES && !read.includes(10)
    return isEndless ? read : read.subarray(0, read.lastIndexOf(10) + 1)
  } finally {
    closeSync(file)
  }
}

function sizeOf(path: string): { size: number; ino: number } {
  try {
    return statSync(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`Cannot read the log ${path} (${code}).`, { cause: error })
  }
}

async function* linesBetween(path: string, start: number, end: number): LogLines {
  if (end > start) yield* linesIn(createReadStream(path, { start, end: end - 1 }))
}

async function* linesIn(stream: Readable): LogLines {
  yield* createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY })
}

export interface LogPlace {
  readonly file?: string | undefined
  readonly dataDir?: string | undefined
}

/**
 * Opens the named log file, the log of the agent of this folder, or that of the service. The journal reaches
 * further back than the memory of the process.
 */
export async function openLog(
  context: CommandContext,
  { file, dataDir }: LogPlace,
  request: LogRequest,
): Promise<LogLines> {
  if (file !== undefined) return linesOfFile(file, request)
  const own = LocalAgent.inFolder(context, dataDir)
  if (own || dataDir !== undefined) {
    return linesOfAgent(own ?? LocalAgent.find(context, dataDir), request)
  }
  const service = LocalAgent.ofService(context)
  return withFallback(linesOfJournal(request), service && linesOfAgent(service, request))
}

/**
 * The first source, or the second where the first has nothing at all. Throws a StartError where both
 * have nothing.
 */
async function* withFallback(first: LogLines, second: LogLines | undefined): LogLines {
  let isEmpty = true
  try {
    for await (const line of first) {
      isEmpty = false
      yield line
    }
  } catch (error) {
    if (!isEmpty || !second) throw error
  }
  if (!isEmpty) return
  if (second) return yield* second
  throw new StartError(
    'No log found: no agent is running, and the journal has no lines of device-agent. ' +
      'Set --data-dir to the data directory of an agent, or --file to a log file.',
  )
}
