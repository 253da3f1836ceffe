import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { LocalAgent } from './local-agent.ts'
import {
  type LogLines,
  type LogRequest,
  linesOfAgent,
  linesOfFile,
  linesOfJournal,
} from './log-source.ts'

export interface LogPlace {
  readonly file?: string | undefined
  readonly dataDir?: string | undefined
}

/**
 * The log that is meant: the file that is named, that of the agent of this folder, else of the
 * service, whose journal goes further back than the memory of the process.
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
