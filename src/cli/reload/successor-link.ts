import { AuthtokenSource } from '../../agent/authtoken-source.ts'
import { Identity } from '../../agent/device/identity.ts'
import { NgrokConnector } from '../../agent/ngrok-connector.ts'
import { preflightsTo } from '../../agent/probes/preflight.ts'
import { readServiceDate } from '../../agent/probes/service-date.ts'
import { timeSources } from '../../agent/probes/time-sources.ts'
import { problemOf } from '../../agent/problem.ts'
import { HeadStart } from '../../agent/sessions/head-start.ts'
import { DEFAULT_TIMINGS } from '../../agent/timings.ts'
import { StartError } from '../../base/app-error.ts'
import { systemClock } from '../../base/clock.ts'
import type { Closer } from '../../base/closer.ts'
import type { Logger } from '../../base/logger.ts'
import { Secret } from '../../base/secret.ts'
import type { Config } from '../../config.ts'
import { readCaCert, type SuccessorOptions } from '../../daemon.ts'
import type { Heritage } from './heritage.ts'

export interface SuccessorLinkOptions {
  readonly config: Config['agent']
  readonly heritage: Heritage
  readonly version: string
  readonly log: Logger
  readonly stop: AbortSignal
}

/**
 * Connects a process that is to take another one's place, while that one serves: whoever cannot has
 * changed nothing yet. Where the old one has no link, neither has this one to show any. Throws a
 * StartError that says why there is none.
 */
export async function connectSuccessor(
  { config, heritage, version, log, stop }: SuccessorLinkOptions,
  closer: Closer,
): Promise<SuccessorOptions> {
  const { link, serverAddrs, ingressAddr } = config
  const { instance } = heritage
  const caCert = readCaCert(config.caCertPath)
  const ahead = new HeadStart({
    connector: new NgrokConnector({ version, log, heartbeat: link.heartbeat }),
    preflight: preflightsTo(serverAddrs, {
      caCert,
      serviceDate: () => readServiceDate(timeSources(undefined, ingressAddr, serverAddrs[0]), stop),
      timings: DEFAULT_TIMINGS.preflight,
      clock: systemClock,
    }),
    clock: systemClock,
  })
  closer.own('session of a successor', ahead, (it) => it.stop())
  if (!heritage.isLinked) return { instance, connector: ahead, serverAddrs }
  const heartbeat = link.isHeartbeatOurs ? link.heartbeat : undefined
  const identity = new Identity({ instance, heartbeat })
  identity.load(config.dataDir, log)
  const asked = { authtoken: readAuthtoken(config, log), caCert, metadata: identity.metadata }
  const addresses = beginningWith(heritage.serverAddr, serverAddrs)
  try {
    const tried = addresses.length > 0 ? addresses : [undefined]
    const answered = await ahead.run(tried, asked, stop)
    return { instance, connector: ahead, serverAddrs: beginningWith(answered, addresses) }
  } catch (error) {
    throw new StartError(`The new process has no link: ${problemOf(error).detail}`, {
      cause: error,
    })
  }
}

/** The same addresses, with that one first where it is among them. */
function beginningWith(first: string | undefined, addresses: readonly string[]): string[] {
  const isFirst = (address: string) => address === first
  return [...addresses.filter(isFirst), ...addresses.filter((it) => !isFirst(it))]
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
