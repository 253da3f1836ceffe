import type { Request, Response } from 'express'
import * as z from 'zod'
import { AppError } from '../../base/app-error.ts'
import type { Clock } from '../../base/clock.ts'
import { callerOf, recheckCaller } from '../../http/caller.ts'
import { parse } from '../../http/parse.ts'
import type { Route } from '../../http/routes.ts'
import { isoTime } from '../iso-time.ts'
import type { EventFeed } from './event-feed.ts'
import type { AgentEvent } from './event-log.ts'

/**
 * Event readers. When all places are taken, a new reader replaces one of the caller with the most readers. So
 * one token cannot keep all others out.
 */
class ReaderPlaces {
  readonly #limit: number
  /** Ends each reader, the oldest first, by caller. */
  readonly #readers = new Map<string, Set<() => void>>()

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Makes room for one more reader of the caller. False: no other caller has at least two more readers. */
  makeRoom(caller: string): boolean {
    const all = [...this.#readers.values()]
    if (all.reduce((sum, { size }) => sum + size, 0) < this.#limit) return true
    const most = all.reduce((one, other) => (other.size > one.size ? other : one))
    if (most.size <= this.#heldBy(caller) + 1) return false
    const [endOldest] = most
    endOldest?.()
    return true
  }

  /** Takes a place until the returned function is called, which `end` has to do. */
  acquire(caller: string, end: () => void): () => void {
    const readers = this.#readers.get(caller) ?? new Set()
    this.#readers.set(caller, readers.add(end))
    return () => {
      readers.delete(end)
      if (readers.size === 0 && this.#readers.get(caller) === readers) this.#readers.delete(caller)
    }
  }

  #heldBy(caller: string): number {
    return this.#readers.get(caller)?.size ?? 0
  }
}

/** Open streams of one agent. */
export const MAX_SUBSCRIBERS = 32
/** Bytes that a reader may leave lying: all that is kept is less. */
const MAX_UNREAD_BYTES = 1_048_576
/**
 * Interval of heartbeats: proxies keep the stream open. Each heartbeat also checks whether the token is still
 * valid.
 */
const BEAT_MS = 15_000
const RECONNECT_MS = 3_000

const Id = z.coerce
  .number('must be the id of an event')
  .int('must be the id of an event')
  .min(0, 'must be the id of an event')
const EventsQuery = z.strictObject({
  last_event_id: Id.optional().describe(
    'continue after this event, like the header Last-Event-ID; 0 for all stored events',
  ),
})

export interface EventRoutesDeps {
  readonly feed: EventFeed
  readonly clock: Clock
}

/** `/events`: each change as it happens, as server-sent events. */
export function eventRoute(deps: EventRoutesDeps): Route {
  const places = new ReaderPlaces(MAX_SUBSCRIBERS)
  return {
    route: 'GET /events',
    id: 'listEvents',
    summary: 'Stream changes of tunnels, link, storage and policy',
    query: EventsQuery,
    answers: {
      200: {
        means: 'Endless stream of server-sent events.',
        schema: { Events: z.string() },
        mediaType: 'text/event-stream',
      },
    },
    handle: (request, response) => serve(request, response, { ...deps, places }),
  }
}

interface Served extends EventRoutesDeps {
  readonly places: ReaderPlaces
}

/** Throws AppError `invalid-request` or `too-many-requests`. */
function serve(request: Request, response: Response, deps: Served): void {
  const { feed, places } = deps
  const header = request.get('last-event-id')
  const query = header === undefined ? request.query : { last_event_id: header }
  const { last_event_id: lastId } = parse(EventsQuery, query)
  const { kind, id } = callerOf(response).actor
  const caller = `${kind} ${id}`
  if (request.method !== 'HEAD' && !places.makeRoom(caller)) {
    const detail = `The limit of ${MAX_SUBSCRIBERS} event streams is reached. Close one of yours, or try again later.`
    throw new AppError('too-many-requests', detail, { retryAfterS: 10 })
  }
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    // Proxies that gather answers would keep the news.
    'x-accel-buffering': 'no',
  })
  if (request.method === 'HEAD') {
    response.end()
    return
  }
  response.write(`retry: ${RECONNECT_MS}\n\n`)
  if (lastId !== undefined) replay(response, feed, lastId)
  follow(response, caller, deps)
}

function replay(response: Response, feed: EventFeed, lastId: number): void {
  const { events, isComplete } = feed.after(lastId)
  if (!isComplete) response.write('event: events.missed\ndata: {}\n\n')
  response.write(events.map(textOf).join(''))
}

function follow(response: Response, caller: string, { feed, clock, places }: Served): void {
  const over = new AbortController()
  const unsubscribe = feed.subscribe({
    onEvent: (event) => {
      response.write(textOf(event))
      // It comes back and goes on where it was, if it can read at all.
      if (response.writableLength > MAX_UNREAD_BYTES) response.destroy()
    },
    onEnd: () => finish(),
  })
  // Unsent data keeps the response open. Nothing may be written after its end.
  const finish = () => {
    leave()
    response.end()
  }
  const leave = () => {
    unsubscribe()
    giveBack()
    over.abort()
  }
  const giveBack = places.acquire(caller, finish)
  response.on('close', leave)
  void beat(response, { clock, signal: over.signal, finish })
}

interface Beat {
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly finish: () => void
}

async function beat(response: Response, { clock, signal, finish }: Beat): Promise<void> {
  for (;;) {
    await clock.sleep(BEAT_MS, signal).catch(() => {})
    if (signal.aborted) return
    try {
      recheckCaller(response)
    } catch {
      finish()
      return
    }
    response.write(':\n\n')
  }
}

/** https://html.spec.whatwg.org/multipage/server-sent-events.html section 9.2.5. */
function textOf({ id, at, type, data }: AgentEvent): string {
  return `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ at: isoTime(at), ...data })}\n\n`
}
