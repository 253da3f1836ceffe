import { readFileSync, statSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Config } from '../../config.ts'
import { JoinError, type Joined, joinGateway } from '../../join/join-client.ts'
import { JOIN_REFUSALS } from '../../join/join-messages.ts'
import { type JoinString, parseJoinString } from '../../join/join-string.ts'
import { lockFolder } from '../../store/data-folder.ts'
import type { CommandContext } from '../command-context.ts'
import { JOINED_ENV, withJoined } from '../surroundings.ts'
import { readVersion } from '../version.ts'
import { clockText, joinFailure } from './join-device.ts'
import {
  belongingOf,
  folderPlace,
  isSameGateway,
  type JoinPlace,
  planJoin,
  writeInto,
} from './join-place.ts'
import { JoinRecord } from './join-record.ts'

type Environment = CommandContext['environment']

const MAX_FILE_BYTES = 65_536
/** A gateway may start after its devices. */
const RETRY_MS = 5_000

interface FileOptions {
  readonly config: Config['agent']
  readonly environment: Environment
  readonly log: Logger
  readonly stop: AbortSignal
}

/**
 * Joins the gateway of SVC_JOIN_FILE, unless the agent has an authtoken. Returns the environment with the
 * settings of the join. Retries until a gateway answers. Throws a StartError if the invitation cannot be used.
 */
export async function joinFromFile({
  config,
  environment,
  log,
  stop,
}: FileOptions): Promise<Environment> {
  const { joinFile, dataDir, authtoken, authtokenFile } = config
  if (joinFile === undefined) return environment
  const place = folderPlace(join(dataDir, JOINED_ENV), dataDir)
  if (authtoken || authtokenFile !== undefined) {
    tellOfAnother(place, joinFile, log)
    return environment
  }
  const joinString = readJoinFile(joinFile)
  // The agent locks the directory again. Two agents must not both join.
  const lock = lockFolder({ folder: dataDir, owner: 'agent', log })
  try {
    // Another agent on this volume may have joined meanwhile.
    const now = withJoined(environment)
    if (now.SVC_AUTHTOKEN) return now
    const record = new JoinRecord(place)
    const joined = await untilAnswered(place, record, { joinString, log, stop })
    for (const write of planJoin(place, joined, { isSame: false })) writeInto(place, write)
    record.finish(joinString, joined)
    const { name, serverAddrs, agentUrl } = joined
    log.info({ name, server: serverAddrs[0], url: agentUrl }, 'joined the gateway of SVC_JOIN_FILE')
    const clock = clockText(joined.clockAheadMs)
    if (clock !== undefined) log.warn(clock)
  } finally {
    lock.release()
  }
  return withJoined(environment)
}

interface Attempt {
  readonly joinString: JoinString
  readonly log: Logger
  readonly stop: AbortSignal
}

async function untilAnswered(
  place: JoinPlace,
  record: JoinRecord,
  { joinString, log, stop }: Attempt,
): Promise<Joined> {
  const claim = record.claimFor(joinString)
  let told = ''
  for (;;) {
    try {
      return await joinGateway({
        ...{ joinString, claim, stop, clock: systemClock },
        ...{ hostname: hostname(), version: readVersion() },
      })
    } catch (error) {
      if (!(error instanceof JoinError)) throw error
      const failure = joinFailure(error, place)
      if (stop.aborted || isFinal(error)) throw new StartError(failure, { cause: error })
      if (failure !== told) {
        log.warn({ problem: failure }, 'cannot join the gateway of SVC_JOIN_FILE yet, trying again')
      }
      told = failure
      await systemClock.sleep(RETRY_MS, stop).catch(() => {})
    }
  }
}

/** Whether the invitation itself cannot be used. Everything else may be different later. */
function isFinal({ problem }: JoinError): boolean {
  const refusals: Readonly<Record<string, string>> = JOIN_REFUSALS
  return refusals[problem] === 'final'
}

function readJoinFile(path: string): JoinString {
  const { text, code } = readFile(path)
  if (text === undefined) {
    throw new StartError(
      `Cannot read SVC_JOIN_FILE ${path} (${code}). Write a join string of device-agent gateway invite to it.`,
    )
  }
  const parsed = parseJoinString(text)
  if ('problem' in parsed) throw new StartError(`SVC_JOIN_FILE ${path}: ${parsed.problem}`)
  return parsed
}

function readFile(path: string): { readonly text?: string; readonly code?: string } {
  try {
    if (statSync(path).size > MAX_FILE_BYTES) return { text: '' }
    return { text: readFileSync(path, 'utf8') }
  } catch (error) {
    return { code: (error as NodeJS.ErrnoException).code ?? 'unknown error' }
  }
}

/**
 * A new join string in the file is not used: it may be of another gateway by mistake, or one for many devices that
 * have joined already.
 */
function tellOfAnother(place: JoinPlace, joinFile: string, log: Logger): void {
  const belonging = belongingOf(place)
  const parsed = parseJoinString(readFile(joinFile).text ?? '')
  if (!belonging || 'problem' in parsed) return
  const { gateway } = belonging
  const isSame = isSameGateway(belonging, parsed)
  if (!isSame) {
    log.warn(
      { gateway },
      'SVC_JOIN_FILE is of another gateway than the data directory, and is not used. To move the device, run device-agent leave first',
    )
  } else if (!new JoinRecord(place).hasUsed(parsed)) {
    log.info(
      { gateway },
      'SVC_JOIN_FILE has a new join string, and is not used: this device has joined. To join again, stop the agent, run device-agent leave --yes, and start it. Its tunnels stay',
    )
  }
}
