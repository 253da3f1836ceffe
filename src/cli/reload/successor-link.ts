import { AuthtokenSource } from '../../agent/authtoken-source.ts'
import { Identity } from '../../agent/device/identity.ts'
import { NgrokConnector } from '../../agent/ngrok-connector.ts'
import { problemOf } from '../../agent/problem.ts'
import { HeadStart } from '../../agent/sessions/head-start.ts'
import { DEFAULT_TIMINGS } from '../../agent/timings.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import type { Logger } from '../../base/logger.ts'
import { Secret } from '../../base/secret.ts'
import type { Config } from '../../config.ts'
import { readCaCert } from '../../daemon.ts'
import type { Heritage } from './heritage.ts'

export interface SuccessorLinkOptions {
  readonly config: Config['agent']
  readonly heritage: Heritage
  readonly version: string
  readonly log: Logger
}

/**
 * Connects a process that is to take another one's place, while that one serves: whoever cannot has
 * changed nothing yet. Where the old one has no link, neither has this one to show any. Throws a
 * StartError that says why there is none.
 */
export async function connectSuccessor(
  { config, heritage, version, log }: SuccessorLinkOptions,
  closer: Closer,
): Promise<HeadStart> {
  const { link, serverAddrs } = config
  const connector = new NgrokConnector({ version, log, heartbeat: link.heartbeat })
  const ahead = closer.own('session of a successor', new HeadStart(connector), (it) => it.stop())
  if (!heritage.isLinked) return ahead
  const heartbeat = link.isHeartbeatOurs ? link.heartbeat : undefined
  const identity = new Identity({ instance: heritage.instance, heartbeat })
  identity.load(config.dataDir, log)
  const caCert = readCaCert(config.caCertPath)
  const asked = { authtoken: readAuthtoken(config, log), caCert, metadata: identity.metadata }
  try {
    await ahead.run(serverAddrs.length > 0 ? serverAddrs : [undefined], asked)
  } catch (error) {
    throw new StartError(`The new process has no link: ${problemOf(error).detail}`, {
      cause: error,
    })
  }
  return ahead
}

function readAuthtoken({ authtokenFile, authtoken }: Config['agent'], log: Logger): Secret {
  const source = new AuthtokenSource({
    files: authtokenFile === undefined ? [] : [authtokenFile],
    value: authtoken,
    everyMs: DEFAULT_TIMINGS.fileWatchMs,
    clock: systemClock,
    log,
  })
  source.start(() => {})
  source.stop()
  const { current } = source
  if (current instanceof Secret) return current
  throw new StartError(`The new process has no link: ${current.detail}`)
}
