import type { IncomingMessage, ServerResponse } from 'node:http'
import { describe, expect, it } from 'vitest'
import type { Clock } from '../../../src/base/clock.ts'
import { bringInto, type DeviceWork } from '../../../src/cli/fleet/device-outcome.ts'
import { startDevice } from '../../helpers/fleet-device.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => void

const step = (action: string, state: string | null) => ({
  action,
  domain: 'view.cam1.test',
  changes: {},
  url: null,
  state,
  reason: null,
  remedy: null,
  last_error: null,
  service_code: null,
  next_retry_at: null,
})
/** All is well with this set, or this is what differs. */
const view =
  (action: string, state: string | null): Handler =>
  (_request, response) => {
    const tunnels = [step(action, state)]
    response.end(JSON.stringify({ dry_run: false, etag: '"a"', tunnels }))
  }
const busy =
  (headers = {}): Handler =>
  (_request, response) =>
    response.writeHead(503, headers).end()
const away: Handler = (_request, response) =>
  response.writeHead(404, { 'ngrok-error-code': 'ERR_NGROK_3200' }).end()
const overtaken: Handler = (_request, response) => response.writeHead(412).end()
const lost: Handler = ({ socket }) => socket.destroy()

/** A device that answers one request after the other so, and what is made of it. */
async function startWork(answers: Handler[], changes: Partial<DeviceWork> = {}) {
  const asked: string[] = []
  const pauses: number[] = []
  const api = await startDevice((request, response) => {
    asked.push(request.url?.includes('dry_run') ? 'plan' : 'put')
    const answer = answers.shift()
    if (answer) answer(request, response)
    else response.writeHead(500).end()
  })
  const clock: Clock = {
    now: () => 0,
    monotonic: () => 0,
    sleep: (ms) => Promise.resolve(void pauses.push(ms)),
  }
  const stop = new AbortController().signal
  const work: DeviceWork = {
    ...{ name: 'cam1', api, wanted: () => [], isApply: true, attempted: new Map(), clock, stop },
    ...changes,
  }
  return { work, asked, pauses, answers }
}

describe('bringing tunnels into a device', () => {
  it('asks again, a little later, when it is busy', async () => {
    const { work, asked, pauses } = await startWork([
      busy({ 'retry-after': '2' }),
      busy({ 'retry-after': '100' }),
      view('create', null),
      busy(),
      view('create', null),
      view('create', 'online'),
    ])
    expect(await bringInto(work)).toMatchObject({ state: 'applied' })
    expect(pauses).toEqual([2_000, 5_000, 1_000])
    expect(asked).toEqual(['plan', 'plan', 'plan', 'put', 'plan', 'put'])
  })

  it('gives up after three times, and at once where nobody is there', async () => {
    const patient = await startWork([busy(), busy(), busy(), busy()])
    expect((await bringInto(patient.work)).state).toBe('offline')
    expect(patient.pauses).toHaveLength(3)
    const gone = await startWork([away])
    expect((await bringInto(gone.work)).state).toBe('offline')
    expect(gone.pauses).toEqual([])
  })

  it('says that it has changed what it has changed, when the answer was lost', async () => {
    const { work } = await startWork([view('create', null), lost, view('keep', 'online')])
    const { state, tunnels } = await bringInto(work)
    expect([state, tunnels.map(({ action }) => action)]).toEqual(['applied', ['create']])
  })

  it('says so also when the device comes back at a later look', async () => {
    const gone = [away, away, away, away]
    const { work, answers, pauses } = await startWork([view('delete', 'online'), ...gone])
    expect((await bringInto(work)).state).toBe('offline')
    expect(pauses).toEqual([1_000, 1_000, 1_000])
    answers.splice(0, answers.length, view('keep', 'online'))
    expect((await bringInto(work)).state).toBe('applied')
  })

  it('takes no credit for what somebody else has changed', async () => {
    const { work } = await startWork([view('create', null), overtaken, view('keep', 'online')])
    expect((await bringInto(work)).state).toBe('same')
  })

  it('is not done while a tunnel that stays is not online, and tries it again', async () => {
    const stuck = await startWork([view('keep', 'refused'), view('keep', 'refused')])
    expect(await bringInto(stuck.work)).toMatchObject({
      state: 'pending',
      tunnels: [],
      problem: 'view.cam1.test is refused',
    })
    expect(stuck.asked).toEqual(['plan', 'put'])
    const better = await startWork([view('keep', 'waiting'), view('keep', 'online')])
    expect((await bringInto(better.work)).state).toBe('same')
    const planned = await startWork([view('keep', 'refused')], { isApply: false })
    expect((await bringInto(planned.work)).state).toBe('pending')
    expect(planned.asked).toEqual(['plan'])
  })

  it('stops while it waits', async () => {
    const stop = AbortSignal.abort(new Error('stop'))
    const { work } = await startWork([busy()], { stop })
    expect(await bringInto(work)).toMatchObject({
      state: 'stopped',
      problem: undefined,
    })
  })
})
