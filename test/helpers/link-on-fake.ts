import { onTestFinished } from 'vitest'
import type { Session } from '../../src/agent/connector.ts'
import { Link, type LinkOptions } from '../../src/agent/link.ts'
import type { Problem } from '../../src/agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../src/agent/timings.ts'
import { Secret } from '../../src/base/secret.ts'
import { captureLog } from './captured-log.ts'
import { FakeConnector } from './fake-connector.ts'
import { ManualClock } from './manual-clock.ts'

export const NO_TOKEN: Problem = {
  reason: 'auth',
  detail: 'no authtoken',
  remedy: 'Put one there.',
  permanent: false,
}

/** A link on a fake service and a clock that stands still, not started; stopped with the running test. */
export function linkOnFake(options: Partial<LinkOptions> = {}) {
  const connector = new FakeConnector()
  const clock = new ManualClock()
  const captured = captureLog()
  const changes: string[] = []
  const sessions: (Session | undefined)[] = []
  let poisoned = 0
  let token: Secret | Problem = new Secret('good')
  const link = new Link({
    connector,
    preflight: () => Promise.resolve(),
    authtoken: () => token,
    serverAddrs: [],
    hasStandby: true,
    caCert: undefined,
    metadata: () => '{}',
    timings: DEFAULT_TIMINGS.link,
    // Every pause is as long as it can be.
    random: () => 0,
    clock,
    log: captured.log,
    onChange: () => changes.push(link.status.state),
    onSessions: () => sessions.push(link.session),
    onPoisoned: () => {
      poisoned += 1
    },
    ...options,
  })
  onTestFinished(() => link.stop({ drainMs: 10_000 }))
  const start = async () => {
    link.start()
    await clock.advance(0)
  }
  return {
    connector,
    clock,
    captured,
    link,
    changes,
    sessions,
    start,
    poisoned: () => poisoned,
    setToken: (next: string | undefined) => {
      token = next === undefined ? NO_TOKEN : new Secret(next)
      link.authtokenChanged()
    },
  }
}
