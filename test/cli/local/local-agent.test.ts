import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { describe, expect, it, onTestFinished } from 'vitest'
import * as z from 'zod'
import { LocalAgent } from '../../../src/cli/local/local-agent.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

async function startAgent(listener: RequestListener, limits = {}) {
  const socketPath = join(temporaryFolder(), 'local.sock')
  const server = createServer(listener).listen(socketPath)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const stderr = new PassThrough()
  const stopping = new AbortController()
  const agent = new LocalAgent(socketPath, { stderr, stop: stopping.signal }, limits)
  const ask = () => agent.ask({ path: '/tunnels' }, z.array(z.string()))
  const Status = z.strictObject({ of: z.array(z.strictObject({ name: z.string() })) })
  const askStatus = () => agent.ask({ path: '/status' }, Status)
  return { ask, askStatus, stopping, said: () => String(stderr.read() ?? '') }
}

const refusal = (code: string) => JSON.stringify({ code, detail: 'It says so.' })

describe('the agent of this device', () => {
  it('is waited for while it starts, and that is said once', async () => {
    let asked = 0
    const { ask, said } = await startAgent((_request, response) => {
      asked += 1
      if (asked < 3) response.writeHead(503).end(refusal('starting'))
      else response.end('["a"]')
    })
    expect(await ask()).toEqual(['a'])
    expect(said()).toBe('The agent is starting. Waiting until it has loaded its tunnels.\n')
  })

  it('is not waited for any more by somebody who stops', async () => {
    const { ask, stopping } = await startAgent((_request, response) => {
      stopping.abort()
      response.writeHead(503).end(refusal('starting'))
    })
    await expect(ask()).rejects.toThrow('It says so. (starting)')
  })

  it.each([
    [503, refusal('storage-unwritable'), 'It says so. (storage-unwritable)'],
    [500, 'no JSON', 'The agent returned status 500.'],
    [200, '{}', 'has another version than this command'],
  ])('says what is wrong when it answers %i', async (status, body, sentence) => {
    const { ask, said } = await startAgent((_request, response) => {
      response.writeHead(status).end(body)
    })
    await expect(ask()).rejects.toThrow(sentence)
    expect(said()).toBe('')
  })

  it('is understood when it is newer, and says more', async () => {
    const { askStatus } = await startAgent((_request, response) =>
      response.end('{"of": [{"name": "a"}, {"name": "b", "mood": 1}], "weather": {"is": "fine"}}'),
    )
    expect(await askStatus()).toEqual({ of: [{ name: 'a' }, { name: 'b' }] })
  })

  it('is not understood when something else is other, too', async () => {
    const { askStatus } = await startAgent((_request, response) =>
      response.end('{"of": [{"name": 1, "mood": 1}], "weather": 1}'),
    )
    await expect(askStatus()).rejects.toThrow('has another version than this command')
  })

  it.each<[what: string, listener: RequestListener, limits: object, sentence: string]>([
    ['silent', () => {}, { silenceMs: 50 }, 'The agent does not answer: no answer within 0.05 s.'],
    [
      'endless',
      (_request, response) => void response.write('[]'.padEnd(5_000)),
      { maxBytes: 4_096 },
      'The agent does not answer: the answer is longer than 4096 bytes.',
    ],
  ])('is given up when it is %s', async (_what, listener, limits, sentence) => {
    const { ask } = await startAgent(listener, limits)
    await expect(ask()).rejects.toThrow(sentence)
  })

  it('says so when the connection breaks off', async () => {
    const { ask } = await startAgent(({ socket }) => socket.destroy())
    await expect(ask()).rejects.toThrow('The agent closed the connection without an answer.')
  })
})
