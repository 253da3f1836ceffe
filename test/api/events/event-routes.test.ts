import { get, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Tunnel } from '../../../src/agent/tunnel.ts'
import { EventFeed, type EventFeedOptions } from '../../../src/api/events/event-feed.ts'
import { AGENT_EVENT_MIGRATIONS } from '../../../src/api/events/event-log.ts'
import { eventRoute } from '../../../src/api/events/events.ts'
import { keepCaller } from '../../../src/http/caller.ts'
import { methodNotAllowed } from '../../../src/http/error-response.ts'
import { mountRoutes } from '../../../src/http/routes.ts'
import { openDatabase } from '../../../src/store/database.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { appWith, serveHttp } from '../../helpers/serve-http.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const BEAT_MS = 15_000
const POLL_MS = 100
const LONG = 'x'.repeat(200_000)

/** One on which work takes time. */
class WorkingClock extends ManualClock {
  workedMs = 0

  override monotonic(): number {
    return super.monotonic() + this.workedMs
  }
}

/** The feed over a list of tunnels that the test writes, and the route that serves it. */
async function startFeed() {
  const clock = new WorkingClock()
  const captured = captureLog()
  const { log } = captured
  const database = openDatabase({
    path: join(temporaryFolder(), 'agent.db'),
    migrations: AGENT_EVENT_MIGRATIONS,
    applicationId: 1,
    log,
    clock,
  })
  onTestFinished(() => database.close())
  const status = {
    link: { state: 'up', since: 0, forMs: 0 },
    defaultPolicy: { source: 'file', loadedAt: 0, problem: undefined as string | undefined },
  }
  const state = {
    tunnels: [] as Tunnel[],
    isAllowed: true,
    onChange: () => {},
    looks: 0,
    lookMs: 0,
  }
  const agent = {
    list: () => {
      state.looks += 1
      clock.workedMs += state.lookMs
      return state.tunnels
    },
    status: () => status,
    onChange: (listener: () => void) => {
      state.onChange = listener
      return () => {}
    },
  } as unknown as EventFeedOptions['agent']
  const feed = new EventFeed({ agent, database, version: '1.2.3', clock, log })
  feed.start()
  onTestFinished(() => feed.stop())
  const app = appWith((routes) => {
    routes.use((_request, response, next) => {
      const actor = { kind: 'token', id: 'tok_1' } as never
      keepCaller(response, { actor, scope: 'read' }, () => {
        if (!state.isAllowed) throw new Error('the token is over')
      })
      next()
    })
    routes.use(mountRoutes([eventRoute({ feed, clock })], methodNotAllowed))
  }, captured)
  const { at } = await serveHttp(app)
  const listen = () =>
    new Promise<IncomingMessage>((resolve, reject) => {
      const asked = get({ ...at, host: '127.0.0.1', path: '/events', agent: false }, resolve)
      asked.on('error', reject)
      onTestFinished(() => void asked.destroy())
    })
  /** The agent has other tunnels now; the feed looks at them. */
  const change = async (tunnels: Tunnel[]) => {
    state.tunnels = tunnels
    state.onChange()
    await clock.advance(POLL_MS)
  }
  return { ...captured, clock, feed, state, status, listen, change }
}

function tunnel(id: string, forwardsTo = 'localhost:1'): Tunnel {
  const spec = { protocol: 'http', domain: `${id}.site.test`, forwardsTo }
  const status = { state: 'online', since: 0, upstream: 'unknown' }
  const url = `https://${spec.domain}`
  return { id, url, spec, status, createdAt: 0, updatedAt: 0 } as unknown as Tunnel
}

/** All that comes until the stream ends, and how it ends. */
function readAll(response: IncomingMessage) {
  const read = { text: '', end: '' }
  response.setEncoding('utf8')
  response.on('data', (chunk: string) => {
    read.text += chunk
  })
  response.on('error', () => {})
  // One that was paused stays so otherwise.
  response.resume()
  response.on('close', () => {
    read.end = response.complete ? 'whole' : 'cut'
  })
  return read
}

describe('the stream of events', () => {
  it('cuts off who does not read, and nobody else', async () => {
    const { listen, change, feed } = await startFeed()
    const reader = readAll(await listen())
    const slow = await listen()
    slow.pause()
    let sent = 0
    while (feed.subscribers === 2) {
      sent += 1
      // What two sockets take by themselves is some megabytes.
      expect(sent, 'events of 200 kB that a reader leaves lying').toBeLessThan(200)
      await change([tunnel(`t${sent}`, LONG)])
      const place = `"id":"t${sent}"`
      await eventually(() => expect(reader.text.slice(-500_000)).toContain(place))
    }
    expect(feed.subscribers).toBe(1)
    const rest = readAll(slow)
    await eventually(() => expect(rest.end).toBe('cut'))
    await change([tunnel('last')])
    await eventually(() => expect(reader.text).toContain('"id":"last"'))
    expect(reader.end).toBe('')
  })

  it('looks no longer than a twentieth of the time, however many tunnels change', async () => {
    const { change, state, clock } = await startFeed()
    state.lookMs = 20
    state.looks = 0
    await change([tunnel('first')])
    expect(state.looks).toBe(1)
    // A look of 20 ms, of which 380 of rest are left to go by: 100 went by already.
    await change([tunnel('second')])
    await clock.advance(170)
    expect(state.looks).toBe(1)
    await clock.advance(10)
    expect(state.looks).toBe(2)
  })

  it('ends with the token, and nothing is written behind its end', async () => {
    const { listen, change, feed, state, clock, text } = await startFeed()
    const slow = await listen()
    slow.pause()
    await change([tunnel('seen')])
    await clock.advance(BEAT_MS)
    state.isAllowed = false
    await clock.advance(BEAT_MS)
    expect(feed.subscribers).toBe(0)
    await change([tunnel('secret')])
    await clock.advance(2 * BEAT_MS)
    const read = readAll(slow)
    await eventually(() => expect(read.end).toBe('whole'))
    expect(read.text).toContain('"id":"seen"')
    // The beat while the token was good, and none later.
    expect(read.text.match(/^:$/gm)).toHaveLength(1)
    expect(read.text).not.toContain('secret')
    expect(text()).not.toContain('write after end')
  })

  it('ends as a whole when the agent stops', async () => {
    const { listen, feed, change } = await startFeed()
    const read = readAll(await listen())
    await change([tunnel('last')])
    feed.stop()
    await eventually(() => expect(read.end).toBe('whole'))
    expect(read.text).toContain('event: tunnel.created')
  })

  it('tells of a default policy that has become bad', async () => {
    const { listen, status, change } = await startFeed()
    const read = readAll(await listen())
    status.defaultPolicy = { source: 'kept', loadedAt: 1_000, problem: 'line 2: no such action' }
    await change([])
    await eventually(() => expect(read.text).toContain('event: policy.default'))
    const data = /event: policy.default\ndata: (.*)\n/.exec(read.text)?.[1] ?? ''
    expect(JSON.parse(data)).toMatchObject({
      source: 'kept',
      loaded_at: '1970-01-01T00:00:01.000Z',
      problem: 'line 2: no such action',
    })
  })

  it('goes on after a look that failed', async () => {
    const { listen, change, text } = await startFeed()
    const read = readAll(await listen())
    await change([{ ...tunnel('t1'), spec: undefined } as unknown as Tunnel])
    expect(text()).toContain('cannot detect changes')
    await change([tunnel('t2')])
    await eventually(() => expect(read.text).toContain('"id":"t2"'))
  })
})
